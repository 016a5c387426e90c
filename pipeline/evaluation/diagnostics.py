"""Diagnostics that explain the scores, such as calibration and the scores of each class, and the data of the plots."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.task import Task
from pipeline.evaluation.metrics import Values, accuracy, applicable_metrics, class_counts, scores
from pipeline.evaluation.predictions import Predictions
from pipeline.modeling.outputs import PROBABILITY_DECIMALS

# The columns of each plot file after `split`. If a plot does not apply to the task, its file has only a header.
PLOTS = {
    "confusion": ["actual", "predicted", "n"],
    "reliability": ["confidence", "accuracy", "n"],
    "residuals": ["label", "prediction"],
}
_BINS = 15  # of the reliability diagram, as in Guo et al. (2017)
_RESAMPLES = 10_000
_MAX_POINTS = 2000  # The limit per split and plot, because git tracks these files.


def diagnostics(task: Task, predictions: Predictions, threshold: float | None) -> dict[str, Any]:
    """Compute numbers about the predictions of a split that people read but do not compare.

    Args:
        threshold: A probability of class 1. The scores `at_threshold` predict class 1 from there on.
    """
    labels, predicted, probability = predictions.labels, predictions.predicted, predictions.probability
    entries: dict[str, Any] = {"scores": scores(applicable_metrics(task), labels, predicted, probability)}
    if probability is None:
        errors = predicted - labels
        return entries | {"mean_error": float(errors.mean()), "mean_absolute_error": float(np.abs(errors).mean())}
    entries |= calibration(predictions) | {"classes": class_scores(labels, predicted, task.outputs)}
    if threshold is not None:
        at_threshold = (probability[:, 1].round(PROBABILITY_DECIMALS) >= threshold).astype(int)
        class_1 = class_scores(labels, at_threshold, 2)[1]
        entries["at_threshold"] = {"accuracy": accuracy(labels, at_threshold), **class_1}
    return entries


def class_scores(labels: Values, predicted: Values, classes: int) -> list[dict[str, float | None]]:
    """Return n, precision, recall and F1 of each class or label against the rest.

    Precision is None if the class is never predicted, recall if no example has the class, and F1 if both are None.
    """
    correct, predictions, n = map(pd.Series, class_counts(labels, predicted, classes))
    f1 = 2 * correct / (predictions + n)
    table = pd.DataFrame({"n": n, "precision": correct / predictions, "recall": correct / n, "f1": f1})  # 0 / 0 is NaN.
    entries: list[dict[str, float | None]] = table.astype(object).where(table.notna(), None).to_dict("records")
    return entries


def reliability(predictions: Predictions) -> pd.DataFrame:
    """Return the mean confidence, the accuracy and the number of the predictions in 15 bins of equal width.

    With several labels per example, there is a prediction for each example and label. Empty bins are left out.
    """
    is_correct = (predictions.labels == predictions.predicted).ravel()
    rows = pd.DataFrame({"confidence": predictions.confidence.ravel(), "accuracy": is_correct, "n": 1})
    bins = rows.groupby(np.ceil(rows["confidence"] * _BINS))  # A bin includes its upper edge, but not its lower edge.
    return bins.agg({"confidence": "mean", "accuracy": "mean", "n": "sum"}).reset_index(drop=True)


def calibration(predictions: Predictions) -> dict[str, Any]:
    """Return the mean confidence, the expected calibration error (Guo et al. 2017, eq. 3), and `if_calibrated`.

    `if_calibrated` simulates a calibrated model (consistency resampling, Bröcker and Smith 2007, "Increasing the
    reliability of reliability diagrams"): the bounds of its accuracy in 95% of cases, the mean of its calibration
    error, and the bound that this error stays below in 95% of cases.
    """
    confidence, correct, n = reliability(predictions).to_numpy().T
    hits = np.random.default_rng(0).binomial(n.astype(int), confidence, size=(_RESAMPLES, len(n)))
    errors = np.abs(hits - confidence * n).sum(axis=1) / n.sum()
    low, high = np.percentile(hits.sum(axis=1) / n.sum(), (2.5, 97.5))
    return {
        "confidence": float(predictions.confidence.mean()),
        "calibration_error": float(np.abs(confidence - correct) @ n / n.sum()),
        "if_calibrated": {
            "accuracy_low": float(low),
            "accuracy_high": float(high),
            "calibration_error": float(errors.mean()),
            "calibration_error_high": float(np.percentile(errors, 95)),
        },
    }


def best_threshold(predictions: Predictions) -> float:
    """Return the probability of class 1 with the highest F1 as the threshold: 0.5 if no other one is better."""
    assert predictions.probability is not None
    probability = predictions.probability[:, 1].round(PROBABILITY_DECIMALS)  # as in new predictions
    examples = pd.DataFrame({"hits": predictions.labels, "n": 1})
    counts = examples.groupby(probability).sum().sort_index(ascending=False).cumsum()  # with at least this probability
    f1 = 2 * counts["hits"] / (counts["n"] + predictions.labels.sum())
    return 0.5 if predictions.score("f1") >= f1.max() else float(f1[::-1].idxmax())  # the lowest of the best ones


def plots(task: Task, predictions: Predictions) -> dict[str, pd.DataFrame]:
    """Return the rows of each plot that applies to the split, with the columns of `PLOTS`."""
    labels, predicted = predictions.labels, predictions.predicted
    if task.is_regression:
        rows = pd.DataFrame({"label": labels, "prediction": predicted})
        return {"residuals": rows[:: len(rows) // _MAX_POINTS + 1]}
    tables = {"reliability": reliability(predictions)}
    if task.is_single_label:
        names = np.array(task.labels)
        pairs = pd.DataFrame({"actual": names[labels], "predicted": names[predicted]})
        tables["confusion"] = pairs.value_counts(sort=False).reset_index(name="n")
    return tables


def constant_predictions(task: Task, train_labels: Values, predictions: Predictions) -> Predictions:
    """Return what a model that ignores the texts predicts for the same examples.

    It always predicts the majority class of train (the last one in a tie), the majority for each label, or the mean.
    Its probabilities are always the proportions of the classes or labels.
    """
    n = len(predictions)
    proportions = train_labels.mean(axis=0)
    if task.is_regression:
        return replace(predictions, predicted=np.full(n, proportions), logits=np.full((n, 1), proportions))
    majority = (proportions >= 0.5).astype(int)
    if task.is_single_label:
        proportions = np.bincount(train_labels, minlength=task.outputs) / len(train_labels)
        majority = np.flatnonzero(proportions == proportions.max())[-1]
    repeated = np.broadcast_to(proportions, (n, task.outputs))
    return replace(predictions, predicted=np.repeat([majority], n, axis=0), logits=0 * repeated, probability=repeated)
