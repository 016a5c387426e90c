"""The calibration of the probabilities: whether a model is right as often as its confidence says."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.metrics import Floats

_BINS = 15  # The number that Guo et al. (2017) use.
_RESAMPLES = 10_000
_RANDOM_SEED = 0


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
    bin_numbers = np.ceil(confidence * _BINS).astype(int)  # A bin includes its upper edge, but not its lower edge.
    sizes, confidences, hits = (np.bincount(bin_numbers, weights) for weights in (None, confidence, correct))
    return [Bin(float(confidences[i] / n), float(hits[i] / n), int(n)) for i, n in enumerate(sizes) if n]


def expected_calibration_error(bins: list[Bin]) -> float:
    """Return the mean gap between confidence and accuracy, weighted by bin size (Guo et al. 2017, eq. 3)."""
    return sum(abs(row.confidence - row.accuracy) * row.n for row in bins) / sum(row.n for row in bins)


def simulate_calibrated_model(bins: list[Bin]) -> dict[str, float]:
    """Simulate the accuracy and the calibration error of a model whose confidences are exact probabilities.

    This is consistency resampling (Bröcker and Smith 2007, "Increasing the reliability of reliability diagrams"), with
    the mean confidence of a bin in place of the confidences in it, which are nearly equal. So the time does not depend
    on the number of predictions. The random seed is fixed, so the same bins always give the same numbers.

    Args:
        bins: The bins of the reliability diagram. Their accuracy is not used.

    Returns:
        The bounds of the accuracy in 95% of cases, the mean of the expected calibration error, and the bound that this
        error stays below in 95% of cases.
    """
    confidence = np.array([row.confidence for row in bins])
    sizes = np.array([row.n for row in bins])
    correct = np.random.default_rng(_RANDOM_SEED).binomial(sizes, confidence, size=(_RESAMPLES, len(bins)))
    errors = np.abs(correct - confidence * sizes).sum(axis=1) / sizes.sum()
    low, high = np.percentile(correct.sum(axis=1) / sizes.sum(), (2.5, 97.5))
    return {
        "accuracy_low": float(low),
        "accuracy_high": float(high),
        "calibration_error": float(errors.mean()),
        "calibration_error_high": float(np.percentile(errors, 95)),
    }
