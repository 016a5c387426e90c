"""Diagnostics that explain the scores, such as calibration and the scores of each class, and the data of the plots."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.task import Task
from pipeline.evaluation import calibration
from pipeline.evaluation.metrics import (
    PROBABILITY_DECIMALS,
    Floats,
    Ints,
    Values,
    accuracy,
    applicable_metrics,
    class_counts,
    scores,
    threshold_counts,
)
from pipeline.evaluation.predictions import Predictions

# The columns of each plot file after `split`. If a plot does not apply to the task, its file has only a header.
PLOTS = {
    "confusion": ("actual", "predicted", "n"),
    "precision_recall": ("recall", "precision"),
    "reliability": ("confidence", "accuracy", "n"),
    "residuals": ("label", "prediction"),
    "roc": ("false_positive_rate", "true_positive_rate"),
}
_MAX_POINTS = 2000  # The limit per split and plot, because git tracks these files.


def diagnostics(task: Task, predictions: Predictions, threshold: float | None) -> dict[str, Any]:
    """Compute numbers about the predictions of a split that people read but do not compare.

    Args:
        threshold: The probability of class 1 from which `at_threshold` predicts class 1. None unless there are two
            classes.

    Returns:
        `scores`: all metrics that apply to the task. For a regression, the `mean_error` (prediction minus label) and
        the `mean_absolute_error`. Otherwise the mean `confidence`, the expected `calibration_error`, what a
        perfectly calibrated model would show (`if_calibrated`), and F1, precision and recall of each class or label in
        `classes`. With two classes, also accuracy, F1, precision and recall `at_threshold`.
    """
    labels, predicted = predictions.labels, predictions.predicted
    entries: dict[str, Any] = {"scores": scores(applicable_metrics(task), labels, predicted, predictions.probability)}
    if predictions.probability is None:
        errors = predicted - labels
        entries |= {"mean_error": float(errors.mean()), "mean_absolute_error": float(np.abs(errors).mean())}
    else:
        confidence = predictions.confidence.ravel()
        bins = calibration.reliability(confidence, (labels == predicted).ravel())
        entries |= {
            "confidence": float(confidence.mean()),
            "calibration_error": calibration.expected_calibration_error(bins),
            "if_calibrated": calibration.simulate_calibrated_model(bins),
            "classes": class_scores(labels, predicted, task.outputs),
        }
        if threshold is not None:
            probability = predictions.probability[:, 1].round(PROBABILITY_DECIMALS)
            predicted_at_threshold = (probability >= threshold).astype(int)
            entries["at_threshold"] = {
                "accuracy": accuracy(labels, predicted_at_threshold),
                **class_scores(labels, predicted_at_threshold)[1],
            }
    return entries


def class_scores(labels: Values, predictions: Values, classes: int = 2) -> list[dict[str, float | None]]:
    """Return the scores of each class or label against the rest.

    Precision is None if the class is never predicted, recall if no example has the class, and F1 if both are None.
    """
    counts = (column.tolist() for column in class_counts(labels, predictions, classes))
    return [
        {
            "n": actual,
            "precision": correct / predicted if predicted else None,
            "recall": correct / actual if actual else None,
            "f1": 2 * correct / (predicted + actual) if predicted + actual else None,
        }
        for correct, predicted, actual in zip(*counts, strict=True)
    ]


def best_threshold(labels: Ints, probability: Floats) -> float:
    """Return the threshold with the highest F1: 0.5 if no other one is better, or else the highest one in a tie.

    Args:
        labels: Shape (n,), 0 or 1.
        probability: Shape (n,), the probability of class 1.
    """
    true_positives, false_positives, thresholds = (counts[1:] for counts in threshold_counts(labels, probability))
    f1 = 2 * true_positives / (true_positives + false_positives + labels.sum())
    predicted = probability > 0.5
    f1_at_half = 2 * np.sum(predicted & (labels == 1)) / max(predicted.sum() + labels.sum(), 1)
    return 0.5 if f1_at_half >= f1.max() else float(thresholds[f1.argmax()])


def plots(task: Task, predictions: Predictions) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of a split for each plot that applies, with the columns of `PLOTS`."""
    labels, predicted = predictions.labels, predictions.predicted
    if predictions.probability is None:
        return {"residuals": _downsample(list(zip(labels.tolist(), predicted.tolist(), strict=True)))}
    correct = (labels == predicted).ravel()
    rows: dict[str, list[tuple[Any, ...]]] = {
        "reliability": [*calibration.reliability(predictions.confidence.ravel(), correct)]
    }
    if labels.ndim == 1:
        counts = sorted(Counter(zip(labels.tolist(), predicted.tolist(), strict=True)).items())
        rows["confusion"] = [(task.labels[actual], task.labels[predicted], n) for (actual, predicted), n in counts]
    if task.binary:
        counts_above = threshold_counts(labels, predictions.probability[:, 1])[:2]
        rows["precision_recall"] = _downsample(precision_recall_curve(*counts_above))
        rows["roc"] = _downsample(roc_curve(*counts_above))
    return rows


def precision_recall_curve(true_positives: Ints, false_positives: Ints) -> list[tuple[float, float]]:
    """Return (recall, precision) at each threshold of `threshold_counts`.

    The first point is (0, 1): no example is predicted positive there, and its precision is defined as 1.
    """
    predicted = np.maximum(true_positives + false_positives, 1)
    precision = np.append(1.0, (true_positives / predicted)[1:])
    recall = true_positives / max(true_positives[-1], 1)
    return list(zip(recall.tolist(), precision.tolist(), strict=True))


def roc_curve(true_positives: Ints, false_positives: Ints) -> list[tuple[float, float]]:
    """Return (false positive rate, true positive rate) at each threshold of `threshold_counts`, starting at (0, 0)."""
    false_rate = false_positives / max(false_positives[-1], 1)
    true_rate = true_positives / max(true_positives[-1], 1)
    return list(zip(false_rate.tolist(), true_rate.tolist(), strict=True))


def _downsample(points: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return at most _MAX_POINTS of the points, evenly spaced, including the first and the last one."""
    return [points[i] for i in np.linspace(0, len(points) - 1, min(len(points), _MAX_POINTS)).astype(int)]


def constant_predictions(task: Task, train_labels: Values, n: int) -> tuple[Values, Floats | None]:
    """Return the predictions and probabilities for n examples of a model that ignores the texts.

    It always predicts the majority class of train (the last one in a tie), the majority for each label, or the mean.
    Its probabilities are always the proportions of the classes or labels.
    """
    if task.problem_type == "regression":
        return np.full(n, train_labels.mean()), None
    if task.problem_type == "multi_label_classification":
        proportions = train_labels.mean(axis=0)
        prediction = (proportions >= 0.5).astype(int)
    else:
        proportions = np.bincount(train_labels, minlength=task.outputs) / len(train_labels)
        prediction = np.flatnonzero(proportions == proportions.max())[-1]
    return np.broadcast_to(prediction, (n, *prediction.shape)), np.broadcast_to(proportions, (n, task.outputs))
