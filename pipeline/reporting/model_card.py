"""Write the model card. To publish the model, upload its directory with the card as README.md, which the Hub shows."""

import json

from pipeline.core.messages import printable
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import code, table
from pipeline.evaluation.metrics import METRICS, applicable_metrics
from pipeline.evaluation.signature import as_line
from pipeline.reporting.learning_curves import LOSSES
from pipeline.reporting.results import Results, never_predicted

_MOST_LABELS = 20  # in a list


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
    published = checkpoint["revision"] is not None
    front_matter = ModelCardData(
        base_model=checkpoint["checkpoint"] if published else None,
        datasets=[dataset] if "dataset" in data else None,
        eval_results=eval_results,
        language=data.get("language"),
        license=checkpoint.get("license"),
        library_name="transformers",
        metrics=metrics,
        model_name=f"{results.data_name} classifier",
        pipeline_tag="text-classification",
    )
    start = f"{code(checkpoint['checkpoint'])} (commit {checkpoint['revision']})"
    return _CARD.format(
        front_matter=front_matter.to_yaml(),
        model_type="Text regression model" if regression else "Text classifier",
        task=code(results.data_name),
        purpose=_purpose(task),
        noun=task.noun,
        trained_on=_trained_on(results),
        never_predicted=_never_predicted(results),
        start=start if published else "a local base model",
        scores="\n".join(_score_table(results, metrics)),
        signature=printable(as_line(results.diagnostics["signature"])),
        metrics=_metric_list(task, metrics),
        chosen=_chosen(task) if results.provenance["parameters"]["keep"] == "best" else "",
        text='{"text": "One text.", "text_pair": "Another text."}' if task.pairs else '"A text."',
        options=", top_k=None" if task.problem_type == "multi_label_classification" else "",
        outputs=_OUTPUTS[task.problem_type],
        swapped="\n- Its answer can change if the two texts are swapped." if task.pairs else "",
        max_length=results.max_length,
        provenance=json.dumps(results.provenance, indent=2, sort_keys=True),
    )


def _score_table(results: Results, metrics: list[str]) -> list[str]:
    """Return the rows of a table of scores. The metrics by which models are compared have 95% confidence intervals."""
    task, rows = results.task, []
    for name in metrics:
        title = f"F1 for {code(task.labels[1])}" if name == "f1" else METRICS[name].title
        row = [title]
        for split in task.scored_splits:
            score, interval = results.diagnostics[split]["scores"][name], results.intervals[split].get(name)
            row.append(f"{score:.4f}" + (f" ({interval['low']:.4f} to {interval['high']:.4f})" if interval else ""))
        rows.append(row)
    evaluations = [results.evaluation[split] for split in task.scored_splits]
    rows.append([LOSSES[task.problem_type], *(f"{evaluation['loss']:.4f}" for evaluation in evaluations)])
    rows.append([task.noun, *(str(evaluation["n"]) for evaluation in evaluations)])
    return table(["", *task.scored_splits], rows)


def _metric_list(task: Task, metrics: list[str]) -> str:
    """Explain the metrics and the loss as a Markdown list."""
    items = [f"- {METRICS[name].title}: {METRICS[name].meaning}" for name in metrics]
    return "\n".join([*items, f"- {LOSSES[task.problem_type]}: the mean loss, so lower is better"])


def _purpose(task: Task) -> str:
    """Describe in a sentence what the model does."""
    text = "a pair of texts" if task.pairs else "a text"
    if task.problem_type == "regression":
        return f"This model predicts a number for {text}."
    if task.binary:
        return f"This model classifies {text} as {code(task.labels[1])} or {code(task.labels[0])}."
    names = _listing([code(label) for label in task.labels])
    if task.problem_type == "single_label_classification":
        return f"This model assigns one of {len(task.labels)} classes to {text}: {names}."
    return f"This model decides which of {len(task.labels)} labels apply to {text}: {names}."


def _trained_on(results: Results) -> str:
    limit, noun = results.provenance["parameters"]["max_train_samples"], results.task.noun
    everything = limit is None or limit >= results.card.splits[TRAIN].rows
    return f"the training {noun}" if everything else f"the first {limit:,} training {noun}"


def _never_predicted(results: Results) -> str:
    """Return a list item that names the classes or labels that are never predicted, or an empty text."""
    task, split = results.task, results.task.verdict_split
    missing = never_predicted(results.predictions[split], len(task.labels))
    if not missing:
        return ""
    names = _listing([f"{code(task.labels[label])} (0 of {n:,} {task.noun})" for label, n in missing])
    return f"- On {split}, it never predicts {names}.\n"


def _listing(names: list[str]) -> str:
    return ", ".join(names if len(names) <= _MOST_LABELS else [*names[:_MOST_LABELS], "..."])


def _chosen(task: Task) -> str:
    """Explain what the choice of the epoch means for the scores."""
    unbiased = " and ".join(split for split in task.scored_splits if split != "validation")
    also = f"The {unbiased} scores are not affected." if unbiased else "No other split has known labels."
    return f"- The best epoch was chosen on validation, so the validation scores are slightly optimistic. {also}\n"


_OUTPUTS = {
    "single_label_classification": (
        "Its probabilities are not calibrated: answers with a probability of 90% may be right more often or less often."
    ),
    "multi_label_classification": (
        "It predicts a label if its probability is above 0.5. The probabilities are not calibrated: answers with a "
        "probability of 90% may be right more often or less often."
    ),
    "regression": "Its predictions have the scale of the training labels, but may be outside their range.",
}

_CARD = """---
{front_matter}
---

# {model_type} for {task}

{purpose}
It was fine-tuned from {start} on {trained_on} of {task}.

## Scores

{scores}

The 95% confidence intervals in parentheses are plausible ranges for the score on a much larger sample of such {noun}.

{metrics}

The score signature identifies the task, the data, the seed, the base model, and the training code:

```
{signature}
```

Compare these scores only with scores for the same task, metrics, and examples. Any other part that differs may explain
a difference. The report of this training run, `report.html`, has more scores and the worst mistakes of the model.

## Use

```python
from transformers import pipeline

classify = pipeline("text-classification", model="path/to/this/directory"{options})
classify({text}, truncation=True, max_length={max_length})
```

## Limits

{never_predicted}- It was trained on {noun} of {task}. Evaluate it on your own {noun} before you rely on it.
{chosen}- {outputs}{swapped}

## Provenance

The data, base model, code, parameters and environment of the training run:

```json
{provenance}
```
"""
