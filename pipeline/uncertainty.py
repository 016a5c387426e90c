"""How sure a score or a difference is: bootstrap over examples and seeds, McNemar's test, interval of a mean."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.metrics import Floats, Ints

SCORES = ("accuracy", "f1")
_RESAMPLES = 10_000
_SEED = 0  # of the resamples: the same predictions give the same interval


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


class Difference(NamedTuple):
    """A score of B minus that of A, with its interval."""

    value: float
    interval: Interval


def score_intervals(labels: Ints, predictions: Ints) -> dict[str, Interval]:
    """Percentile bootstrap intervals of accuracy and F1 (Efron and Tibshirani 1993, chapter 13).

    labels, predictions: shape (n,), classes 0 and 1. Both scores depend on the four counts of the confusion matrix
    alone, and those of n examples drawn with replacement are multinomial, so that no example need be drawn by itself.
    """
    drawn = _resampled(np.bincount(2 * labels + predictions, minlength=4))
    return {name: _interval(values) for name, values in _scores(drawn).items()}


def paired_differences(labels: Ints, a: Ints, b: Ints) -> dict[str, Difference]:
    """Accuracy and F1 of the predictions b minus those of a, with paired bootstrap intervals. Shapes (n,).

    An example is drawn with both its predictions: that some examples are hard for both then blurs nothing.
    """
    cells = np.bincount(4 * labels + 2 * a + b, minlength=8)

    def differences(counts: Ints) -> dict[str, Floats]:
        by_label_a_b = counts.reshape(-1, 2, 2, 2)
        of_a, of_b = (_scores(by_label_a_b.sum(axis=axis).reshape(-1, 4)) for axis in (3, 2))
        return {name: of_b[name] - of_a[name] for name in SCORES}

    found, drawn = differences(cells), differences(_resampled(cells))
    return {name: Difference(float(found[name][0]), _interval(drawn[name])) for name in SCORES}


def group_differences(labels: Ints, a: Ints, b: Ints, *, same_seeds: bool) -> dict[str, Difference]:
    """Mean accuracy and F1 over the runs b minus those over the runs a, with intervals over seeds and examples both.

    labels: shape (n,). a, b: shapes (runs, n). same_seeds: run i of both has one seed, and is drawn with its partner.
    The Multi-Bootstrap of Sellam et al. 2022 (MultiBERTs).
    """
    random = np.random.default_rng(_SEED)
    picked_a, picked_b = (random.integers(len(runs), size=(_RESAMPLES, len(runs))) for runs in (a, b))
    if same_seeds:
        picked_b = picked_a
    n = len(labels)
    times_drawn = random.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES).astype(np.float32)

    def differences(weights: Floats, picked_a: Ints, picked_b: Ints) -> dict[str, Floats]:
        of_a, of_b = (_scores_of_runs(weights, labels, runs) for runs in (a, b))
        return {
            name: np.take_along_axis(of_b[name], picked_b, axis=1).mean(axis=1)
            - np.take_along_axis(of_a[name], picked_a, axis=1).mean(axis=1)
            for name in SCORES
        }

    every_a, every_b = (np.arange(len(runs))[np.newaxis] for runs in (a, b))
    found = differences(np.ones((1, n), dtype=np.float32), every_a, every_b)
    drawn = differences(times_drawn, picked_a, picked_b)
    return {name: Difference(float(found[name][0]), _interval(drawn[name])) for name in SCORES}


def mcnemar(broken: int, fixed: int) -> float:
    """Two-sided exact p-value of McNemar's test (McNemar 1947), from the examples that B alone gets wrong, or right."""
    from scipy.stats import binomtest

    return float(binomtest(fixed, broken + fixed).pvalue) if broken + fixed else 1.0


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of the mean of two values or more."""
    from scipy.stats import t

    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = float(t.ppf(0.975, len(values) - 1)) * error
    mean = float(np.mean(values))
    return Interval(mean - reach, mean + reach)


def _resampled(counts: Ints) -> Ints:
    """Counts of as many examples drawn with replacement. Shape (resamples, cells)."""
    total = int(counts.sum())
    return np.random.default_rng(_SEED).multinomial(total, counts / total, size=_RESAMPLES)


def _scores(counts: Ints) -> dict[str, Floats]:
    """As `metrics.score`, of many confusion matrices: shape (m, 4), true and false 0 (by prediction), then 1."""
    true_negatives, false_positives, false_negatives, true_positives = counts.T
    correct = true_negatives + true_positives
    return _accuracy_f1(correct, true_positives, 2 * true_positives + false_positives + false_negatives, counts.sum(1))


def _scores_of_runs(weights: Floats, labels: Ints, runs: Ints) -> dict[str, Floats]:
    """Scores of each run when an example counts as often as its weight says. weights: (m, n); the result: (m, runs)."""

    def weighed(marked: Ints) -> Floats:
        return weights @ marked.T.astype(np.float32)

    both = weighed(labels * runs)
    either = weighed(labels + runs)
    return _accuracy_f1(weighed((labels == runs).astype(int)), both, either, weights.sum(1)[:, np.newaxis])


def _accuracy_f1(
    correct: Floats | Ints, both: Floats | Ints, either: Floats | Ints, n: Floats | Ints
) -> dict[str, Floats]:
    return {"accuracy": correct / n, "f1": 2 * both / np.maximum(either, 1)}


def _interval(values: Floats) -> Interval:
    low, high = np.percentile(values, (2.5, 97.5))
    return Interval(float(low), float(high))
