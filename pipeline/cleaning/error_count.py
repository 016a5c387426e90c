"""Estimate how many labels are wrong."""

from typing import NamedTuple

import numpy as np

from pipeline.core.task import Task
from pipeline.evaluation.metrics import Ints, Values
from pipeline.evaluation.predictions import Predictions

_SAMPLES = 200  # of the bootstrap


class ErrorCount(NamedTuple):
    """The estimated number of wrong labels, with an interval for the choice of the rows.

    Attributes:
        name: The class that the rows are labeled as, or "all".
        rows: The number of rows with this label.
    """

    name: str
    rows: int
    wrong: float
    low: float
    high: float


def estimate_label_errors(task: Task, predictions: Predictions) -> list[ErrorCount]:
    """Estimate the number of wrong labels, in all rows and in each class, from out-of-fold predictions.

    A row counts as class j if the probability of j is at least its mean over the rows labeled as j. If this holds for
    several classes, the row counts as the most probable one. In each class, the estimated proportion of wrong labels is
    the proportion of rows that count as another class, among those that count as any class ("confident joint",
    Northcutt, Jiang and Chuang 2021, https://doi.org/10.1613/jair.1.12125). Confident mistakes of the model count too,
    so the estimate is usually too high. The interval is a 95% bootstrap over the rows.

    Returns:
        The counts, with "all" first. Empty unless each example has exactly one class.
    """
    if task.problem_type != "single_label_classification":
        return []
    labels, probability = predictions.labels, predictions.probability
    assert probability is not None
    random = np.random.default_rng(0)
    samples = (random.integers(len(labels), size=len(labels)) for _ in range(_SAMPLES))
    by_sample = np.array([_wrong_by_class(labels[sample], probability[sample]) for sample in samples])
    wrong = _wrong_by_class(labels, probability)
    counts = [_error_count("all", len(labels), wrong.sum(), by_sample.sum(axis=1))]
    for number, name in enumerate(task.labels):
        rows = int((labels == number).sum())
        counts.append(_error_count(name, rows, wrong[number], by_sample[:, number]))
    return counts


def _error_count(name: str, rows: int, wrong: float, by_sample: Values) -> ErrorCount:
    low, high = np.quantile(by_sample, (0.025, 0.975))
    return ErrorCount(name, rows, float(wrong), float(low), float(high))


def _wrong_by_class(labels: Ints, probability: Values) -> Values:
    """Return the estimated number of wrong labels of each class, shape (classes,)."""
    wrong = np.zeros(probability.shape[1])
    thresholds = np.full(len(wrong), np.inf)
    for c in np.unique(labels):
        thresholds[c] = probability[labels == c, c].mean()
    confident = np.where(probability >= thresholds - 1e-6, probability, -1)
    counts_as = np.where(confident.max(axis=1) >= 0, confident.argmax(axis=1), -1)
    for c in np.unique(labels):
        assigned = counts_as[(labels == c) & (counts_as >= 0)]
        if len(assigned):
            wrong[c] = (labels == c).sum() * (assigned != c).mean()
    return wrong
