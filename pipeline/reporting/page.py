"""The report: one HTML page that needs no network."""

from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

import numpy as np

from pipeline.core.packages import REPORT_PACKAGES
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import percent
from pipeline.evaluation.diagnostics import threshold
from pipeline.evaluation.metrics import METRICS, applicable_metrics, baseline, losses
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.signature import as_line
from pipeline.evaluation.uncertainty import Difference, difference, jackknife
from pipeline.reporting import learning_curves, mistakes, slices
from pipeline.reporting.results import Results, never_predicted
from pipeline.reporting.templates import scripted

_MOST_CLASSES = 40  # in a confusion matrix, and named with their shares
_CONFUSIONS = 5  # named
_BASELINES = {"majority": "majority class", "mean": "mean of the labels"}


def page(results: Results) -> str:
    """The page as HTML. It has no date and no path in it: the same results give the same text."""
    from pipeline.reporting import charts

    task, predictions, plots = results.task, results.predictions, results.plots
    evaluation, training = results.metrics["evaluation"], results.metrics["train"]
    main, chosen = task.verdict_split, training["metric_for_best_model"]
    splits = sorted(task.scored, key=lambda split: split != main)
    curve_names = [name for name in METRICS if name in plots["history"][0]]
    epochs = learning_curves.epochs(plots["history"], curve_names)
    steps = [int(row["step"]) for row in plots["history"] if row["split"] == "validation"]
    overlap = float(slices.overlaps(*results.rows[main].texts).mean()) if task.pairs else 0.0
    related = overlap >= slices.RELATED
    sliced = {split: slices.slices(task, results.rows[split], of, related) for split, of in predictions.items()}
    validated = results.card.splits["validation"].rows
    right = {split: float(np.mean(of.labels == of.predicted)) for split, of in predictions.items()}
    drawn = {
        "headline": charts.headline(_headline(results, splits)),
        "losses": charts.losses(
            plots["history"], steps[training["kept_epoch"] - 1], learning_curves.LOSSES[task.problem_type]
        ),
        "scores": charts.scores(epochs, [name for name in curve_names if METRICS[name].scale != "error"]),
        "slices": charts.slices(sliced[main], task.metrics[0], evaluation[main][task.metrics[0]]),
    }
    if task.problem_type == "regression":
        drawn["predictions"] = charts.predictions(plots["residuals"], main)
        drawn["residuals"] = charts.residuals(plots["residuals"], main)
    else:
        lowest = 0.5 if task.binary or task.problem_type == "multi_label_classification" else 0
        drawn["reliability"] = charts.reliability(plots["reliability"], splits, lowest)
    if task.binary:
        drawn["precision_recall"] = charts.precision_recall(plots["precision_recall"], splits)
        drawn["roc"] = charts.roc(plots["roc"], splits)
    of_train = results.card.splits[TRAIN].labels
    return scripted(
        "page.html.jinja",
        _FILTERS,
        baseline=results.baseline,
        baseline_name=_BASELINES[task.baseline],
        card=results.card,
        cards=[results.card.splits[split] for split in task.splits],  # in their order
        charts=drawn,
        chosen=chosen,
        confusions={split: _confusion(of, len(task.labels)) for split, of in predictions.items()},
        curve_names=curve_names,
        diagnostics=results.metrics["diagnostics"],
        epochs=epochs,
        evaluation=evaluation,
        evaluation_md5=results.evaluation_md5,
        few=slices.FEW,
        frequent=sorted(range(len(of_train)), key=lambda label: -of_train[label])[:_MOST_CLASSES],
        guess=_guess(results, main),
        intervals=results.metrics["intervals"],
        lengths=results.lengths,
        main=main,
        mistakes=[
            (group, [_mistake(results, main, row, related) for row in group.rows])
            for group in mistakes.worst(task, predictions[main])
        ],
        max_length=results.max_length,
        most_classes=_MOST_CLASSES,
        moved=_moved_scores(task, predictions, main) if task.binary else None,
        names=[name.replace("_", " ") for name in task.labels],
        negations=slices.NEGATIONS,
        never_predicted=never_predicted(predictions[main], len(task.labels)),
        other_metrics=[name for name in applicable_metrics(task) if name not in task.metrics],
        overlap=overlap,
        readings=learning_curves.read(
            epochs,
            chosen,
            training["epochs"],
            training["degenerate"],
            f"{validated:,} {task.noun}",
            _loss_error(task, predictions["validation"], validated),
        ),
        related=related,
        right=right,
        scales={name: metric.scale for name, metric in METRICS.items()},
        signature=as_line(results.metrics["diagnostics"]["signature"]),
        slice_names=slices.slice_metrics(task),
        slices=sliced,
        splits=splits,
        task=task,
        training=training,
        environment=results.provenance["environment"],
        parameters=results.provenance["parameters"],
        versions={
            "The corpus": results.provenance["data"],
            "The pretrained checkpoint": results.provenance["checkpoint"],
            "The training run": training,
            "Where it was trained": results.provenance["environment"],
            "This page": {name.lower(): version(name) for name in REPORT_PACKAGES},
        },
    )


def _headline(results: Results, splits: list[str]) -> list[dict[str, Any]]:
    """The rows of the first chart: each score of the model but errors, and the scores to compare it with."""
    rows = []
    for split in splits:
        scores, intervals = (results.metrics[name][split] for name in ("evaluation", "intervals"))
        for name in results.task.metrics:
            if METRICS[name].scale == "error":
                continue
            compared = {
                "this model": {"value": scores[name], **intervals[name]},
                _BASELINES[results.task.baseline]: {"value": scores[f"{results.task.baseline}_{name}"]},
            }
            if results.baseline:
                compared["committed baseline"] = {"value": results.baseline[split][name]}
            # Short enough for a phone: "mismatched", "Pearson".
            title = f"{split.removeprefix('validation_')} {METRICS[name].title.removesuffix(' correlation')}"
            rows += [{"score": title, "model": model, **values} for model, values in compared.items()]
    return rows


def _guess(results: Results, split: str) -> str | float | None:
    """What the baseline answers on a split: the name of a class, or a number; of several labels None."""
    task = results.task
    if task.problem_type == "multi_label_classification":
        return None
    guesses, _ = baseline(task.problem_type, results.predictions[split].labels, task.outputs)
    return task.labels[guesses[0]].replace("_", " ") if task.labels else float(guesses[0])


def _moved_scores(task: Task, predictions: dict[str, Predictions], split: str) -> dict[str, Difference]:
    """Compare the scores on a split at the best threshold of validation with those at 0.5.

    Returns:
        The differences by metric; empty if no prediction changes.
    """
    scored = predictions[split]
    assert scored.probability is not None
    at_threshold = (scored.probability[:, 1] >= threshold(predictions["validation"])).astype(int)
    if np.array_equal(at_threshold, scored.predicted):
        return {}
    jackknives = {
        name: [jackknife(name, scored.labels, values)[np.newaxis] for values in (scored.predicted, at_threshold)]
        for name in ("accuracy", "f1")
    }
    return {name: difference(*sides, same_seeds=True) for name, sides in jackknives.items()}


def _loss_error(task: Task, of: Predictions, n: int) -> float:
    """The standard error of the mean loss over n examples, from the losses of those that are predicted."""
    return float(
        losses(task.problem_type, of.logits, of.labels).reshape(len(of.labels), -1).mean(axis=1).std() / n**0.5
    )


def _confusion(of: Predictions, classes: int) -> dict[str, Any] | None:
    """counts: shape (classes, classes), rows are labels; of many classes None. largest: of the wrong ones."""
    if of.probability is None or of.labels.ndim > 1:
        return None
    pairs = Counter(zip(of.labels.tolist(), of.predicted.tolist(), strict=True))
    wrong = [(*pair, n) for pair, n in sorted(pairs.items()) if pair[0] != pair[1]]
    matrix = None
    if classes <= _MOST_CLASSES:
        matrix = [[pairs[label, predicted] for predicted in range(classes)] for label in range(classes)]
    return {
        "counts": matrix,
        "largest": sorted(wrong, key=lambda cell: -cell[2])[:_CONFUSIONS],
        "wrong": sum(n for *_, n in wrong),
    }


def _mistake(results: Results, split: str, row: int, related: bool) -> dict[str, Any]:
    """What to show of a mistake. sure: the confidence, of several labels that of each, of a regression None."""
    of = results.predictions[split]
    return {
        "idx": int(of.idx[row]),
        "texts": mistakes.pieces([column[row] for column in results.rows[split].texts], related),
        "label": of.labels[row].tolist(),
        "predicted": of.predicted[row].tolist(),
        "swapped": None if of.swapped is None else of.swapped[row].tolist(),
        "sure": None if of.probability is None else of.confidence[row].tolist(),
    }


_UNDEFINED = "\N{EN DASH}"


def _difference(difference: float, name: str, unit: bool = False) -> str:
    """A difference in a metric with its sign, and its unit."""
    text = METRICS[name].format_difference(difference)
    text = text.replace("-", "\N{MINUS SIGN}") if float(text) else f"±{text[1:]}"
    return f"{text} points" if unit and METRICS[name].scale != "error" else text


def _against(interval: dict[str, float], value: float, name: str) -> str:
    """Whether an interval of a metric lies on the "worse" or the "better" side of a value; else nothing."""
    if interval["low"] <= value <= interval["high"]:
        return ""
    return "better" if METRICS[name].sign * (interval["low"] - value) > 0 else "worse"


def _in_percent(names: Iterable[str], unit: str = "percent") -> str:
    """Which of these scores are in percent, or their differences in points: all, the correlations, or none."""
    scales = {METRICS[name].scale for name in names}
    if "error" not in scales:
        return f" in {unit}"
    return f", correlations in {unit}" if "correlation" in scales else ""


def _number(value: float) -> str:
    """A label or a prediction of a regression."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


_FILTERS: dict[str, Callable[..., Any]] = {
    "against": _against,
    "difference": _difference,
    "in_percent": _in_percent,
    "number": _number,
    "p_value": lambda p: "p < 0.001" if p < 0.001 else f"p = {p:.2g}",
    "percent": lambda share: _UNDEFINED if share is None else percent(share),
    "shown": lambda value, name: _UNDEFINED if value is None else learning_curves.shown(value, name),
    "thousands": "{:,}".format,
    "title": learning_curves.title,
}
