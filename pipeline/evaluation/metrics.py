"""Metrics, each a function with an entry in the dictionary `METRICS`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.core.task import ProblemType, Task
from pipeline.core.text import require_choice

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]
# The labels or the predictions of n examples. The shape is (n,), or (n, labels) with 0 or 1 if an example can have
# several labels.
Values = NDArray[Any]


@dataclass(frozen=True)
class Metric:
    """A score of the predictions, and how to show it to people.

    Attributes:
        scale: "proportion" (0 to 1), "correlation" (-1 to 1), or "error" (0 or more, where less is better).
        compute: Compute the score from the labels, the predictions and the probabilities, shape (n, outputs). A
            regression has no probabilities.
        meaning: A phrase that follows "is" in the report.
        only_two_classes: Whether the metric applies only to tasks with exactly two classes.
        is_ranking: Whether the score depends only on the order of the probabilities, not on the predictions.
    """

    title: str
    scale: Literal["proportion", "correlation", "error"]
    problem_types: tuple[ProblemType, ...]
    compute: Callable[[Values, Values, Any], float]
    meaning: str
    only_two_classes: bool = False
    is_ranking: bool = False

    @property
    def is_error(self) -> bool:
        """Whether lower values are better. Such a score is in its own units, not in percent."""
        return self.scale == "error"

    @property
    def sign(self) -> int:
        """1 if higher values are better, and -1 if lower values are better."""
        return -1 if self.is_error else 1

    def format(self, value: float, digits: int = 1, sign: str = "") -> str:
        """Format a score in percent, or an error in its own units, with significant digits if it is below 0.1."""
        if not self.is_error:
            return f"{100 * value:{sign}z.{digits}f}"
        notation = "g" if 0 < abs(value) < 0.1 else "f"
        return f"{value:{sign}z.{digits + 2}{notation}}"

    def format_difference(self, difference: float, digits: int = 1) -> str:
        """Format a difference with its sign, in percentage points, or in the units of an error."""
        return self.format(difference, digits, sign="+")


# An interval needs a metric 50 times, and a comparison thousands of times. So the metrics of counts are plain numpy,
# which takes a hundredth of the time that scikit-learn needs for a few thousand examples.


def accuracy(labels: Values, predictions: Values, *_: Any) -> float:
    return float(is_correct(labels, predictions).mean())


def is_correct(labels: Values, predictions: Values) -> NDArray[np.bool_]:
    """Return whether each prediction equals the label, shape (n,). If there are several labels, all must be equal."""
    return np.asarray((labels == predictions).reshape(len(labels), -1).all(axis=1))


def class_counts(labels: Values, predictions: Values, classes: int = 2) -> tuple[Ints, Ints, Ints]:
    """Count the correct and all predictions and the actual examples of each label, or of at least `classes` classes."""
    if labels.ndim == 2:
        return (labels * predictions).sum(axis=0), predictions.sum(axis=0), labels.sum(axis=0)
    classes = max(classes, int(labels.max()) + 1, int(predictions.max()) + 1)
    correct = np.bincount(labels[labels == predictions], minlength=classes)
    return correct, np.bincount(predictions, minlength=classes), np.bincount(labels, minlength=classes)


def balanced_accuracy(labels: Values, predictions: Values, *_: Any) -> float:
    """Return the mean recall over the classes that occur in the labels."""
    correct, _predicted, actual = class_counts(labels, predictions)
    return float(np.mean(correct[actual > 0] / actual[actual > 0]))


def f1(labels: Values, predictions: Values, *_: Any) -> float:
    """Return the F1 of class 1. It is 0 if the class neither occurs nor is predicted."""
    correct, predicted, actual = class_counts(labels, predictions)
    return float(2 * correct[1] / max(predicted[1] + actual[1], 1))


def f1_macro(labels: Values, predictions: Values, *_: Any) -> float:
    """Return the mean F1 over the classes or labels that occur or are predicted."""
    correct, predicted, actual = class_counts(labels, predictions)
    total = predicted + actual
    return float((2 * correct / np.maximum(total, 1)).sum() / max(np.count_nonzero(total), 1))


def f1_micro(labels: Values, predictions: Values, *_: Any) -> float:
    """Return the F1 computed from the counts of all labels together."""
    correct, predicted, actual = class_counts(labels, predictions)
    return float(2 * correct.sum() / max(predicted.sum() + actual.sum(), 1))


def matthews_correlation(labels: Values, predictions: Values, *_: Any) -> float:
    """Return the correlation (Gorodkin 2004, equation 8), or 0 if the labels or the predictions are constant."""
    correct, predicted, actual = (counts.astype(float) for counts in class_counts(labels, predictions))
    n = len(labels)
    covariance = n * correct.sum() - (predicted * actual).sum()
    variances = (n**2 - (predicted**2).sum()) * (n**2 - (actual**2).sum())
    return float(covariance / np.sqrt(variances)) if variances > 0 else 0.0


def roc_auc(labels: Values, predictions: Values, probabilities: Floats) -> float:
    """Return the mean area under the ROC curves of each class or label against the rest.

    A class or label that no example has, or that all examples have, is left out. If none is left, the result is 0.5.
    """
    from sklearn.metrics import roc_auc_score  # This import takes longer than most commands need.

    columns = labels if labels.ndim == 2 else np.eye(probabilities.shape[1], dtype=int)[labels]
    if labels.ndim == 1 and probabilities.shape[1] == 2:  # The areas of both classes are equal.
        columns, probabilities = columns[:, 1:], probabilities[:, 1:]
    areas = [
        roc_auc_score(actual, probability)
        for actual, probability in zip(columns.T, probabilities.T, strict=True)
        if 0 < actual.sum() < len(actual)
    ]
    return float(np.mean(areas)) if areas else 0.5


def pearson(labels: Values, predictions: Values, *_: Any) -> float:
    """Return Pearson's correlation, or 0 if all labels or all predictions are equal."""
    if not (np.ptp(labels) and np.ptp(predictions)):
        return 0.0
    # Rounding errors would move a perfect correlation away from its bound.
    return round(float(np.corrcoef(labels, predictions)[0, 1]), 12)


def spearmanr(labels: Values, predictions: Values, *_: Any) -> float:
    """Return Pearson's correlation of the ranks."""
    from scipy.stats import rankdata  # Importing scipy.stats takes half a second.

    return pearson(rankdata(labels), rankdata(predictions))


def rmse(labels: Values, predictions: Values, *_: Any) -> float:
    return float(np.sqrt(np.square(labels - predictions).mean()))


_CLASSES: tuple[ProblemType, ...] = ("single_label_classification",)
_LABELS: tuple[ProblemType, ...] = ("multi_label_classification",)
_NUMBERS: tuple[ProblemType, ...] = ("regression",)

# To add a metric, write a function and add an entry. The keys are the names in scikit-learn or the package evaluate.
METRICS = {
    "accuracy": Metric(
        "accuracy", "proportion", _CLASSES + _LABELS, accuracy, "the proportion of examples predicted correctly"
    ),
    "balanced_accuracy": Metric(
        "balanced accuracy", "proportion", _CLASSES, balanced_accuracy, "the mean of the accuracy within each class"
    ),
    "f1": Metric(
        "F1", "proportion", _CLASSES, f1,
        "the harmonic mean of precision (the proportion of predictions of the positive class that are right) and "
        "recall (the proportion of its examples that are predicted correctly)", only_two_classes=True,
    ),
    "f1_macro": Metric(
        "macro F1", "proportion", _CLASSES + _LABELS, f1_macro,
        "the harmonic mean of precision and recall, averaged over the classes",
    ),
    "f1_micro": Metric(
        "micro F1", "proportion", _LABELS, f1_micro, "the harmonic mean of precision and recall over all labels"
    ),
    "matthews_correlation": Metric(
        "Matthews correlation", "correlation", _CLASSES, matthews_correlation,
        "the correlation of labels and predictions, which is 0 for guessing",
    ),
    "pearson": Metric(
        "Pearson correlation", "correlation", _NUMBERS, pearson, "the linear correlation of labels and predictions"
    ),
    "rmse": Metric("RMSE", "error", _NUMBERS, rmse, "the root of the mean squared error, in the units of the labels"),
    "roc_auc": Metric(
        "ROC AUC", "proportion", _CLASSES + _LABELS, roc_auc,
        "the probability that a random example of a class gets a higher score than a random example of another class, "
        "which is 50% for guessing", is_ranking=True,
    ),
    "spearmanr": Metric(
        "Spearman correlation", "correlation", _NUMBERS, spearmanr,
        "the correlation of the ranks of labels and predictions",
    ),
}  # fmt: skip
# The Trainer reports the loss with the metrics, and it may choose the epoch. `modeling.outputs.loss` computes it.
SCORES = METRICS | {"loss": Metric("loss", "error", (), lambda *_: np.nan, "")}


def applicable_metrics(task: Task) -> list[str]:
    """Return the names of all metrics that apply to a task."""
    return [
        name
        for name, metric in METRICS.items()
        if task.problem_type in metric.problem_types and (task.is_binary or not metric.only_two_classes)
    ]


def with_compared_metrics(task: Task, names: Sequence[str] | None) -> Task:
    """Return the task with the metrics of `evaluate.metrics`."""
    for name in names or ():
        require_choice("evaluate.metrics", name, applicable_metrics(task))
    return task if names is None else replace(task, metrics=list(dict.fromkeys(names)))


def with_selection_metric(task: Task, name: str | None) -> Task:
    """Return the task with `train.metric_for_best_model`."""
    if name is None:
        return task
    require_choice("train.metric_for_best_model", name, ["loss", *applicable_metrics(task)])
    metrics = task.metrics if name in ("loss", *task.metrics) else [*task.metrics, name]
    return replace(task, metric_for_best_model=name, metrics=metrics)


def scores(names: list[str], labels: Values, predictions: Values, probabilities: Any = None) -> dict[str, float]:
    """Compute the metrics with these names. See `Metric.compute` for the other arguments."""
    return {name: METRICS[name].compute(labels, predictions, probabilities) for name in names}


def is_defined(name: str, task: Task, labels: Values) -> bool:
    """Return whether the labels allow a perfect score. For example, F1 is always 0 if no example has class 1."""
    probabilities = np.eye(task.outputs)[labels] if task.is_single_label else labels
    perfect = 0 if METRICS[name].is_error else 1
    return bool(np.isclose(METRICS[name].compute(labels, labels, probabilities), perfect))
