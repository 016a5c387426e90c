"""Metrics: one plain function each, and one list for every kind of task. Also the losses and the baseline."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import ProblemType, Task
from pipeline.core.text import closest_match, percent, points

if TYPE_CHECKING:
    import evaluate

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]
# The labels or the predictions of n examples. Shape (n,): class numbers, or the numbers of a regression. With several
# labels per example: 0 or 1, shape (n, labels).
Values = NDArray[Any]

TaskType = Literal["binary", ProblemType]


@dataclass(frozen=True)
class Metric:
    """A score and how people read it.

    Attributes:
        title: its name in tables and sentences.
        scale: "proportion", from 0 to 1; "correlation", from -1 to 1; or "error", from 0, where less is better.
        task_types: the tasks that it applies to. With two classes, a task is "binary".
        compute: the score from the labels, the predictions (both as `Values`) and the probabilities, shape
            (n, outputs). A regression has no probabilities.
    """

    title: str
    scale: Literal["proportion", "correlation", "error"]
    task_types: tuple[TaskType, ...]
    compute: Callable[[Values, Values, Any], float]

    @property
    def sign(self) -> int:
        """1 if more is better, -1 if less is."""
        return -1 if self.scale == "error" else 1

    def format(self, value: float, digits: int = 1) -> str:
        """Format a value: proportions and correlations in percent, errors as they are."""
        return f"{value:.{digits + 2}f}" if self.scale == "error" else percent(value, digits)

    def format_difference(self, difference: float, digits: int = 1) -> str:
        """Format a difference with its sign: in points, or in the units of an error."""
        return f"{difference + 0.0:+.{digits + 2}f}" if self.scale == "error" else points(difference, digits)


def accuracy(labels: Values, predictions: Values, *_: Any) -> float:
    """The proportion of correct examples. With several labels per example, all of them must be correct."""
    return float(is_correct(labels, predictions).mean())


def is_correct(labels: Values, predictions: Values) -> NDArray[np.bool_]:
    """Whether each prediction equals the label, in all its parts. Shape (n,)."""
    correct: NDArray[np.bool_] = (labels == predictions).reshape(len(labels), -1).all(axis=1)
    return correct


def balanced_accuracy(labels: Values, predictions: Values, *_: Any) -> float:
    """The mean recall of the classes that occur."""
    correct, _predicted, actual = class_counts(labels, predictions)
    return float(np.mean(correct[actual > 0] / actual[actual > 0]))


def class_counts(labels: Values, predictions: Values, classes: int = 2) -> tuple[Ints, Ints, Ints]:
    """Count how often each class, or each label, is correctly predicted, predicted, and true. classes: the fewest."""
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
    """F1 of class 1. It is 0 if the class neither occurs nor is predicted."""
    correct, predicted, actual = class_counts(labels, predictions)
    return float(2 * correct[1] / max(predicted[1] + actual[1], 1))


def f1_macro(labels: Values, predictions: Values, *_: Any) -> float:
    """The mean F1 of the classes, or the labels, that occur or are predicted."""
    correct, predicted, actual = class_counts(labels, predictions)
    total = predicted + actual
    return float((2 * correct / np.maximum(total, 1)).sum() / max(np.count_nonzero(total), 1))


def f1_micro(labels: Values, predictions: Values, *_: Any) -> float:
    """F1 of all labels together."""
    correct, predicted, actual = class_counts(labels, predictions)
    return float(2 * correct.sum() / max(predicted.sum() + actual.sum(), 1))


def matthews_correlation(labels: Values, predictions: Values, *_: Any) -> float:
    """For any number of classes (Gorodkin 2004, equation 8). It is 0 if labels or predictions are all of one class."""
    correct, predicted, actual = (counts.astype(float) for counts in class_counts(labels, predictions))
    n = len(labels)
    covariance = n * correct.sum() - (predicted * actual).sum()
    variances = [n**2 - (counts**2).sum() for counts in (predicted, actual)]
    return float(covariance / np.sqrt(variances[0] * variances[1])) if min(variances) > 0 else 0.0


def roc_auc(labels: Values, predictions: Values, probabilities: Floats) -> float:
    """The area under the ROC curve of class 1, or its mean over classes or labels. It is 0.5 if none has a curve."""
    curves = [threshold_counts(positive, column) for positive, column in one_vs_rest(labels, probabilities)]
    areas = [np.trapezoid(tp, fp) / (tp[-1] * fp[-1]) for tp, fp, _ in curves if tp[-1] and fp[-1]]
    return float(np.mean(areas)) if areas else 0.5


def average_precision(labels: Values, predictions: Values, probabilities: Floats) -> float:
    """The area under the precision-recall curve of class 1, or its mean over the classes or labels that occur."""
    curves = [threshold_counts(positive, column) for positive, column in one_vs_rest(labels, probabilities)]
    areas = [(np.diff(tp) * tp[1:] / (tp + fp)[1:]).sum() / tp[-1] for tp, fp, _ in curves if tp[-1]]
    return float(np.mean(areas)) if areas else 0.0


def one_vs_rest(labels: Values, probabilities: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Yield each class or label, as 0 and 1, with its probability, each of shape (n,). With two classes, only 1."""
    if labels.ndim == 2:
        yield from zip(labels.T, probabilities.T, strict=True)
    elif probabilities.shape[1] == 2:
        yield labels, probabilities[:, 1]
    else:
        for number, probability in enumerate(probabilities.T):
            yield (labels == number).astype(int), probability


def threshold_counts(positive: Ints, probability: Floats) -> tuple[Ints, Ints, Floats]:
    """Count the true and the false positives at each threshold; examples are called positive from it on.

    positive, probability: shape (n,). Returns true positives, false positives and the thresholds: infinity, then each
    distinct probability, highest first.
    """
    order = np.argsort(-probability)
    last = np.append(np.flatnonzero(np.diff(probability[order])), len(order) - 1)  # of equal probabilities
    true_positives = np.append(0, np.cumsum(positive[order])[last])
    return true_positives, np.append(0, last + 1) - true_positives, np.append(np.inf, probability[order][last])


def pearson(labels: Values, predictions: Values, *_: Any) -> float:
    """Pearson's correlation. It is 0 if all labels, or all predictions, are equal."""
    if not (np.ptp(labels) and np.ptp(predictions)):
        return 0.0
    x, y = labels - labels.mean(), predictions - predictions.mean()
    correlation = (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())
    return float(np.clip(correlation, -1, 1))  # with few examples, rounding may go beyond the bounds


def spearmanr(labels: Values, predictions: Values, *_: Any) -> float:
    """Spearman's correlation: Pearson's, of the ranks."""
    return pearson(_ranks(labels), _ranks(predictions))


def _ranks(values: Values) -> Floats:
    """Rank the values from 1. Equal values share the mean of their ranks."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[position]
    return ranks


def rmse(labels: Values, predictions: Values, *_: Any) -> float:
    """The root of the mean squared error."""
    return float(np.sqrt(np.square(labels - predictions).mean()))


_CLASSES: tuple[TaskType, ...] = ("binary", "single_label_classification")
_CLASSES_OR_LABELS: tuple[TaskType, ...] = (*_CLASSES, "multi_label_classification")

# To add a metric, write a function and add an entry. Metrics have the names of scikit-learn or of the package evaluate.
METRICS = {
    "accuracy": Metric("accuracy", "proportion", _CLASSES_OR_LABELS, accuracy),
    "average_precision": Metric("average precision", "proportion", _CLASSES_OR_LABELS, average_precision),
    "balanced_accuracy": Metric("balanced accuracy", "proportion", _CLASSES, balanced_accuracy),
    "f1": Metric("F1", "proportion", ("binary",), f1),
    "f1_macro": Metric("macro F1", "proportion", _CLASSES_OR_LABELS, f1_macro),
    "f1_micro": Metric("micro F1", "proportion", ("multi_label_classification",), f1_micro),
    "matthews_correlation": Metric("Matthews correlation", "correlation", _CLASSES, matthews_correlation),
    "pearson": Metric("Pearson correlation", "correlation", ("regression",), pearson),
    "rmse": Metric("RMSE", "error", ("regression",), rmse),
    "roc_auc": Metric("ROC AUC", "proportion", _CLASSES_OR_LABELS, roc_auc),
    "spearmanr": Metric("Spearman correlation", "correlation", ("regression",), spearmanr),
}


def sign(name: str) -> int:
    """1 if more of a metric, or of the loss, is better, -1 if less is."""
    return -1 if name == "loss" else METRICS[name].sign


def title(name: str) -> str:
    """The name of a metric, or of the loss, for people."""
    return "loss" if name == "loss" else METRICS[name].title


def applicable_metrics(task: Task) -> list[str]:
    """The names of all metrics that apply to a task."""
    task_type = "binary" if task.binary else task.problem_type
    return [name for name, metric in METRICS.items() if task_type in metric.task_types]


def compared_by(task: Task, names: list[str] | None) -> Task:
    """The task with other metrics to compare models by, as in `evaluate.metrics`; None keeps its own.

    Raises:
        UserError: if there are none, or if one does not apply to the task.
    """
    if names is None:
        return task
    if not names:
        raise UserError("params.yaml: evaluate.metrics is empty. List at least one metric, or set it to null.")
    for name in names:
        _require_applicable("evaluate.metrics", name, applicable_metrics(task))
    return replace(task, metrics=list(dict.fromkeys(names)))


def choosing_by(task: Task, name: str | None) -> Task:
    """The task with another metric, or the loss, to choose the epoch by; None keeps its own.

    Raises:
        UserError: if the metric does not apply to the task.
    """
    if name is None:
        return task
    _require_applicable("train.metric_for_best_model", name, ["loss", *applicable_metrics(task)])
    metrics = task.metrics if name in ("loss", *task.metrics) else [*task.metrics, name]
    return replace(task, metric_for_best_model=name, metrics=metrics)


def require_known(names: list[str]) -> None:
    """Raise UserError if one of `evaluate.metrics` applies to no task. The stage evaluate knows which ones apply."""
    for name in names:
        _require_applicable("evaluate.metrics", name, list(METRICS))


def _require_applicable(key: str, name: str, applicable: list[str]) -> None:
    if name in applicable:
        return
    closest = closest_match(name, applicable)
    hint = f' Did you mean "{closest}"?' if closest else ""
    raise UserError(f'params.yaml: {key} for this task must be one of {", ".join(applicable)}, got "{name}".{hint}')


def scores(
    names: Iterable[str], labels: Values, predictions: Values, probabilities: Floats | None = None
) -> dict[str, float]:
    """Compute metrics by their names. See `Metric.compute` for the arguments.

    Raises:
        ValueError: if there are no labels.
    """
    if len(labels) == 0:
        raise ValueError("nothing to score: no labels")
    return {name: METRICS[name].compute(labels, predictions, probabilities) for name in names}


def by_title(evaluation: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[Metric, float]]:
    """The metrics in an evaluation.json with their values, by split and title, as "test F1"; test comes first."""
    return {
        f"{split} {metric.title}": (metric, evaluation[split][name])
        for split in sorted(evaluation)
        for name, metric in METRICS.items()
        if name in evaluation[split]
    }


def compute_metrics(task: Task, logits: Floats, labels: Values) -> dict[str, float]:
    """The task's metrics and the mean loss, for the Trainer or the course's loop. logits: shape (n, outputs)."""
    predictions, chances = answers(task.problem_type, logits)
    metrics = task_metric(task).compute(predictions=predictions, references=labels, probabilities=chances)
    return {**metrics, "loss": loss(task.problem_type, logits, labels)}


def task_metric(task: Task) -> "evaluate.Metric":
    """The task's metrics as an `evaluate.Metric`.

    It is not `evaluate.load("glue", "mrpc")`, which downloads a script from the Hub and runs it.
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


def answers(problem_type: ProblemType, logits: Floats) -> tuple[Values, Floats | None]:
    """The predictions and the probabilities, as `Metric.compute` takes them. logits: shape (n, outputs)."""
    chances = None if problem_type == "regression" else probabilities(problem_type, logits)
    return predicted(problem_type, logits), chances


def predicted(problem_type: ProblemType, logits: Floats) -> Values:
    """What a model predicts. logits: shape (n, outputs)."""
    if problem_type == "regression":
        return logits[:, 0].astype(np.float64)
    return logits.argmax(-1) if problem_type == "single_label_classification" else (logits > 0).astype(np.int64)


def probabilities(problem_type: ProblemType, logits: Floats) -> Floats:
    """The probability of each class, or of each label by itself. Shape (n, outputs), as `logits`.

    They are rounded to six places, so that scores do not depend on the last bits of `exp`.
    """
    single = problem_type == "single_label_classification"
    return np.round(np.exp(log_softmax(logits)) if single else 1 / (1 + np.exp(-logits)), 6)


def baseline(problem_type: ProblemType, labels: Values, outputs: int) -> tuple[Values, Floats | None]:
    """Predictions and probabilities of the best model that sees no text, as `Values` and of shape (n, outputs).

    It predicts the majority class (the last one, if several are as frequent) or the mean, always with the same
    probabilities: the proportions of the classes.
    """
    n = len(labels)
    if problem_type == "regression":
        return np.full_like(labels, labels.mean()), None
    if problem_type == "multi_label_classification":
        proportions = labels.mean(axis=0)
        prediction = (proportions >= 0.5).astype(labels.dtype)
    else:
        proportions = np.bincount(labels, minlength=outputs) / n
        prediction = labels.dtype.type(np.flatnonzero(proportions == proportions.max())[-1])
    return np.broadcast_to(prediction, labels.shape), np.broadcast_to(proportions, (n, outputs))


def loss(problem_type: ProblemType, logits: Floats, labels: Values) -> float:
    """Mean loss: cross-entropy in nats, for several labels the mean over the binary ones; or squared error.

    logits: shape (n, outputs). labels: as `Values`.
    """
    return float(np.mean(losses(problem_type, logits, labels)))


def losses(problem_type: ProblemType, logits: Floats, labels: Values) -> Floats:
    """The loss of each example, shape (n,); with several labels per example that of each label, shape (n, labels)."""
    logits = logits.astype(np.float64)
    if problem_type == "regression":
        return np.square(logits[:, 0] - labels)
    if problem_type == "multi_label_classification":
        label_losses: Floats = np.logaddexp(0, logits) - labels * logits
        return label_losses
    return -log_softmax(logits)[np.arange(len(labels)), labels]


def log_softmax(logits: Floats) -> Floats:
    """Log softmax over the last axis, in float64, without overflow."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    normalized: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalized
