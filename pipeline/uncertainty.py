"""How sure a score or a difference is: bootstrap over examples and seeds, McNemar's test, interval of a mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.metrics import Floats, Ints

SCORES = {"accuracy": "accuracy", "f1": "F1"}  # by name, as people write them
_RESAMPLES = 10_000
_SEED = 0  # of the resamples: the same predictions give the same interval


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A score of B minus that of A, with its 95 % interval."""

    value: float
    low: float
    high: float
    detectable: float  # the least true difference whose interval would exclude 0 in 80 % of cases


def score_intervals(labels: Ints, predictions: Ints) -> dict[str, Interval]:
    """Percentile bootstrap intervals of accuracy and F1 (Efron and Tibshirani 1993, chapter 13).

    labels, predictions: shape (n,), classes 0 and 1.
    """
    kinds, counts = _kinds(labels, predictions)
    drawn = _scores(_resampled(counts, np.random.default_rng(_SEED)), kinds[0], kinds[1:])
    return {name: _interval(values[:, 0]) for name, values in drawn.items()}


def paired_differences(labels: Ints, a: Ints, b: Ints, *, same_seeds: bool) -> dict[str, Difference]:
    """Mean accuracy and F1 over the runs b minus those over the runs a, with intervals over seeds and examples both.

    labels: shape (n,). a, b: predictions, shapes (runs, n). An example is drawn with all its predictions: that some are
    hard for every run then blurs nothing. same_seeds: run i of both has one seed, and is drawn with its partner.
    One run a side gives the paired bootstrap, more the Multi-Bootstrap of Sellam et al. 2022 (MultiBERTs). It takes the
    variance between seeds for (runs - 1) / runs of what it is: give it five runs or more.
    """
    kinds, counts = _kinds(labels, a, b)
    labels, a, b = kinds[0], kinds[1 : 1 + len(a)], kinds[1 + len(a) :]
    random = np.random.default_rng(_SEED)
    picked_a, picked_b = (random.integers(len(runs), size=(_RESAMPLES, len(runs))) for runs in (a, b))
    if same_seeds:
        picked_b = picked_a

    def differences(counts: Ints, picked_a: Ints, picked_b: Ints) -> dict[str, Floats]:
        of_a, of_b = (_scores(counts, labels, runs) for runs in (a, b))
        return {
            name: np.take_along_axis(of_b[name], picked_b, axis=1).mean(axis=1)
            - np.take_along_axis(of_a[name], picked_a, axis=1).mean(axis=1)
            for name in SCORES
        }

    every_a, every_b = (np.arange(len(runs))[np.newaxis] for runs in (a, b))
    found = differences(counts[np.newaxis], every_a, every_b)
    drawn = differences(_resampled(counts, random), picked_a, picked_b)
    intervals = {name: _interval(drawn[name]) for name in SCORES}
    return {
        name: Difference(float(found[name][0]), low, high, detectable=(high - low) / (2 * 1.96) * (1.96 + 0.84))
        for name, (low, high) in intervals.items()
    }


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


def _kinds(labels: Ints, *predictions: Ints) -> tuple[Ints, Ints]:
    """The different columns of labels above predictions, and how many examples have each.

    The scores don't tell examples of a kind apart, so that none need be drawn by itself.
    """
    kinds, counts = np.unique(np.vstack([labels, *predictions]), axis=1, return_counts=True)
    return kinds, counts


def _resampled(counts: Ints, random: np.random.Generator) -> Ints:
    """How many there are of each kind among as many examples drawn with replacement. Shape (resamples, kinds)."""
    total = int(counts.sum())
    return random.multinomial(total, counts / total, size=_RESAMPLES)


def _scores(counts: Ints, labels: Ints, runs: Ints) -> dict[str, Floats]:
    """As `metrics.score`, of runs over many samples. counts: (samples, kinds); the result: (samples, runs)."""
    weights = counts.astype(float)  # numpy multiplies matrices of integers slowly
    correct, both, either = (weights @ marked.T for marked in (labels == runs, labels * runs, labels + runs))
    return {"accuracy": correct / weights.sum(1, keepdims=True), "f1": 2 * both / np.maximum(either, 1)}


def _interval(values: Floats) -> Interval:
    low, high = np.percentile(values, (2.5, 97.5))
    return Interval(float(low), float(high))
