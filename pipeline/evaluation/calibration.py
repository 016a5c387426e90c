"""Precision, recall and ROC at every decision threshold, and the calibration of the probabilities."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.metrics import Floats, Ints, threshold_counts

_BINS = 15  # The number that Guo et al. (2017) use.
_RESAMPLES = 1000
_SEED = 0


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


class Bin(NamedTuple):
    """A bin of the reliability diagram: the mean confidence, the accuracy and the number of its predictions."""

    confidence: float
    accuracy: float
    n: int


def reliability(confidence: Floats, correct: NDArray[np.bool_]) -> list[Bin]:
    """Return the non-empty bins of a reliability diagram that has 15 bins of equal width between 0 and 1.

    Args:
        confidence: Shape (n,), the probability of the predicted class.
        correct: Shape (n,), whether the predicted class is the label.
    """
    number = np.ceil(confidence * _BINS).astype(int)  # A bin includes its upper edge, but not its lower edge.
    sizes, confidences, hits = (np.bincount(number, weights) for weights in (None, confidence, correct))
    return [Bin(float(confidences[i] / n), float(hits[i] / n), int(n)) for i, n in enumerate(sizes) if n]


def expected_calibration_error(bins: list[Bin]) -> float:
    """Return the mean gap between confidence and accuracy, weighted by bin size (Guo et al. 2017, eq. 3)."""
    return sum(abs(row.confidence - row.accuracy) * row.n for row in bins) / sum(row.n for row in bins)


class Calibrated(NamedTuple):
    """What a perfectly calibrated model would show by chance.

    Attributes:
        accuracy_low, accuracy_high: The bounds of its accuracy in 95% of cases.
        calibration_error: The mean of its expected calibration error.
        calibration_error_high: The bound that its expected calibration error stays below in 95% of cases.
    """

    accuracy_low: float
    accuracy_high: float
    calibration_error: float
    calibration_error_high: float


def if_calibrated(confidence: Floats) -> Calibrated:
    """Simulate the accuracy and the calibration error of a model whose confidences are exact probabilities.

    This is consistency resampling (Bröcker and Smith 2007, "Increasing the reliability of reliability diagrams"). The
    random seed is fixed, so the same confidences always give the same numbers.

    Args:
        confidence: Shape (n,), the probability of the predicted class.
    """
    random = np.random.default_rng(_SEED)
    accuracies, errors = [], []
    for _ in range(_RESAMPLES):
        correct = random.random(len(confidence)) < confidence
        accuracies.append(correct.mean())
        errors.append(expected_calibration_error(reliability(confidence, correct)))
    low, high = np.percentile(accuracies, (2.5, 97.5))
    return Calibrated(float(low), float(high), float(np.mean(errors)), float(np.percentile(errors, 95)))
