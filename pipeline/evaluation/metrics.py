"""Scores as plain functions over arrays, and the `evaluate.Metric` that wraps them for the Trainer."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import evaluate

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]


def score(labels: Ints, predictions: Ints) -> dict[str, float]:
    """Accuracy and F1 of class 1, the scores that GLUE reports for MRPC (Wang et al. 2018, table 1).

    labels, predictions: shape (n,), classes. F1 is 0 where class 1 is neither present nor predicted.
    Raises ValueError when n == 0.
    """
    if len(labels) == 0:
        raise ValueError("nothing to score: no labels")
    both = int(np.sum((labels == 1) & (predictions == 1)))
    either = int(np.sum(labels == 1) + np.sum(predictions == 1))
    return {"accuracy": float(np.mean(labels == predictions)), "f1": 2 * both / either if either else 0.0}


def cross_entropy(logits: Floats, labels: Ints) -> float:
    """Mean negative log-likelihood, in nats, of the labels under softmax(logits). Shapes (n, classes) and (n,)."""
    return float(-np.mean(log_softmax(logits)[np.arange(len(labels)), labels]))


def log_softmax(logits: Floats) -> Floats:
    """Log softmax over the last axis, in float64, without overflow."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    normalised: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def paraphrase_metric() -> "evaluate.Metric":
    """`score` as an `evaluate.Metric`, with `add_batch` and `compute`.

    Not `evaluate.load("glue", "mrpc")`, which downloads a script from the Hub and runs it.
    """
    import datasets
    import evaluate

    class Paraphrase(evaluate.Metric):  # type: ignore[misc]
        def _info(self) -> evaluate.MetricInfo:
            integer = datasets.Value("int64")
            return evaluate.MetricInfo(
                description="Accuracy and F1 of paraphrase detection.",
                citation="",
                inputs_description="predictions, references: classes, 1 for a paraphrase",
                features=datasets.Features(predictions=integer, references=integer),
            )

        def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
            return score(np.asarray(references), np.asarray(predictions))

    return Paraphrase(keep_in_memory=True)
