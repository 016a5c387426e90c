"""Precision, recall and ROC over the decision threshold, and the calibration of the probabilities."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.metrics import Floats, Ints

_BINS = 15  # as in Guo et al.
_RESAMPLES = 1000
_SEED = 0


def operating_points(labels: Ints, probability: Floats) -> tuple[Ints, Ints, Floats]:
    """True and false positives at each threshold, and the thresholds: pairs at or above one are positive.

    labels, probability: shape (n,). Returns three arrays with an entry for each distinct probability, highest first.
    """
    order = np.argsort(-probability)
    last_of_equals = np.append(np.flatnonzero(np.diff(probability[order])), len(order) - 1)
    true_positives = np.cumsum(labels[order])[last_of_equals]
    return true_positives, last_of_equals + 1 - true_positives, probability[order][last_of_equals]


def precision_recall_curve(true_positives: Ints, false_positives: Ints) -> list[tuple[float, float]]:
    """(recall, precision) at each operating point, after the conventional first point (0, 1)."""
    recall = true_positives / max(true_positives[-1], 1)
    precision = true_positives / (true_positives + false_positives)
    return [(0.0, 1.0), *zip(recall.tolist(), precision.tolist(), strict=True)]


def roc_curve(true_positives: Ints, false_positives: Ints) -> list[tuple[float, float]]:
    """(false positive rate, true positive rate) at each operating point, after the first point (0, 0)."""
    false_rate = false_positives / max(false_positives[-1], 1)
    true_rate = true_positives / max(true_positives[-1], 1)
    return [(0.0, 0.0), *zip(false_rate.tolist(), true_rate.tolist(), strict=True)]


def roc_auc(true_positives: Ints, false_positives: Ints) -> float | None:
    """Area under the ROC curve, by trapezoids: ties count half. None where all labels are of one class."""
    if not (true_positives[-1] and false_positives[-1]):
        return None
    false_rate, true_rate = zip(*roc_curve(true_positives, false_positives), strict=True)
    return float(np.trapezoid(true_rate, false_rate))


def precision_and_recall(labels: Ints, predictions: Ints) -> dict[str, float | None]:
    """Precision and recall of class 1: None where no prediction is 1, and where no label is.

    labels, predictions: shape (n,), classes.
    """
    right = int(np.sum((labels == 1) & (predictions == 1)))
    predicted, actual = int(np.sum(predictions == 1)), int(np.sum(labels == 1))
    return {"precision": right / predicted if predicted else None, "recall": right / actual if actual else None}


def best_threshold(labels: Ints, probability: Floats) -> float:
    """The threshold with the highest F1, of several the highest. labels, probability: shape (n,)."""
    true_positives, false_positives, thresholds = operating_points(labels, probability)
    f1 = 2 * true_positives / (true_positives + false_positives + labels.sum())
    return float(thresholds[f1.argmax()])


class Bin(NamedTuple):
    """A bin of the reliability diagram: mean confidence, accuracy and number of its predictions."""

    confidence: float
    accuracy: float
    n: int


def reliability(confidence: Floats, correct: NDArray[np.bool_]) -> list[Bin]:
    """The non-empty bins of a reliability diagram with 15 bins of equal width over [0, 1].

    confidence: shape (n,), probability of the predicted class. correct: shape (n,), whether that class is the label.
    """
    number = np.ceil(confidence * _BINS).astype(int)  # a bin includes its upper edge, not its lower one
    sizes, confidences, hits = (np.bincount(number, weights) for weights in (None, confidence, correct))
    return [Bin(float(confidences[of] / n), float(hits[of] / n), int(n)) for of, n in enumerate(sizes) if n]


def expected_calibration_error(bins: list[Bin]) -> float:
    """Mean gap between confidence and accuracy, weighted by bin size (Guo et al. 2017, eq. 3)."""
    return sum(abs(of.confidence - of.accuracy) * of.n for of in bins) / sum(of.n for of in bins)


class Calibrated(NamedTuple):
    """What a perfectly calibrated model would show by chance.

    Its accuracy lies between accuracy_low and accuracy_high in 95 % of cases. Its expected calibration error is
    calibration_error on average, and up to calibration_error_high in 95 % of cases.
    """

    accuracy_low: float
    accuracy_high: float
    calibration_error: float
    calibration_error_high: float


def if_calibrated(confidence: Floats) -> Calibrated:
    """Consistency resampling: accuracy and calibration error if each confidence were the probability of being right.

    confidence: shape (n,), probability of the predicted class. Source: Bröcker and Smith 2007, "Increasing the
    reliability of reliability diagrams". Seeded: the same confidences give the same numbers.
    """
    random = np.random.default_rng(_SEED)
    accuracies, errors = [], []
    for _ in range(_RESAMPLES):
        correct = random.random(len(confidence)) < confidence
        accuracies.append(correct.mean())
        errors.append(expected_calibration_error(reliability(confidence, correct)))
    low, high = np.percentile(accuracies, (2.5, 97.5))
    return Calibrated(float(low), float(high), float(np.mean(errors)), float(np.percentile(errors, 95)))
