"""Write the model card. To publish the model, upload its directory with the card as README.md, which the Hub shows."""

import json
from functools import partial

from pipeline.core.messages import printable
from pipeline.core.text import code, table
from pipeline.evaluation.metrics import METRICS, SCORES, applicable_metrics
from pipeline.evaluation.signature import as_line
from pipeline.reporting.results import BASELINES, Results, never_predicted
from pipeline.reporting.templates import TEMPLATES, format_score
from pipeline.reporting.training_curves import LOSSES

_MAX_LABELS = 20  # in a list


def model_card(results: Results) -> str:
    """Return the card in the format of the Hub, with the scores in the metadata as `model-index`.

    See https://huggingface.co/docs/hub/model-cards.
    """
    from huggingface_hub import EvalResult, ModelCardData

    task, data, checkpoint = results.task, results.provenance["data"], results.provenance["checkpoint"]
    dataset = data.get("dataset", task.name)
    regression = task.problem_type == "regression"
    metrics = [*task.metrics, *(name for name in applicable_metrics(task) if name not in task.metrics)]
    eval_results = [
        EvalResult(
            task_type="text-classification",
            task_name="Text regression" if regression else "Text classification",
            dataset_type=dataset,
            dataset_name=results.data_name,
            dataset_config=data.get("config"),
            dataset_split=split,
            dataset_revision=data.get("revision"),
            metric_type=name,
            metric_name=METRICS[name].title,
            metric_value=results.diagnostics[split]["scores"][name],
        )
        for split in task.scored_splits
        for name in metrics
    ]
    front_matter = ModelCardData(
        base_model=None if checkpoint["revision"] is None else checkpoint["checkpoint"],
        datasets=[dataset] if "dataset" in data else None,
        eval_results=eval_results,
        language=data.get("language"),
        license=checkpoint.get("license"),
        library_name="transformers",
        metrics=metrics,
        model_name=f"{results.data_name} {'regressor' if regression else 'classifier'}",
        pipeline_tag="text-classification",
    )
    missing = never_predicted(results.diagnostics[task.verdict_split])
    return TEMPLATES.get_template("model_card.md.jinja").render(
        **vars(results),
        example=_example(results),
        all_labels=_join_labels([code(label) for label in task.labels]),
        front_matter=front_matter.to_yaml(),
        loss=LOSSES[task.problem_type],
        metrics=[METRICS[name] for name in metrics],
        never_predicted=_join_labels([f"{code(task.labels[label])} (0 of {n:,} {task.noun})" for label, n in missing]),
        provenance_json=json.dumps(results.provenance, indent=2, sort_keys=True),
        sample_size=results.sample_size,
        scores="\n".join(_score_table(results, metrics)),
        signature=printable(as_line(results.diagnostics["signature"])),
    )


def _example(results: Results) -> str:
    """Return the first argument of a call of the model in Python."""
    if not results.task.pairs:
        return json.dumps("A text.")
    return json.dumps({"text": "One text.", "text_pair": results.tokenization["pair_separator"] + "Another text."})


def _join_labels(labels: list[str]) -> str:
    return ", ".join(labels[:_MAX_LABELS]) + (", ..." if len(labels) > _MAX_LABELS else "")


def _score_table(results: Results, metrics: list[str]) -> list[str]:
    """Return the rows of a table of scores. The metrics by which models are compared have 95% confidence intervals."""
    task, rows = results.task, []
    splits = task.verdict_split_first
    for name in metrics:
        title = f"F1 for {code(task.labels[1])}" if name == "f1" else METRICS[name].title
        show = partial(format_score, name=name)
        row = [title]
        for split in splits:
            diagnostics = results.diagnostics[split]
            score, interval = diagnostics["scores"][name], diagnostics["intervals"].get(name)
            row.append(show(score) + (f" ({show(interval['low'])} to {show(interval['high'])})" if interval else ""))
        rows.append(row)
        if name in task.metrics:
            for key, model in (("linear", "linear model"), (task.constant_baseline, BASELINES[task.constant_baseline])):
                scores = [results.evaluation[split][f"{key}_{name}"] for split in splits]
                rows.append([f"{title} of the {model}", *map(show, scores)])
    evaluations = [results.evaluation[split] for split in splits]
    losses = [SCORES["loss"].format(evaluation["loss"], 2) for evaluation in evaluations]
    rows.append([LOSSES[task.problem_type], *losses])
    rows.append([task.noun, *(str(evaluation["n"]) for evaluation in evaluations)])
    return table(["", *splits], rows)
