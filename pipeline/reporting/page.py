"""The report: one HTML page that needs no network."""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from pipeline.core.data_card import MOST_TRUNCATED
from pipeline.core.packages import REPORT_PACKAGES
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import percent
from pipeline.evaluation.metrics import METRICS, SCORES, applicable_metrics, baseline
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.signature import as_line
from pipeline.evaluation.uncertainty import Difference, difference, jackknife
from pipeline.reporting import learning_curves, mistakes, slices
from pipeline.reporting.learning_curves import Epoch
from pipeline.reporting.results import BASELINES, Results, never_predicted
from pipeline.reporting.slices import Slice

_MOST_CLASSES = 40  # in a confusion matrix, and listed with their proportions
_CONFUSIONS = 5  # listed


def page(results: Results) -> str:
    """Render the page as HTML. It contains no date and no path, so the same results give the same text."""
    task, predictions, training = results.task, results.predictions, results.training
    main = task.verdict_split
    splits = sorted(task.scored_splits, key=lambda split: split != main)
    # Take the names from history.csv: its columns are in the order of the task's metrics during training.
    curve_names = [name for name in results.plots["history"].columns if name in METRICS]
    epochs = learning_curves.epochs(results.plots["history"], curve_names)
    overlap = float(slices.overlaps(*results.rows[main].texts).mean()) if task.pairs else 0.0
    related = overlap >= slices.RELATED
    sliced = {
        split: slices.slices(task, results.rows[split], predictions[split], related) for split in task.scored_splits
    }
    train_labels = results.card.splits[TRAIN].labels
    names = [name.replace("_", " ") for name in task.labels]
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            **vars(results),
            charts=_charts(results, splits, epochs, curve_names, sliced[main]),
            confusions={split: _confusion(predictions[split], len(task.labels)) for split in splits},
            curve_names=curve_names,
            curve_verdicts=learning_curves.judge(
                epochs, training["metric_for_best_model"], training["epochs"], training["degenerate"]
            ),
            epochs=epochs,
            meanings={name: metric.meaning for name, metric in METRICS.items()},
            frequent=sorted(range(len(train_labels)), key=lambda label: -train_labels[label])[:_MOST_CLASSES],
            guess=_guess(task, predictions[main]),
            main=main,
            mistakes=[
                (group, [_mistake(results, main, position, related) for position in group.positions])
                for group in mistakes.worst(task, predictions[main])
            ],
            names=names,
            never_predicted=never_predicted(predictions[main], len(task.labels)),
            overlap=overlap,
            related=related,
            right={
                split: float(np.mean(predictions[split].labels == predictions[split].predicted)) for split in splits
            },
            slice_names=slices.slice_metrics(task),
            slices=sliced,
            splits=splits,
            tied=_has_tie(results, epochs),
            threshold_effects=_threshold_effects(predictions[main], results.diagnostics["threshold"])
            if task.binary
            else None,
            unused_metrics=[name for name in applicable_metrics(task) if name not in task.metrics],
            warnings=[*results.card.warnings, *_truncation_warnings(results)],
            versions={
                "The data": results.provenance["data"],
                "The base model": results.provenance["checkpoint"],
                "The training run": results.training,
                "The training environment": results.provenance["environment"],
                "This page": {name.lower(): version(name) for name in REPORT_PACKAGES},
            },
        )
    )


@cache
def _environment() -> jinja2.Environment:
    """Create the environment of the templates, with the filters and constants that they use."""
    from pipeline.reporting import charts

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # Text from the data cannot become markup.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    environment.globals |= {
        "baseline_names": BASELINES,
        "few": slices.FEW,
        "most_classes": _MOST_CLASSES,
        "negations": slices.NEGATIONS,
        "script": charts.javascript(),
    }
    return environment


def _has_tie(results: Results, epochs: Sequence[Epoch]) -> bool:
    """Return whether another epoch has the same score as the one that was kept."""
    scores = [epoch.scores[results.training["metric_for_best_model"]] for epoch in epochs]
    return scores.count(scores[results.training["kept_epoch"] - 1]) > 1


def _charts(
    results: Results,
    splits: Sequence[str],
    epochs: Sequence[Epoch],
    curve_names: Sequence[str],
    slices: Sequence[Slice],
) -> dict[str, dict[str, Any]]:
    """Return the specifications of the charts that apply to the task.

    Args:
        slices: The slices of the first split.
    """
    from pipeline.reporting import charts

    task, plots, main = results.task, results.plots, splits[0]
    history = plots["history"]
    kept = history[history["split"] == "validation"].iloc[results.training["kept_epoch"] - 1]
    percentages = [name for name in curve_names if METRICS[name].scale != "error"]
    specifications = {
        "losses": charts.losses(history, int(kept["step"]), learning_curves.LOSSES[task.problem_type]),
        "scores": charts.scores(epochs, percentages),
        "slices": charts.slices(slices, task.metrics[0], results.evaluation[main][task.metrics[0]]),
    }
    if headline := _headline(results, splits):
        specifications["headline"] = charts.headline(headline)
    if task.problem_type == "regression":
        specifications["predictions"] = charts.predictions(plots["residuals"], main)
        specifications["residuals"] = charts.residuals(plots["residuals"], main)
    else:
        lowest = 0.5 if task.binary or task.problem_type == "multi_label_classification" else 0
        specifications["reliability"] = charts.reliability(plots["reliability"], splits, lowest)
    if task.binary:
        specifications["precision_recall"] = charts.precision_recall(plots["precision_recall"], splits)
        specifications["roc"] = charts.roc(plots["roc"], splits)
    return specifications


def _headline(results: Results, splits: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of the first chart: the scores of the model and of the baselines. Errors are left out."""
    rows = []
    for split in splits:
        evaluation, intervals = results.evaluation[split], results.intervals[split]
        for name in results.task.metrics:
            if METRICS[name].scale == "error":
                continue
            models = {
                "this model": {"value": evaluation[name], **intervals[name]},
                BASELINES[results.task.baseline]: {"value": evaluation[f"{results.task.baseline}_{name}"]},
            }
            if results.baseline:
                models["committed baseline"] = {"value": results.baseline[split][name]}
            # The titles have to fit on a phone: "mismatched" for the split, and "Pearson" for the metric.
            title = f"{split.removeprefix('validation_')} {METRICS[name].title.removesuffix(' correlation')}"
            rows += [{"score": title, "model": model, **values} for model, values in models.items()]
    return rows


def _truncation_warnings(results: Results) -> list[str]:
    """Return a warning for each split of which the model does not read a considerable part."""
    return [
        f"{split}: {counts['truncated']:,} of {counts['rows']:,} {results.task.noun} "
        f"({counts['truncated'] / counts['rows']:.1%}) are longer than {results.max_length} tokens, and the model does "
        "not read the rest. Raise tokenize.max_length."
        for split, counts in results.lengths.items()
        if counts["truncated"] > MOST_TRUNCATED * counts["rows"]
    ]


def _guess(task: Task, predictions: Predictions) -> str | float | None:
    """Return what the baseline predicts: the name of a class, or a number. None with several labels per example."""
    if task.problem_type == "multi_label_classification":
        return None
    guesses, _ = baseline(task.problem_type, predictions.labels, task.outputs)
    return task.labels[guesses[0]].replace("_", " ") if task.labels else float(guesses[0])


def _threshold_effects(predictions: Predictions, threshold: float) -> dict[str, Difference]:
    """Compare the scores at a threshold with the scores at 0.5.

    Returns:
        The differences, keyed by metric. Empty if no prediction changes.
    """
    assert predictions.probability is not None
    above = (predictions.probability[:, 1] >= threshold).astype(int)
    if np.array_equal(above, predictions.predicted):
        return {}
    differences = {}
    for name in ("accuracy", "f1"):
        before, after = (jackknife(name, predictions.labels, answers) for answers in (predictions.predicted, above))
        differences[name] = difference(before[np.newaxis], after[np.newaxis], same_seeds=True)
    return differences


def _confusion(predictions: Predictions, classes: int) -> dict[str, Any] | None:
    """Count how often each class is predicted for each label. Returns None if there is not one class per example.

    Returns:
        `counts`: Shape (classes, classes), with a row for each label. None with too many classes to show.
        `largest`: The largest counts of wrong predictions, as tuples of label, prediction and count.
        `wrong`: The number of wrong predictions.
    """
    if predictions.probability is None or predictions.labels.ndim > 1:
        return None
    pairs = Counter(zip(predictions.labels.tolist(), predictions.predicted.tolist(), strict=True))
    wrong = [(label, predicted, n) for (label, predicted), n in sorted(pairs.items()) if label != predicted]
    matrix = None
    if classes <= _MOST_CLASSES:
        matrix = [[pairs[label, predicted] for predicted in range(classes)] for label in range(classes)]
    return {
        "counts": matrix,
        "largest": sorted(wrong, key=lambda cell: -cell[2])[:_CONFUSIONS],
        "wrong": sum(n for _, _, n in wrong),
    }


def _mistake(results: Results, split: str, position: int, related: bool) -> dict[str, Any]:
    """Return what the page shows about a mistake.

    With several labels per example, `label`, `predicted`, `swapped` and `confidence` have a value for each label.
    """
    predictions = results.predictions[split]
    return {
        "idx": int(predictions.idx[position]),
        "texts": mistakes.pieces([column[position] for column in results.rows[split].texts], related),
        "label": predictions.labels[position].tolist(),
        "predicted": predictions.predicted[position].tolist(),
        "swapped": None if predictions.swapped is None else predictions.swapped[position].tolist(),
        "confidence": None if predictions.probability is None else predictions.confidence[position].tolist(),
    }


_UNDEFINED = "\N{EN DASH}"


def _difference(difference: float, name: str, unit: bool = False) -> str:
    """Format a difference in a metric with its sign, and with its unit if `unit` is set."""
    text = METRICS[name].format_difference(difference)
    text = text.replace("-", "\N{MINUS SIGN}") if float(text) else f"±{text[1:]}"
    return f"{text} points" if unit and METRICS[name].scale != "error" else text


def _verdict(interval: Mapping[str, float], value: float, name: str) -> str:
    """Return "better" or "worse" if an interval of a metric excludes a value, and an empty text if it includes it."""
    if interval["low"] <= value <= interval["high"]:
        return ""
    return "better" if METRICS[name].sign * (interval["low"] - value) > 0 else "worse"


def _in_percent(names: Iterable[str], unit: str = "percent") -> str:
    """Return a note that says which of these scores are in `unit`: all, only the correlations, or none."""
    scales = {METRICS[name].scale for name in names}
    if "error" not in scales:
        return f" (in {unit})"
    return f" (correlations in {unit})" if "correlation" in scales else ""


def _number(value: float) -> str:
    """Format a label or a prediction of a regression."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _format_score(value: float | None, name: str, unit: bool = False) -> str:
    if value is None:
        return _UNDEFINED
    score = SCORES[name]
    return f"{score.format(value)}%" if unit and score.scale != "error" else score.format(value)


def _sha256(text: str) -> str:
    """Return the hash of a script in the form that a Content-Security-Policy needs."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_FILTERS: dict[str, Callable[..., Any]] = {
    "difference": _difference,
    "format_score": _format_score,
    "in_percent": _in_percent,
    "number": _number,
    "p_value": lambda p: "p < 0.001" if p < 0.001 else f"p = {p:.2g}",
    "percent": lambda proportion: _UNDEFINED if proportion is None else percent(proportion),
    "sha256": _sha256,
    "signature_line": as_line,
    "thousands": "{:,}".format,
    "title": lambda name: SCORES[name].title,
    "verdict": _verdict,
}
