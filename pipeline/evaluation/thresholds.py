"""Precision, recall and ROC at every decision threshold, and the best threshold."""

import numpy as np

from pipeline.evaluation.metrics import Floats, Ints, threshold_counts


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
