"""Estimate how many labels are wrong."""

import numpy as np
import pandas as pd

from pipeline.core.task import Task
from pipeline.core.text import percent
from pipeline.evaluation.metrics import Ints, Values
from pipeline.evaluation.predictions import Predictions

_SAMPLES = 200  # of the bootstrap


def estimate_label_errors(task: Task, predictions: Predictions) -> pd.DataFrame:
    """Estimate the number of wrong labels, in all rows and in each class, from out-of-fold predictions.

    A row counts as class j if the probability of j is at least its mean over the rows labeled as j. If this holds for
    several classes, the row counts as the most probable one. In each class, the estimated proportion of wrong labels is
    the proportion of rows that count as another class, among those that count as any class ("confident joint",
    Northcutt, Jiang and Chuang 2021, https://doi.org/10.1613/jair.1.12125). Confident mistakes of the model count too,
    so the estimate is usually too high. The interval is a 95% bootstrap over the rows.

    Returns:
        The columns "name", "rows", "wrong", "low" and "high", with a row for "all" and one for each class. Empty unless
        each example has exactly one class.
    """
    if task.problem_type != "single_label_classification":
        return pd.DataFrame()
    labels, probability = predictions.labels, predictions.probability
    assert probability is not None
    random = np.random.default_rng(0)
    samples = (random.integers(len(labels), size=len(labels)) for _ in range(_SAMPLES))
    low, high = np.quantile(
        [_wrong_labels(labels[rows], probability[rows]) for rows in samples], (0.025, 0.975), axis=0
    )
    counts = [len(labels), *np.bincount(labels, minlength=task.outputs)]
    wrong = _wrong_labels(labels, probability)
    return pd.DataFrame({"name": ["all", *task.labels], "rows": counts, "wrong": wrong, "low": low, "high": high})


def describe_agreement(predictions: Predictions) -> str:
    """Say how often the models and the labels agree, which shows how far to trust the estimate."""
    agreement = float(np.mean(predictions.predicted == predictions.labels))
    return (
        f"The models agree with {percent(agreement)}% of the labels. Their own confident mistakes count as suspected "
        "errors too, so the true numbers are usually lower."
    )


def _wrong_labels(labels: Ints, probability: Values) -> Values:
    """Return the estimated number of wrong labels in all rows, and then in each class, shape (1 + classes,)."""
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
    return np.append(wrong.sum(), wrong)
