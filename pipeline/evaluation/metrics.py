"""Scores as plain functions over arrays, and the `evaluate.Metric` that wraps them for the Trainer."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import ProblemType, Task
from pipeline.core.text import percent, points

if TYPE_CHECKING:
    import evaluate

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]
# What is predicted of n examples: classes, shape (n,); of several labels each, 0 or 1, shape (n, labels); or numbers,
# shape (n,).
Values = NDArray[Any]
# One row per example: an array, or a scipy.sparse.csr_array if most numbers are 0, as with many classes.
Statistics = Any

# Arrays of rows times classes are computed in blocks of this many numbers, because all rows at once may not fit into
# memory. A block, a megabyte, also fits into the cache of a CPU.
_BLOCK = 2**17


@dataclass(frozen=True)
class Metric:
    """A score that is a function of sums over the examples; so its value without one of them is as quickly known.

    title: for people. kind: a share, from 0 to 1; a correlation, from -1 to 1; or an error, 0 at best. of: the kinds of
    task that it is for, of two classes "binary".
    statistics: what each example adds to the sums, from labels and predictions; shape (n, sums).
    of_sums: the score, from such sums in the last axis.
    """

    title: str
    kind: Literal["share", "correlation", "error"]
    of: tuple[Literal["binary", ProblemType], ...]
    statistics: Callable[[Values, Values], Statistics]
    of_sums: Callable[[Floats], Floats]

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return -1 if self.kind == "error" else 1

    def shown(self, value: float, digits: int = 1) -> str:
        """A value as people read it: shares and correlations in percent."""
        return f"{value:.{digits + 2}f}" if self.kind == "error" else percent(value, digits)

    def shown_difference(self, difference: float, digits: int = 1) -> str:
        """A difference with its sign: of shares and correlations in points."""
        return f"{difference + 0.0:+.{digits + 2}f}" if self.kind == "error" else points(difference, digits)

    def score(self, labels: Values, predictions: Values) -> float:
        """Raises ValueError where there is nothing to score."""
        if len(labels) == 0:
            raise ValueError("nothing to score: no labels")
        return float(self.of_sums(self.statistics(labels, predictions).sum(axis=0)))

    def left_out(self, labels: Values, predictions: Values) -> Floats:
        """The score without each example, shape (n,)."""
        statistics = self.statistics(labels, predictions)
        return self.changed(statistics.sum(axis=0), -statistics)

    def changed(self, sums: Floats, changes: Statistics) -> Floats:
        """The score after each row of `changes` is added to the sums, one row at a time. Shape (n,)."""
        scores = []
        for rows in _blocks(changes.shape[0], sums.size):
            block = changes[rows]
            scores.append(self.of_sums(sums + (block if isinstance(block, np.ndarray) else block.toarray())))
        return np.concatenate(scores)


def _blocks(n: int, width: int) -> Iterator[slice]:
    """Slices of n rows with `width` numbers each, of about _BLOCK numbers."""
    rows = max(1, _BLOCK // width)
    return (slice(start, start + rows) for start in range(0, n, rows))


def _hits(labels: Values, predictions: Values) -> Floats:
    """Shape (n, 2): whether the prediction is the label, in all its parts; and 1."""
    right = (labels == predictions).reshape(len(labels), -1).all(axis=1)
    return np.stack([right, np.ones(len(right))], axis=1)


def _by_class(labels: Values, predictions: Values) -> Statistics:
    """Sparse, shape (n, 3 * classes): whether each class is rightly predicted, predicted, and the label."""
    from scipy.sparse import csr_array, hstack

    if labels.ndim == 1:
        n, classes = len(labels), int(max(labels.max(initial=1), predictions.max(initial=1))) + 1
        labels, predictions = (
            csr_array((np.ones(n), values, np.arange(n + 1)), shape=(n, classes)) for values in (labels, predictions)
        )
    actual, predicted = csr_array(labels), csr_array(predictions)
    return hstack([actual.multiply(predicted), predicted, actual], format="csr", dtype=float)


def _class_counts(sums: Floats) -> Floats:
    """Sums of `_by_class` as three counts of each class. Shape (3, ..., classes)."""
    return np.moveaxis(sums.reshape(*sums.shape[:-1], 3, -1), -2, 0)


def _of_class_1(labels: Values, predictions: Values) -> Floats:
    """Shape (n, 3): whether class 1 is rightly predicted, predicted, and the label."""
    actual, predicted = labels == 1, predictions == 1
    return np.stack([actual & predicted, predicted, actual], axis=1).astype(float)


def _over_labels(labels: Values, predictions: Values) -> Floats:
    """Shape (n, 3): how many labels of each example are rightly predicted, predicted, and true."""
    right = labels * predictions
    return np.stack([values.sum(axis=1) for values in (right, predictions, labels)], axis=1).astype(float)


def _moments(labels: Values, predictions: Values) -> Floats:
    """Shape (n, 6): 1, x, y, xx, yy and xy, centred."""
    # Of equal numbers exactly 0, which their mean, rounded, need not give.
    x, y = (values - values.mean() if np.ptp(values) else 0.0 * values for values in (labels, predictions))
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)


def _squared_errors(labels: Values, predictions: Values) -> Floats:
    return np.stack([np.square(labels - predictions), np.ones(len(labels))], axis=1)


def _mean(sums: Floats) -> Floats:
    mean: Floats = sums[..., 0] / sums[..., 1]
    return mean


def _f1(sums: Floats) -> Floats:
    """0 where neither a label nor a prediction is of the class."""
    right, predicted, actual = np.moveaxis(sums, -1, 0)
    f1: Floats = 2 * right / np.maximum(predicted + actual, 1)
    return f1


def _f1_macro(sums: Floats) -> Floats:
    """The mean F1 of the classes that are a label or a prediction."""
    right, predicted, actual = _class_counts(sums)
    total = predicted + actual
    present = np.count_nonzero(total, axis=-1)
    mean: Floats = (2 * right / np.maximum(total, 1)).sum(axis=-1) / np.maximum(present, 1)
    return mean


def _matthews(sums: Floats) -> Floats:
    """For any number of classes (Gorodkin 2004, equation 8); 0 where labels, or predictions, are of one class."""
    right, predicted, actual = _class_counts(sums)
    n = actual.sum(axis=-1)
    covariance = right.sum(axis=-1) * n - (predicted * actual).sum(axis=-1)
    variances = [n**2 - np.square(of).sum(axis=-1) for of in (predicted, actual)]
    return _divided(covariance, np.sqrt(variances[0] * variances[1]))


def _pearson(sums: Floats) -> Floats:
    """0 where all labels, or all predictions, are equal."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    variances = (n * xx - x * x) * (n * yy - y * y)
    return _divided(n * xy - x * y, np.sqrt(np.maximum(variances, 0)))


def _divided(value: Floats, by: Floats) -> Floats:
    found: Floats = np.divide(value, by, out=np.zeros_like(value), where=by > 0)
    return np.clip(found, -1, 1)  # of few examples, rounding puts a correlation beyond its bounds


def _rank_moments(labels: Values, predictions: Values) -> Floats:
    return _moments(_ranks(labels), _ranks(predictions))


def _ranks(values: Values) -> Floats:
    """Ranks from 1; equal values have the mean of theirs. Shape (n,)."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks


class _Spearman(Metric):
    """Not a function of sums: without an example, the ranks of those above it change too."""

    def left_out(self, labels: Values, predictions: Values) -> Floats:
        """In time that grows as n log(n)^2.

        Without example i, the rank of example j falls by a_ij, which is 1 where j ranks above i, 1/2 where they are
        equal, and 0 below: (1 + s_ij) / 2, with s_ij the sign of the difference. So the sums over j of the squares and
        products of the new ranks follow from sums of the old ones over all j above i, and from that of s_ij s'_ij.
        """
        n = len(labels)
        # Ranks less the mean of those that are left, n / 2: small numbers, so that of equal ones exactly 0 is left.
        x, y = (_ranks(values) - n / 2 for values in (labels, predictions))
        signs = sum(
            p * q * _smaller_in_both((p * 2 * x).astype(int), (q * 2 * y).astype(int)) for p in (1, -1) for q in (1, -1)
        )
        ones = np.ones(n)
        falls = (2 * (_above(x, ones) + _above(y, ones)) - n + signs) / 4  # the sum of a_ij a'_ij
        products = [
            (of * other).sum() - _above(of, other) - _above(other, of) + fallen - (of - 1 / 2) * (other - 1 / 2)
            for of, other, fallen in (
                (x, x, _above(x, ones) - _equal(x) / 4),
                (y, y, _above(y, ones) - _equal(y) / 4),
                (x, y, falls),
            )
        ]
        return self.of_sums(np.stack([n - ones, 0 * x, 0 * x, *products], axis=1))


def _above(of: Floats, weights: Floats) -> Floats:
    """Of each value, the sum of the weights of larger ones, and half of those of equal ones. Shape (n,)."""
    _, which = np.unique(of, return_inverse=True)
    sums = np.bincount(which, weights)
    above: Floats = (sums.sum() - np.cumsum(sums) + sums / 2)[which]
    return above


def _equal(of: Floats) -> Ints:
    """Of each value, how many are equal to it, itself too. Shape (n,)."""
    _, which, counts = np.unique(of, return_inverse=True, return_counts=True)
    equal: Ints = counts[which]
    return equal


def _smaller_in_both(x: Ints, y: Ints) -> Ints:
    """Of each of n pairs (x, y), how many others are smaller in both. Shape (n,)."""
    order = np.lexsort((-y, x))  # of equal x the largest y first: what is smaller in y and comes before is smaller in x
    ordered = (y - y.min())[order]
    found = np.zeros_like(ordered)
    for bit in range(int(ordered.max()).bit_length()):
        # A number is smaller than another if they agree above a bit, where it has a 0 and the other a 1.
        upper = ordered >> bit + 1
        at = np.argsort(upper, kind="stable")
        of_group, one = upper[at], ordered[at] >> bit & 1
        zeros = np.append(0, np.cumsum(1 - one))
        found[at] += one * (zeros[:-1] - zeros[np.searchsorted(of_group, of_group)])
    counts: Ints = np.empty_like(found)
    counts[order] = found
    return counts


_SINGLE: tuple[Literal["binary", ProblemType], ...] = ("binary", "single_label_classification")
_SEVERAL: Literal["multi_label_classification"] = "multi_label_classification"

# Under the names of the package `evaluate`. Where an example has several labels, accuracy is that of all of them.
METRICS = {
    "accuracy": Metric("accuracy", "share", (*_SINGLE, _SEVERAL), _hits, _mean),
    "f1": Metric("F1", "share", ("binary",), _of_class_1, _f1),
    "f1_macro": Metric("macro F1", "share", (*_SINGLE, _SEVERAL), _by_class, _f1_macro),
    "f1_micro": Metric("micro F1", "share", (_SEVERAL,), _over_labels, _f1),
    "matthews_correlation": Metric("Matthews correlation", "correlation", _SINGLE, _by_class, _matthews),
    "pearson": Metric("Pearson correlation", "correlation", ("regression",), _moments, _pearson),
    "rmse": Metric("RMSE", "error", ("regression",), _squared_errors, lambda sums: np.sqrt(_mean(sums))),
    "spearmanr": _Spearman("Spearman correlation", "correlation", ("regression",), _rank_moments, _pearson),
}


def sign(name: str) -> int:
    """1 where more of a metric, or of the loss, is better, -1 where less is."""
    return -1 if name == "loss" else METRICS[name].sign


def choosing_by(task: Task, name: str | None) -> Task:
    """The task with another metric, or the loss, to choose the epoch by. Raises UserError where it has none like that.

    None: by its own.
    """
    if name is None:
        return task
    known = [one for one, of in METRICS.items() if ("binary" if task.binary else task.problem_type) in of.of]
    if name not in ("loss", *known):
        raise UserError(
            f"params.yaml: train.metric_for_best_model is {name}; for this task it must be one of loss, "
            f"{', '.join(known)}, or null"
        )
    beyond = [name] if name in known and name not in task.metrics else []
    return replace(task, metric_for_best_model=name, metrics=[*task.metrics, *beyond])


def scores(names: Iterable[str], labels: Values, predictions: Values) -> dict[str, float]:
    """The scores by name. Raises ValueError where there is nothing to score."""
    return {name: METRICS[name].score(labels, predictions) for name in names}


def by_title(evaluation: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[Metric, float]]:
    """The metrics in an evaluation.json with their values, by split and title, as "test F1"; test comes first."""
    return {
        f"{split} {metric.title}": (metric, evaluation[split][name])
        for split in sorted(evaluation)
        for name, metric in METRICS.items()
        if name in evaluation[split]
    }


def predicted(problem_type: ProblemType, logits: Floats) -> Values:
    """What a model predicts. logits: shape (n, outputs)."""
    if problem_type == "regression":
        return logits[:, 0].astype(np.float64)
    return logits.argmax(-1) if problem_type == "single_label_classification" else (logits > 0).astype(np.int64)


def probabilities(problem_type: ProblemType, logits: Floats) -> Floats:
    """Of each class, or of each label by itself; shape (n, outputs), as `logits`.

    Rounded to six places, so that scores do not depend on the last bits of `exp`.
    """
    single = problem_type == "single_label_classification"
    rounded = np.empty_like(logits, dtype=np.float64 if single else None)
    for rows in _blocks(*logits.shape):
        block = logits[rows]
        rounded[rows] = np.round(np.exp(log_softmax(block)) if single else 1 / (1 + np.exp(-block)), 6)
    return rounded


def baseline(problem_type: ProblemType, labels: Values) -> Values:
    """What a model that knows nothing would best predict: the majority class, the last of equals; or the mean."""
    if problem_type == "regression":
        return np.full_like(labels, labels.mean())
    if problem_type == "multi_label_classification":
        return np.broadcast_to(labels.mean(axis=0) >= 0.5, labels.shape).astype(labels.dtype)
    counts = np.bincount(labels)
    return np.full_like(labels, np.flatnonzero(counts == counts.max())[-1])


def loss(problem_type: ProblemType, logits: Floats, labels: Values) -> float:
    """Mean loss: cross-entropy in nats, for several labels the mean over the binary ones; or squared error.

    logits: shape (n, outputs). labels: as `Values`.
    """
    return float(np.mean(losses(problem_type, logits, labels)))


def losses(problem_type: ProblemType, logits: Floats, labels: Values) -> Floats:
    """The loss of each example, shape (n,); with several labels that of each label, shape (n, labels)."""
    blocks = [_losses(problem_type, logits[rows], labels[rows]) for rows in _blocks(*logits.shape)]
    return np.concatenate(blocks)


def _losses(problem_type: ProblemType, logits: Floats, labels: Values) -> Floats:
    logits = logits.astype(np.float64)
    if problem_type == "regression":
        return np.square(logits[:, 0] - labels)
    if problem_type == "multi_label_classification":
        of_label: Floats = np.logaddexp(0, logits) - labels * logits
        return of_label
    return -log_softmax(logits)[np.arange(len(labels)), labels]


def log_softmax(logits: Floats) -> Floats:
    """Log softmax over the last axis, in float64, without overflow."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    normalised: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def task_metric(task: Task) -> "evaluate.Metric":
    """`scores` of a task as an `evaluate.Metric`, with `add_batch` and `compute`.

    Not `evaluate.load("glue", "mrpc")`, which downloads a script from the Hub and runs it.
    """
    import datasets
    import evaluate

    class TaskMetric(evaluate.Metric):  # type: ignore[misc]
        def _info(self) -> evaluate.MetricInfo:
            values = datasets.Value("float64" if task.problem_type == "regression" else "int64")
            of_example = datasets.List(values) if task.problem_type == "multi_label_classification" else values
            return evaluate.MetricInfo(
                description=f"The scores of {task.name}: {', '.join(task.metrics)}.",
                citation="",
                inputs_description="predictions, references: classes, 0 or 1 for each label, or numbers",
                features=datasets.Features(predictions=of_example, references=of_example),
            )

        def _compute(self, predictions: list[Any], references: list[Any]) -> dict[str, float]:
            return scores(task.metrics, np.asarray(references), np.asarray(predictions))

    return TaskMetric(keep_in_memory=True)
