"""Metrics, each a function with an entry in the dictionary `METRICS`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.core.task import ProblemType, Task
from pipeline.core.text import percent, points, require_choice

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]
# The labels or the predictions of n examples. Shape (n,) for class numbers and for the numbers of a regression, and
# shape (n, labels) with 0 or 1 if an example can have several labels.
Values = NDArray[Any]


@dataclass(frozen=True)
class Metric:
    """A score of the predictions, and how to show it to people.

    Attributes:
        title: The name in tables and sentences.
        scale: "proportion" (0 to 1), "correlation" (-1 to 1), or "error" (0 or more, where less is better).
        compute: Compute the score from the labels, the predictions (both as `Values`), and the probabilities, shape
            (n, outputs). A regression has no probabilities.
        problem_types: The types of tasks that the metric applies to.
        meaning: A phrase that follows "is", for readers of the report and the model card.
        only_two_classes: Whether the metric applies only to tasks with exactly two classes.
        is_ranking: Whether the score depends only on the order of the probabilities, not on the predictions.
    """

    title: str
    scale: Literal["proportion", "correlation", "error"]
    compute: Callable[[Values, Values, Any], float]
    problem_types: tuple[ProblemType, ...]
    meaning: str
    only_two_classes: bool = False
    is_ranking: bool = False

    @property
    def is_error(self) -> bool:
        """Whether lower values are better. Such a score has its own units, and is not in percent."""
        return self.scale == "error"

    @property
    def sign(self) -> int:
        """1 if higher values are better, and -1 if lower values are better."""
        return -1 if self.is_error else 1

    def format(self, value: float, digits: int = 1) -> str:
        """Format a proportion or a correlation in percent, and an error in its own units."""
        return _in_own_units(value, digits + 2) if self.is_error else percent(value, digits)

    def format_for_log(self, value: float) -> str:
        """Format a score for a log line, which shows proportions and correlations as they are, like the Trainer."""
        return self.format(value, 2) if self.is_error else f"{value:.4f}"

    def format_difference(self, difference: float, digits: int = 1) -> str:
        """Format a difference with its sign, in percentage points, or in the units of an error."""
        return _in_own_units(difference, digits + 2, sign="+") if self.is_error else points(difference, digits)


def _in_own_units(value: float, digits: int, sign: str = "") -> str:
    """Format a value with some digits after the decimal point, or a value below 0.1 with as many significant digits."""
    return f"{value:{sign}z.{digits}{'g' if 0 < abs(value) < 0.1 else 'f'}}"


# An interval needs a metric 50 times, and a comparison thousands of times. So the metrics of counts are plain numpy,
# which takes a hundredth of the time that scikit-learn needs for a few thousand examples.


def accuracy(labels: Values, predictions: Values, *_: Any) -> float:
    return float(is_correct(labels, predictions).mean())


def is_correct(labels: Values, predictions: Values) -> NDArray[np.bool_]:
    """Return whether each prediction equals the label, shape (n,). If there are several labels, all must be equal."""
    correct: NDArray[np.bool_] = (labels == predictions).reshape(len(labels), -1).all(axis=1)
    return correct


def class_counts(labels: Values, predictions: Values) -> tuple[Ints, Ints, Ints]:
    """Count the correct predictions, all predictions, and the actual examples of each class or label."""
    if labels.ndim == 2:
        return (labels * predictions).sum(axis=0), predictions.sum(axis=0), labels.sum(axis=0)
    classes = max(2, int(labels.max()) + 1, int(predictions.max()) + 1)
    correct, predicted, actual = (
        np.bincount(values, minlength=classes) for values in (labels[labels == predictions], predictions, labels)
    )
    return correct, predicted, actual


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
    """Return the Matthews correlation for any number of classes (Gorodkin 2004, equation 8).

    It is 0 if all labels, or all predictions, are the same class.
    """
    correct, predicted, actual = (counts.astype(float) for counts in class_counts(labels, predictions))
    n = len(labels)
    covariance = n * correct.sum() - (predicted * actual).sum()
    variances = [n**2 - (counts**2).sum() for counts in (predicted, actual)]
    return float(covariance / np.sqrt(variances[0] * variances[1])) if min(variances) > 0 else 0.0


def roc_auc(labels: Values, predictions: Values, probabilities: Floats) -> float:
    """Return the mean area under the ROC curves of `_columns_with_both`, or 0.5 if there are none."""
    from sklearn.metrics import roc_auc_score  # This import takes longer than most commands need.

    areas = [roc_auc_score(*column) for column in _columns_with_both(labels, probabilities)]
    return float(np.mean(areas)) if areas else 0.5


def average_precision(labels: Values, predictions: Values, probabilities: Floats) -> float:
    """Return the mean area under the precision-recall curves of `_columns_with_both`, or 0 if there are none."""
    from sklearn.metrics import average_precision_score

    areas = [average_precision_score(*column) for column in _columns_with_both(labels, probabilities)]
    # Rounding errors would move a perfect score past its bound.
    return round(float(np.mean(areas)), 12) if areas else 0.0


def _columns_with_both(labels: Values, probabilities: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Yield 0 or 1 and the probability of each example, for each class or label that only some examples have.

    With two classes, yield only class 1. With more classes, each of them is scored against the rest.
    """
    columns = labels if labels.ndim == 2 else np.eye(probabilities.shape[1], dtype=int)[labels]
    first = 1 if labels.ndim == 1 and probabilities.shape[1] == 2 else 0
    for actual, probability in zip(columns.T[first:], probabilities.T[first:], strict=True):
        if 0 < actual.sum() < len(actual):
            yield actual, probability


def pearson(labels: Values, predictions: Values, *_: Any) -> float:
    """Return Pearson's correlation. It is 0 if all labels or all predictions are equal."""
    if not (np.ptp(labels) and np.ptp(predictions)):
        return 0.0
    # Rounding errors would move a perfect correlation away from its bound.
    return round(float(np.corrcoef(labels, predictions)[0, 1]), 12)


def spearmanr(labels: Values, predictions: Values, *_: Any) -> float:
    """Return Spearman's correlation, which is Pearson's correlation of the ranks."""
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
        "accuracy", "proportion", accuracy, _CLASSES + _LABELS,
        "the proportion of examples that are predicted correctly",
    ),
    "average_precision": Metric(
        "average precision", "proportion", average_precision, _CLASSES + _LABELS,
        "the area under the curve of precision against recall", is_ranking=True,
    ),
    "balanced_accuracy": Metric(
        "balanced accuracy", "proportion", balanced_accuracy, _CLASSES,
        "the proportion of a class's examples that are predicted correctly, averaged over the classes",
    ),
    "f1": Metric(
        "F1", "proportion", f1, _CLASSES,
        "the harmonic mean of precision (the proportion of predictions of the positive class that are right) and "
        "recall (the proportion of its examples that are predicted correctly)", only_two_classes=True,
    ),
    "f1_macro": Metric(
        "macro F1", "proportion", f1_macro, _CLASSES + _LABELS,
        "the mean over the classes of F1, the harmonic mean of precision and recall",
    ),
    "f1_micro": Metric(
        "micro F1", "proportion", f1_micro, _LABELS,
        "the harmonic mean of precision (the proportion of predicted labels that are right) and recall (the proportion "
        "of true labels that are predicted), over all labels together",
    ),
    "matthews_correlation": Metric(
        "Matthews correlation", "correlation", matthews_correlation, _CLASSES,
        "the correlation of labels and predictions, which is 0 for guessing",
    ),
    "pearson": Metric(
        "Pearson correlation", "correlation", pearson, _NUMBERS, "the linear correlation of labels and predictions"
    ),
    "rmse": Metric("RMSE", "error", rmse, _NUMBERS, "the root of the mean squared error, in the units of the labels"),
    "roc_auc": Metric(
        "ROC AUC", "proportion", roc_auc, _CLASSES + _LABELS,
        "the probability that a random example of a class gets a higher score than a random example of another class, "
        "which is 50% for guessing", is_ranking=True,
    ),
    "spearmanr": Metric(
        "Spearman correlation", "correlation", spearmanr, _NUMBERS,
        "the correlation of the ranks of labels and predictions",
    ),
}  # fmt: skip
# The Trainer reports the loss with the metrics, and it may choose the epoch. `modeling.outputs.loss` computes it.
SCORES = METRICS | {"loss": Metric("loss", "error", lambda *_: np.nan, (), "")}


def applicable_metrics(task: Task) -> list[str]:
    """Return the names of all metrics that apply to a task."""
    return [
        name
        for name, metric in METRICS.items()
        if task.problem_type in metric.problem_types and (task.binary or not metric.only_two_classes)
    ]


def with_compared_metrics(task: Task, names: list[str] | None) -> Task:
    """Return the task with the metrics of `evaluate.metrics`. Raises UserError if one of them does not apply."""
    for name in names or ():
        require_choice("evaluate.metrics", name, applicable_metrics(task))
    return task if names is None else replace(task, metrics=list(dict.fromkeys(names)))


def with_selection_metric(task: Task, name: str | None) -> Task:
    """Return the task with `train.metric_for_best_model`. Raises UserError if the metric does not apply."""
    if name is None:
        return task
    require_choice("train.metric_for_best_model", name, ["loss", *applicable_metrics(task)])
    metrics = task.metrics if name in ("loss", *task.metrics) else [*task.metrics, name]
    return replace(task, metric_for_best_model=name, metrics=metrics)


def scores(
    names: Iterable[str], labels: Values, predictions: Values, probabilities: Floats | None = None
) -> dict[str, float]:
    """Compute the metrics with these names. See `Metric.compute` for the other arguments."""
    return {name: METRICS[name].compute(labels, predictions, probabilities) for name in names}


def is_defined(name: str, task: Task, labels: Values) -> bool:
    """Return whether the labels allow a perfect score. For example, F1 is always 0 if no example has class 1."""
    probabilities = None
    if task.problem_type != "regression":
        probabilities = labels if labels.ndim == 2 else np.eye(task.outputs)[labels]
    perfect = 0 if METRICS[name].is_error else 1
    return bool(np.isclose(METRICS[name].compute(labels, labels, probabilities), perfect))
