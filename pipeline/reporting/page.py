"""The report: one HTML page that needs no network."""

import base64
import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.percent import percent
from pipeline.core.task import Task
from pipeline.evaluation.metrics import METRICS, Values
from pipeline.reporting import learning_curves, slices
from pipeline.reporting.mistakes import Piece, differences, mistakes, told
from pipeline.reporting.results import Results

if TYPE_CHECKING:
    import jinja2

_MISTAKES = 10  # shown of each kind
_CONFUSIONS = 5  # named in words
_LOSSES = {
    "single_label_classification": "cross-entropy (nats)",
    "multi_label_classification": "binary cross-entropy (nats)",
    "regression": "squared error",
}


def page(results: Results) -> str:
    """The page as HTML. It has no date and no path in it: the same results give the same text."""
    from pipeline.reporting import charts

    task, predictions, plots = results.task, results.predictions, results.plots
    evaluation, training = results.metrics["evaluation"], results.metrics["train"]
    run, environment = results.provenance["run"], results.metrics["environment"]
    judged, metric = task.verdict_split, task.metrics[0]
    titles = {name: METRICS[name].title for name in task.metrics}
    epochs = learning_curves.epochs(plots["history"], task.metrics)
    steps = [int(row["step"]) for row in plots["history"] if row["split"] == "validation"]
    sliced = {split: slices.slices(task, results.rows[split], of.predicted) for split, of in predictions.items()}
    confused = {split: _confusion(task, of.labels, of.predicted) for split, of in predictions.items()}
    figures = {
        "headline": charts.headline(_headline(results)),
        "losses": charts.losses(plots["history"], steps[training["kept_epoch"] - 1], _LOSSES[task.problem_type]),
        "scores": charts.scores(epochs, _comparable(titles)),
        "slices": charts.slices(sliced[judged], metric, evaluation[judged][metric], task.noun),
    }
    if task.problem_type == "regression":
        figures["residuals"] = charts.residuals(plots["residuals"])
        figures["errors"] = charts.errors(plots["residuals"])
    else:
        least = 1 / len(task.labels) if task.problem_type == "single_label_classification" else 0.5
        figures["reliability"] = charts.reliability(plots["reliability"], least, task.noun)
    if task.binary:
        figures["precision_recall"] = charts.precision_recall(plots["precision_recall"])
        figures["roc"] = charts.roc(plots["roc"])
    script = charts.javascript()
    guess = max(results.card.splits[judged].labels, default=0)
    template = _jinja().get_template("page.html.jinja")
    return template.render(
        baseline=results.baseline,
        card=results.card,
        charts=figures,
        confused=_worst_confusions(task, confused[judged]),
        confusion=confused,
        diagnostics=results.metrics["diagnostics"],
        epoch_metric=training["metric_for_best_model"],
        epochs=epochs,
        evaluation=evaluation,
        evaluation_md5=results.evaluation_md5,
        few=slices.FEW,
        guess=f"always answering “{_plain(task.labels[results.card.splits[judged].labels.index(guess)])}”"
        if task.problem_type == "single_label_classification"
        else f"the {task.baseline}{' of each label' if task.labels else ''}",
        intervals=results.metrics["intervals"],
        judged=judged,
        lengths=results.lengths,
        metric=metric,
        metrics=METRICS,
        mistakes=_mistakes(results),
        names=[_plain(name) for name in task.labels],
        negations=slices.NEGATIONS,
        parameters={name: value for name, value in run.items() if name == "precision" or name not in environment},
        readings=learning_curves.read(
            epochs, training["metric_for_best_model"], training["epochs"], training["degenerate"]
        ),
        run=run,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        shown=sorted(task.scored, key=lambda split: split != judged),
        slices=sliced,
        task=task,
        titles=titles,
        training=training,
        # `run` holds the environment too, and `precision` belongs to both.
        versions={
            "The corpus": results.provenance["data"],
            "The pretrained checkpoint": results.provenance["checkpoint"],
            "The training run": training,
            "Where it was trained": environment,
            "This page": {name: version(name) for name in ("altair", "jinja2", "vl-convert-python")},
        },
    )


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _comparable(titles: Mapping[str, str]) -> dict[str, str]:
    """The metrics that one axis can show: not errors, which have a scale of their own."""
    return {name: title for name, title in titles.items() if METRICS[name].kind != "error"}


def _headline(results: Results) -> list[dict[str, Any]]:
    """The rows of the first chart: each score of the model, and the scores to compare it with."""
    rows, task = [], results.task
    for split in sorted(task.scored, key=lambda split: split != task.verdict_split):
        scores, intervals = (results.metrics[name][split] for name in ("evaluation", "intervals"))
        for name, title in _comparable({name: METRICS[name].title for name in task.metrics}).items():
            compared = {
                "this model": {"value": scores[name], **intervals[name]},
                _baseline_name(task): {"value": scores[f"{task.baseline}_{name}"]},
            }
            if results.baseline:
                compared["committed baseline"] = {"value": results.baseline[split][name]}
            rows += [{"score": f"{split} {title}", "model": model, **values} for model, values in compared.items()]
    return rows


def _baseline_name(task: Task) -> str:
    return "majority class" if task.problem_type == "single_label_classification" else task.baseline


def _confusion(task: Task, labels: Values, predicted: Values) -> list[list[int]]:
    """How many rows with each label have each prediction. Empty where rows have no single class."""
    if task.problem_type != "single_label_classification":
        return []
    classes = len(task.labels)
    counts: list[list[int]] = (
        np.bincount(classes * labels + predicted, minlength=classes**2).reshape(classes, -1).tolist()
    )
    return counts


def _worst_confusions(task: Task, counts: list[list[int]]) -> list[tuple[int, str, str]]:
    """The most frequent confusions: how many, the label, the prediction."""
    found = [
        (count, _plain(task.labels[label]), _plain(task.labels[given]))
        for label, of in enumerate(counts)
        for given, count in enumerate(of)
        if count and label != given
    ]
    return sorted(found, key=lambda one: -one[0])[:_CONFUSIONS]


def _mistakes(results: Results) -> list[dict[str, Any]]:
    """The mistakes of each kind on the split that is judged, with their texts."""
    task, split = results.task, results.task.verdict_split
    of, texts = results.predictions[split], results.rows[split].texts
    return [
        {
            "kind": _plain(found.kind),
            "n": found.n,
            "rows": [
                {
                    "row": row,
                    "texts": differences(texts[0][row], texts[1][row])
                    if task.pairs
                    else [[Piece(texts[0][row], False)]],
                    "told": _plain(told(task, of, row)),
                }
                for row in found.rows
            ],
        }
        for found in mistakes(task, of, _MISTAKES)
    ]


def _jinja() -> "jinja2.Environment":
    """The templates beside this file. Inserted text is escaped: text from the data cannot become markup."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "p_value": _typeset_p, "typeset": _typeset}
    return environment


def _typeset(difference: str) -> str:
    return (
        difference.replace("+0.0", "±0.0").replace("-", "\N{MINUS SIGN}")
        if float(difference) == 0
        else (difference.replace("-", "\N{MINUS SIGN}"))
    )


def _typeset_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
