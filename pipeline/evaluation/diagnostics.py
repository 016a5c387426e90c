"""What is behind the scores: confidence, calibration, each class, the decision threshold; and the data of the plots."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.task import Task
from pipeline.evaluation import calibration
from pipeline.evaluation.metrics import Values, accuracy, applicable_metrics, f1, pearson, scores, threshold_counts
from pipeline.evaluation.predictions import Predictions

# The files of the plots, each with its columns after `split`. If a plot does not apply, its file has only a header.
PLOTS = {
    "confusion": ("actual", "predicted", "n"),
    "precision_recall": ("recall", "precision"),
    "reliability": ("confidence", "accuracy", "n"),
    "residuals": ("label", "prediction"),
    "roc": ("false_positive_rate", "true_positive_rate"),
}
_MOST_POINTS = 2000  # of a split in a plot: git keeps them


def threshold(predictions: Predictions) -> float:
    """With two classes: the probability of class 1 from which on to predict it for the best F1."""
    assert predictions.probability is not None
    return calibration.best_threshold(predictions.labels, predictions.probability[:, 1])


def diagnostics(task: Task, split: Predictions, cut: float | None) -> dict[str, Any]:
    """Numbers on the predictions of a split that people read but do not compare.

    Args:
        cut: with two classes, the probability of class 1 that `at_threshold` calls it from.

    Returns:
        `scores`: all metrics that apply to the task. For a regression, the `mean_error` (prediction minus label) and
        the `mean_absolute_error`. Otherwise the mean `confidence`, the expected `calibration_error`, and what a
        perfectly calibrated model would show. With two classes, accuracy, F1, precision and recall `at_half` and
        `at_threshold`; with more, F1, precision and recall of each of the `classes`. If predict has scored the pairs
        with their texts swapped, `order_consistency`: the proportion with the same prediction in both orders, or the
        correlation of the two.
    """
    entries: dict[str, Any] = {
        "scores": scores(applicable_metrics(task), split.labels, split.predicted, split.probability)
    }
    if split.probability is None:
        errors = split.predicted - split.labels
        entries |= {"mean_error": float(errors.mean()), "mean_absolute_error": float(np.abs(errors).mean())}
    else:
        confidence, correct = split.confidence.ravel(), (split.labels == split.predicted).ravel()
        bins = calibration.reliability(confidence, correct)
        entries |= {
            "confidence": float(confidence.mean()),
            "calibration_error": calibration.expected_calibration_error(bins),
            "if_calibrated": calibration.if_calibrated(confidence)._asdict(),
        }
        if cut is not None:
            above = (split.probability[:, 1] >= cut).astype(int)
            for name, predicted in (("at_half", split.predicted), ("at_threshold", above)):
                entries[name] = {
                    "accuracy": accuracy(split.labels, predicted),
                    **_class_scores(split.labels, predicted),
                }
        elif split.labels.ndim == 2:
            columns = zip(split.labels.T, split.predicted.T, strict=True)
            entries["classes"] = [_class_scores(*column) for column in columns]
        else:
            classes = range(task.outputs)
            entries["classes"] = [
                _class_scores(split.labels == number, split.predicted == number) for number in classes
            ]
    if split.swapped is not None and split.probability is None:
        entries["order_consistency"] = pearson(split.predicted, split.swapped)
    elif split.swapped is not None:
        entries["order_consistency"] = float(np.mean(split.predicted == split.swapped))
    return entries


def _class_scores(labels: Values, predictions: Values) -> dict[str, float | None]:
    """How well a class is told from the rest. labels, predictions: whether an example is of the class, shape (n,)."""
    labels, predictions = labels.astype(int), predictions.astype(int)
    both = calibration.precision_and_recall(labels, predictions)
    return {"n": int(labels.sum()), **both, "f1": f1(labels, predictions)}


def plots(task: Task, split: Predictions) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a split's plots, as `PLOTS` has their columns."""
    if split.probability is None:
        return {"residuals": _thinned(list(zip(split.labels.tolist(), split.predicted.tolist(), strict=True)))}
    correct = (split.labels == split.predicted).ravel()
    rows: dict[str, list[tuple[Any, ...]]] = {
        "reliability": [*calibration.reliability(split.confidence.ravel(), correct)]
    }
    if split.labels.ndim == 1:
        counts = sorted(Counter(zip(split.labels.tolist(), split.predicted.tolist(), strict=True)).items())
        rows["confusion"] = [(task.labels[actual], task.labels[predicted], n) for (actual, predicted), n in counts]
    if task.binary:
        counts_above = threshold_counts(split.labels, split.probability[:, 1])[:2]
        rows["precision_recall"] = _thinned(calibration.precision_recall_curve(*counts_above))
        rows["roc"] = _thinned(calibration.roc_curve(*counts_above))
    return rows


def _thinned(points: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """At most _MOST_POINTS of them, evenly spread, with the first and the last."""
    return [points[i] for i in np.linspace(0, len(points) - 1, min(len(points), _MOST_POINTS)).astype(int)]
