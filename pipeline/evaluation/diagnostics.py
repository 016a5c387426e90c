"""What is behind the scores: confidence, calibration, each class, the decision threshold; and the data of the plots."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pipeline.core.task import Task
from pipeline.evaluation import calibration
from pipeline.evaluation.metrics import Floats, Ints, scores
from pipeline.evaluation.predictions import Predictions

# The files of the plots, each with its columns after `split`. One that a task does not have stays without rows.
PLOTS = {
    "confusion": ("actual", "predicted", "n"),
    "precision_recall": ("recall", "precision"),
    "reliability": ("confidence", "accuracy", "n"),
    "residuals": ("label", "prediction"),
    "roc": ("false_positive_rate", "true_positive_rate"),
}
_MOST_POINTS = 2000  # of a split in a plot: git keeps them


def threshold(of: Predictions) -> float:
    """For two classes: the probability of class 1 from which on to predict it for the best F1."""
    assert of.probability is not None
    return calibration.best_threshold(of.labels, of.probability[:, 1])


def diagnostics(task: Task, of: Predictions, cut: float | None) -> dict[str, Any]:
    """Numbers on the predictions of a split that people read but do not compare.

    Of a regression: `mean_error`, the mean of prediction minus label, and `mean_absolute_error`. Else: mean
    `confidence` and expected `calibration_error`, and what a perfectly calibrated model would show; `roc_auc`, of more
    than two classes the mean of each against the rest. Of two classes: scores, precision and recall `at_half` and
    `at_threshold`, from the probability `cut` on; of more, those of each class, `classes`.
    Where predict has scored the pairs with their texts swapped, `order_consistency`: the share with the same
    prediction in both orders, or of a regression the correlation of the two.
    """
    if of.probability is None:
        errors = of.predicted - of.labels
        found: dict[str, Any] = {
            "mean_error": float(errors.mean()),
            "mean_absolute_error": float(np.abs(errors).mean()),
        }
    else:
        confidence, right = of.confidence.ravel(), (of.labels == of.predicted).ravel()
        bins = calibration.reliability(confidence, right)
        found = {
            "confidence": float(confidence.mean()),
            "calibration_error": calibration.expected_calibration_error(bins),
            "if_calibrated": calibration.if_calibrated(confidence)._asdict(),
        }
        areas = [
            calibration.roc_auc(*calibration.operating_points(labels, probability)[:2])
            for labels, _, probability in _one_against_rest(task, of)
        ]
        known = [area for area in areas if area is not None]
        found["roc_auc"] = float(np.mean(known)) if known else None
        if cut is not None:
            above = (of.probability[:, 1] >= cut).astype(int)
            for name, predicted in (("at_half", of.predicted), ("at_threshold", above)):
                found[name] = {
                    **scores(task.metrics, of.labels, predicted),
                    **calibration.precision_and_recall(of.labels, predicted),
                }
        else:
            found["classes"] = [
                {
                    "n": int(labels.sum()),
                    **calibration.precision_and_recall(labels, predicted),
                    **scores(["f1"], labels, predicted),
                }
                for labels, predicted, _ in _one_against_rest(task, of)
            ]
    if of.swapped is not None and of.probability is None:
        found["order_consistency"] = scores(["pearson"], of.predicted, of.swapped)["pearson"]
    elif of.swapped is not None:
        found["order_consistency"] = float(np.mean(of.predicted == of.swapped))
    return found


def _one_against_rest(task: Task, of: Predictions) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Labels and predictions as 0 and 1, and probability, shape (n,), of each class; of two, of class 1 alone."""
    assert of.probability is not None
    for number in range(int(task.binary), len(task.labels)):
        if of.labels.ndim == 2:
            yield of.labels[:, number], of.predicted[:, number], of.probability[:, number]
        else:
            labels, predicted = (np.equal(values, number).astype(int) for values in (of.labels, of.predicted))
            yield labels, predicted, of.probability[:, number]


def plots(task: Task, of: Predictions) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a split's plots, as `PLOTS` has their columns."""
    if of.probability is None:
        return {"residuals": _spread(list(zip(of.labels.tolist(), of.predicted.tolist(), strict=True)))}
    found: dict[str, list[tuple[Any, ...]]] = {
        "reliability": [*calibration.reliability(of.confidence.ravel(), (of.labels == of.predicted).ravel())]
    }
    if of.labels.ndim == 1:
        counts = sorted(Counter(zip(of.labels.tolist(), of.predicted.tolist(), strict=True)).items())
        found["confusion"] = [(task.labels[actual], task.labels[predicted], n) for (actual, predicted), n in counts]
    if task.binary:
        positives = calibration.operating_points(of.labels, of.probability[:, 1])[:2]
        found["precision_recall"] = _spread(calibration.precision_recall_curve(*positives))
        found["roc"] = _spread(calibration.roc_curve(*positives))
    return found


def _spread(points: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """At most _MOST_POINTS of them, evenly spread, with the first and the last."""
    return [points[at] for at in np.linspace(0, len(points) - 1, min(len(points), _MOST_POINTS)).astype(int)]
