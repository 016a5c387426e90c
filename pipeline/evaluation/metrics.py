"""Metrics, each a plain function with an entry in the list `METRICS`, and the losses."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from pipeline.core.task import ProblemType, Task
from pipeline.core.text import percent, points, require_choice

if TYPE_CHECKING:
    import evaluate

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]
# The labels or the predictions of n examples. Shape (n,) for class numbers and for the numbers of a regression, and
# shape (n, labels) with 0 or 1 if an example can have several labels.
Values = NDArray[Any]
# The outputs of the model for n examples, shape (n, outputs).
Logits = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Score:
    """How to show a metric or the loss to people.

    Attributes:
        title: The name in tables and sentences.
        scale: "proportion" (0 to 1), "correlation" (-1 to 1), or "error" (0 or more, where less is better).
        is_ranking: Whether the score depends only on the order of the probabilities, not on the predictions.
    """

    title: str
    scale: Literal["proportion", "correlation", "error"]
    is_ranking: bool = field(default=False, kw_only=True)

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
    """Format a value with some digits after the decimal point, or a value below 0.1 with as many significant digits.

    The labels of a regression, and so its errors, may be tiny.
    """
    notation = "g" if 0 < abs(value) < 0.1 else "f"
    return f"{value:{sign}z.{digits}{notation}}"


@dataclass(frozen=True)
class Metric(Score):
    """A score of the predictions.

    Attributes:
        problem_types: The types of tasks that the metric applies to.
        compute: Compute the score from the labels, the predictions (both as `Values`), and the probabilities, shape
            (n, outputs). A regression has no probabilities.
        only_two_classes: Whether the metric applies only to tasks with exactly two classes.
        meaning: A phrase that follows "is", for readers of the report and the model card.
    """

    problem_types: tuple[ProblemType, ...]
    compute: Callable[[Values, Values, Any], float]
    only_two_classes: bool = False
    meaning: str = field(kw_only=True)


def accuracy(labels: Values, predictions: Values, *_: Any) -> float:
    """Return the proportion of correct examples. With several labels per example, all of them must be correct."""
    return float(is_correct(labels, predictions).mean())


def is_correct(labels: Values, predictions: Values) -> NDArray[np.bool_]:
    """Return whether each prediction equals the label, shape (n,). If there are several labels, all must be equal."""
    correct: NDArray[np.bool_] = (labels == predictions).reshape(len(labels), -1).all(axis=1)
    return correct


def balanced_accuracy(labels: Values, predictions: Values, *_: Any) -> float:
    """Return the mean recall over the classes that occur in the labels."""
    correct, _predicted, actual = class_counts(labels, predictions)
    return float(np.mean(correct[actual > 0] / actual[actual > 0]))


def class_counts(labels: Values, predictions: Values, classes: int = 2) -> tuple[Ints, Ints, Ints]:
    """Count the correct predictions, all predictions, and the actual examples of each class or label.

    Args:
        classes: The minimum number of classes to count; ignored if an example can have several labels.
    """
    if labels.ndim == 2:
        return (labels * predictions).sum(axis=0), predictions.sum(axis=0), labels.sum(axis=0)
    classes = max(classes, int(labels.max()) + 1, int(predictions.max()) + 1)
    correct = labels[labels == predictions]
    return (
        np.bincount(correct, minlength=classes),
        np.bincount(predictions, minlength=classes),
        np.bincount(labels, minlength=classes),
    )


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
    """Return the area under the ROC curve of class 1.

    With more than two classes, or several labels per example, return the mean over the classes or labels that have both
    positive and negative examples. The result is 0.5 if none has both.
    """
    curves = [threshold_counts(positive, column) for positive, column in one_vs_rest(labels, probabilities)]
    areas = [np.trapezoid(tp, fp) / (tp[-1] * fp[-1]) for tp, fp, _ in curves if tp[-1] and fp[-1]]
    return float(np.mean(areas)) if areas else 0.5


def average_precision(labels: Values, predictions: Values, probabilities: Floats) -> float:
    """Return the area under the precision-recall curve of class 1.

    With more than two classes, or several labels per example, return the mean over the classes or labels that occur.
    """
    curves = [threshold_counts(positive, column) for positive, column in one_vs_rest(labels, probabilities)]
    areas = [(np.diff(tp) * tp[1:] / (tp + fp)[1:]).sum() / tp[-1] for tp, fp, _ in curves if tp[-1]]
    return float(np.mean(areas)) if areas else 0.0


def one_vs_rest(labels: Values, probabilities: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Yield the labels (0 or 1) and the probabilities of each class or label against the rest, both of shape (n,).

    With two classes, yield only class 1.
    """
    if labels.ndim == 2:
        yield from zip(labels.T, probabilities.T, strict=True)
    elif probabilities.shape[1] == 2:
        yield labels, probabilities[:, 1]
    else:
        for number, probability in enumerate(probabilities.T):
            yield (labels == number).astype(int), probability


def threshold_counts(positive: Ints, probability: Floats) -> tuple[Ints, Ints, Floats]:
    """Count the true and false positives at each threshold, if examples at or above the threshold are called positive.

    Args:
        positive: Shape (n,), 0 or 1.
        probability: Shape (n,).

    Returns:
        The true positives, the false positives and the thresholds. The first threshold is infinity, and the others are
        the distinct probabilities in descending order.
    """
    order = np.argsort(-probability)
    last = np.append(np.flatnonzero(np.diff(probability[order])), len(order) - 1)  # the last of equal probabilities
    true_positives = np.append(0, np.cumsum(positive[order])[last])
    return true_positives, np.append(0, last + 1) - true_positives, np.append(np.inf, probability[order][last])


def pearson(labels: Values, predictions: Values, *_: Any) -> float:
    """Return Pearson's correlation. It is 0 if all labels or all predictions are equal."""
    if not (np.ptp(labels) and np.ptp(predictions)):
        return 0.0
    x, y = labels - labels.mean(), predictions - predictions.mean()
    correlation = (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())
    return round(float(correlation), 12)  # Rounding errors would move a perfect correlation away from its bound.


def spearmanr(labels: Values, predictions: Values, *_: Any) -> float:
    """Return Spearman's correlation, which is Pearson's correlation of the ranks."""
    return pearson(_ranks(labels), _ranks(predictions))


def _ranks(values: Values) -> Floats:
    """Rank the values from 1. Equal values all get the mean of their ranks."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[position]
    return ranks


def rmse(labels: Values, predictions: Values, *_: Any) -> float:
    """Return the root of the mean squared error."""
    return float(np.sqrt(np.square(labels - predictions).mean()))


_CLASSES: tuple[ProblemType, ...] = ("single_label_classification",)
_LABELS: tuple[ProblemType, ...] = ("multi_label_classification",)
_NUMBERS: tuple[ProblemType, ...] = ("regression",)

# To add a metric, write a function and add an entry. The keys are the names in scikit-learn or the package evaluate.
METRICS = {
    "accuracy": Metric(
        "accuracy", "proportion", _CLASSES + _LABELS, accuracy,
        meaning="the proportion of examples that are predicted correctly",
    ),
    "average_precision": Metric(
        "average precision", "proportion", _CLASSES + _LABELS, average_precision, is_ranking=True,
        meaning="the area under the curve of precision against recall",
    ),
    "balanced_accuracy": Metric(
        "balanced accuracy", "proportion", _CLASSES, balanced_accuracy,
        meaning="recall (the proportion of a class's examples that are found), averaged over the classes",
    ),
    "f1": Metric(
        "F1", "proportion", _CLASSES, f1, only_two_classes=True,
        meaning="the harmonic mean of precision (the proportion of predictions of the positive class that are right) "
        "and recall (the proportion of its examples that are found)",
    ),
    "f1_macro": Metric(
        "macro F1", "proportion", _CLASSES + _LABELS, f1_macro,
        meaning="the mean over the classes of F1, the harmonic mean of precision and recall",
    ),
    "f1_micro": Metric(
        "micro F1", "proportion", _LABELS, f1_micro,
        meaning="the harmonic mean of precision (the proportion of predicted labels that are right) and recall (the "
        "proportion of true labels that are predicted), over all labels together",
    ),
    "matthews_correlation": Metric(
        "Matthews correlation", "correlation", _CLASSES, matthews_correlation,
        meaning="the correlation of labels and predictions, which is 0 for guessing",
    ),
    "pearson": Metric(
        "Pearson correlation", "correlation", _NUMBERS, pearson,
        meaning="the linear correlation of labels and predictions",
    ),
    "rmse": Metric(
        "RMSE", "error", _NUMBERS, rmse,
        meaning="the root of the mean squared error, in the units of the labels (lower is better)",
    ),
    "roc_auc": Metric(
        "ROC AUC", "proportion", _CLASSES + _LABELS, roc_auc, is_ranking=True,
        meaning="the probability that a random example of a class gets a higher score than a random example of another "
        "class, which is 50% for guessing",
    ),
    "spearmanr": Metric(
        "Spearman correlation", "correlation", _NUMBERS, spearmanr,
        meaning="the correlation of the ranks of labels and predictions",
    ),
}  # fmt: skip
SCORES: dict[str, Score] = {**METRICS, "loss": Score("loss", "error")}


def applicable_metrics(task: Task) -> list[str]:
    """Return the names of all metrics that apply to a task."""
    return [
        name
        for name, metric in METRICS.items()
        if task.problem_type in metric.problem_types and (task.binary or not metric.only_two_classes)
    ]


def with_compared_metrics(task: Task, names: list[str] | None) -> Task:
    """Return the task with the metrics of `evaluate.metrics`, by which models are compared.

    Args:
        names: The value of `evaluate.metrics`. None leaves the task as it is.

    Raises:
        UserError: A metric does not apply to the task.
    """
    if names is None:
        return task
    for name in names:
        require_choice("evaluate.metrics", name, applicable_metrics(task))
    return replace(task, metrics=list(dict.fromkeys(names)))


def with_selection_metric(task: Task, name: str | None) -> Task:
    """Return the task with the metric of `train.metric_for_best_model`, which chooses the epoch.

    Args:
        name: The name of a metric, or "loss". None leaves the task as it is.

    Raises:
        UserError: The metric does not apply to the task.
    """
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
    metric = METRICS[name]
    perfect = 0 if metric.is_error else 1
    return bool(np.isclose(metric.compute(labels, labels, probabilities), perfect))


def compute_metrics(task: Task, logits: Logits, labels: Values) -> dict[str, float]:
    """Return the task's metrics and the mean loss, for the Trainer or the course's loop."""
    metrics = task_metric(task).compute(
        predictions=logits_to_predictions(task.problem_type, logits),
        references=labels,
        probabilities=logits_to_probabilities(task.problem_type, logits),
    )
    return {**metrics, "loss": loss(task.problem_type, logits, labels)}


def task_metric(task: Task) -> "evaluate.Metric":
    """Return the task's metrics as an `evaluate.Metric`.

    This replaces `evaluate.load("glue", "mrpc")`, which would download a script from the Hub and run it.
    """
    import datasets
    import evaluate

    class TaskMetric(evaluate.Metric):  # type: ignore[misc]
        def _info(self) -> evaluate.MetricInfo:
            value = datasets.Value("float64" if task.problem_type == "regression" else "int64")
            example = datasets.List(value) if task.problem_type == "multi_label_classification" else value
            return evaluate.MetricInfo(
                description=f"The metrics of {task.name}: {', '.join(task.metrics)}.",
                citation="",
                inputs_description="predictions, references: class numbers, 0 or 1 for each label, or numbers",
                features=datasets.Features(predictions=example, references=example),
            )

        def _compute(self, predictions: Values, references: Values, probabilities: Floats | None) -> dict[str, float]:
            return scores(task.metrics, np.asarray(references), np.asarray(predictions), probabilities)

    return TaskMetric(keep_in_memory=True)


def logits_to_predictions(problem_type: ProblemType, logits: Logits) -> Values:
    """Return the class numbers, the 0 or 1 for each label, or the numbers of a regression."""
    if problem_type == "regression":
        return logits[:, 0].astype(np.float64)
    if problem_type == "multi_label_classification":
        return (logits > 0).astype(np.int64)
    classes: Ints = logits.argmax(-1)
    return classes


# Probabilities and the threshold are written with this many decimals. Scores are computed before this rounding.
PROBABILITY_DECIMALS = 6


def logits_to_probabilities(problem_type: ProblemType, logits: Logits) -> Floats | None:
    """Return the probability of each class, or of each label independently, with the same shape as `logits`.

    The probabilities are rounded to 12 decimals, so that scores do not depend on the last bits of `exp`. With fewer
    decimals, confident predictions would be ties, which ROC AUC counts as half. A regression has none.
    """
    if problem_type == "regression":
        return None
    logits = logits.astype(np.float64)
    is_multi_label = problem_type == "multi_label_classification"
    probabilities: Floats = expit(logits) if is_multi_label else softmax(logits, axis=-1)
    return np.round(probabilities, 12)


def loss(problem_type: ProblemType, logits: Logits, labels: Values) -> float:
    """Return the mean loss: cross-entropy in nats, or the squared error of a regression.

    With several labels per example, it is the binary cross-entropy, averaged over the labels too.
    """
    return float(np.mean(losses(problem_type, logits, labels)))


def losses(problem_type: ProblemType, logits: Logits, labels: Values) -> Floats:
    """Return the loss of each example, shape (n,), or of each of its labels, shape (n, labels)."""
    logits = logits.astype(np.float64)
    if problem_type == "regression":
        return np.square(logits[:, 0] - labels)
    if problem_type == "multi_label_classification":
        label_losses: Floats = np.logaddexp(0, logits) - labels * logits
        return label_losses
    class_losses: Floats = -log_softmax(logits, axis=-1)
    return class_losses[np.arange(len(labels)), labels]
