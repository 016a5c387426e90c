"""What the outputs of a model mean: predictions, probabilities and losses."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from pipeline.core.task import ProblemType

Logits = NDArray[np.floating[Any]]  # the outputs of the model for n examples, shape (n, outputs)
# Probabilities and the threshold are written with this many decimals. Scores are computed before this rounding.
PROBABILITY_DECIMALS = 6


def logits_to_predictions(problem_type: ProblemType, logits: Logits) -> NDArray[Any]:
    """Return the class numbers, the 0 or 1 for each label, or the numbers of a regression."""
    if problem_type == "regression":
        return logits[:, 0].astype(np.float64)
    predictions: NDArray[Any] = logits > 0 if problem_type == "multi_label_classification" else logits.argmax(-1)
    return predictions.astype(np.int64)


def logits_to_probabilities(problem_type: ProblemType, logits: Logits) -> NDArray[np.float64] | None:
    """Return the probability of each class, or of each label independently, with the same shape as `logits`.

    The probabilities are rounded to 12 decimals, so that scores do not depend on the last bits of `exp`. With fewer
    decimals, confident predictions would be ties, which ROC AUC counts as half. A regression has none.
    """
    if problem_type == "regression":
        return None
    logits = logits.astype(np.float64)
    is_multi_label = problem_type == "multi_label_classification"
    probabilities = expit(logits) if is_multi_label else softmax(logits, axis=-1)
    return np.round(np.asarray(probabilities), 12)


def value_probabilities(probabilities: NDArray[np.floating[Any]], values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Return how likely labels or predictions are: each class, shape (n, 1), or each 0 or 1, shape (n, labels)."""
    if values.ndim == 2:
        return np.where(values == 1, probabilities, 1 - probabilities)
    return np.take_along_axis(probabilities, values[:, np.newaxis], axis=1)


def loss(problem_type: ProblemType, logits: Logits, labels: NDArray[Any]) -> float:
    """Return the mean loss: cross-entropy in nats, or the squared error of a regression."""
    return float(np.mean(losses(problem_type, logits, labels)))


def losses(problem_type: ProblemType, logits: Logits, labels: NDArray[Any]) -> NDArray[np.float64]:
    """Return the loss of each example, shape (n,), or of each of its labels, shape (n, labels)."""
    logits = logits.astype(np.float64)
    if problem_type == "regression":
        return np.asarray(np.square(logits[:, 0] - labels))
    if problem_type == "multi_label_classification":
        return np.asarray(np.logaddexp(0, logits) - labels * logits)
    return np.asarray(-log_softmax(logits, axis=-1)[np.arange(len(labels)), labels])
