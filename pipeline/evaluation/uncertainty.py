"""Uncertainty of scores and differences: Wilson intervals, intervals over seeds and examples, McNemar's test."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from pipeline.evaluation.metrics import Floats, Ints

SCORES = {"accuracy": "accuracy", "f1": "F1"}  # name in the code: name for people


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A score of B minus that of A, with its 95 % interval.

    detectable: the smallest true difference for which such an interval excludes 0 in about four of five cases (power
    0.8); in seven of ten between groups of three seeds, which say little about the variance between seeds.
    """

    value: float
    low: float
    high: float
    detectable: float


def score_intervals(labels: Ints, predictions: Ints) -> dict[str, Interval]:
    """Wilson intervals of accuracy and F1, valid for few examples and for scores near 1 too (Wilson 1927).

    labels, predictions: shape (n,), classes 0 and 1. F1 is 2 J / (1 + J) with J = TP / (TP + FP + FN): the formula
    turns the interval of J into that of F1 ("indirect" in Lam, Gopal and Qian 2023, arXiv 2309.14621). Where class 1 is
    neither present nor predicted, it is 0 to 1.
    """
    true_positives = int(np.sum((labels == 1) & (predictions == 1)))
    overlap = _wilson(true_positives, int(np.sum((labels == 1) | (predictions == 1))))
    return {
        "accuracy": _wilson(int(np.sum(labels == predictions)), len(labels)),
        "f1": Interval(*(2 * share / (1 + share) for share in overlap)),
    }


def paired_differences(labels: Ints, a: Ints, b: Ints, *, same_seeds: bool) -> dict[str, Difference]:
    """Mean accuracy and F1 over the runs b minus those over the runs a.

    labels: shape (n,). a, b: predictions, shapes (runs, n). With one run a side, the interval is for these two models
    on other examples; with two runs or more, for the two configurations, on other examples and with other seeds.
    same_seeds: run i of a and run i of b have the same seed and are paired.
    """
    kinds, counts = _kinds(labels, a, b)
    # First row: scores over all examples. The others: without one example of each kind.
    scores = _scores(np.vstack([counts, counts - np.eye(len(counts))]), kinds[0], kinds[1:])
    found = {}
    for name, of_runs in scores.items():
        of_a, of_b = np.split(of_runs, [len(a)], axis=1)
        found[name] = _difference([of_b - of_a] if same_seeds else [of_b, -of_a], counts)
    return found


def _difference(groups: list[Floats], counts: Ints) -> Difference:
    """The sum of the groups' mean scores, with seeds and examples as crossed random effects.

    groups: each of shape (1 + kinds, runs): the scores, then those without one example of each kind. The interval adds
    the squares of two half-widths (Howe 1974): Student's t of the variance between runs, with Welch's degrees of
    freedom, and the normal one of the examples' effect that all runs share. (A single half-width, of the summed
    variances with Satterthwaite's degrees of freedom, found a difference between up to 7 % of equal groups of three.)
    """
    from scipy.stats import t

    means = np.array([of.mean(axis=1) for of in groups])
    total = means.sum(axis=0)
    value = float(total[0])
    of_models = shared = _jackknife_variance(total[1:], counts)
    between, freedom = 0.0, np.inf  # one run a side: over examples alone
    if groups[0].shape[1] > 1:
        runs = np.array([of.shape[1] for of in groups])
        variances = np.array([of[0].var(ddof=1) for of in groups]) / runs
        between = float(variances.sum())
        if between > 0:
            freedom = between**2 / float((variances**2 / (runs - 1)).sum())
        for of, mean in zip(groups, means, strict=True):
            # An example's effect on one run alone is in the variance between runs already.
            each = np.mean([_jackknife_variance(run, counts) for run in of[1:].T])
            shared -= float(each - _jackknife_variance(mean[1:], counts)) / (of.shape[1] - 1)

    def half_width(quantile: float) -> float:
        normal, student = NormalDist().inv_cdf(quantile) ** 2, float(t.ppf(quantile, freedom)) ** 2
        # Never narrower than for these models alone, without other seeds.
        return sqrt(max(normal * max(shared, 0) + student * between, normal * of_models))

    reach = half_width(0.975)
    return Difference(value, value - reach, value + reach, detectable=reach + half_width(0.8))


def mcnemar(broken: int, fixed: int) -> float:
    """Two-sided exact p-value of McNemar's test (McNemar 1947). broken, fixed: examples only B gets wrong, or right."""
    from scipy.stats import binomtest

    return float(binomtest(fixed, broken + fixed).pvalue) if broken + fixed else 1.0


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of the mean of at least two values."""
    from scipy.stats import t

    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = float(t.ppf(0.975, len(values) - 1)) * error
    mean = float(np.mean(values))
    return Interval(mean - reach, mean + reach)


def _wilson(hits: int, n: int) -> Interval:
    if n == 0:
        return Interval(0, 1)
    z = NormalDist().inv_cdf(0.975)
    share, spread = hits / n, z**2 / n
    centre = (share + spread / 2) / (1 + spread)
    reach = sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return Interval(centre - reach, min(centre + reach, 1))  # rounding may put that of a perfect score above 1


def _kinds(labels: Ints, *predictions: Ints) -> tuple[Ints, Ints]:
    """The distinct columns of labels stacked on predictions, and how many examples have each.

    Examples of a kind are interchangeable in the scores: leaving out one is leaving out any.
    """
    kinds, counts = np.unique(np.vstack([labels, *predictions]), axis=1, return_counts=True)
    return kinds, counts


def _scores(counts: Floats, labels: Ints, runs: Ints) -> dict[str, Floats]:
    """`metrics.score` for many runs and samples. counts: shape (samples, kinds). Returns shape (samples, runs)."""
    correct, both, either = (counts @ marked.T for marked in (labels == runs, labels * runs, labels + runs))
    return {"accuracy": correct / counts.sum(1, keepdims=True), "f1": 2 * both / np.maximum(either, 1)}


def _jackknife_variance(left_out: Floats, counts: Ints) -> float:
    """Variance of a score over examples (Efron and Tibshirani 1993, section 11.5).

    left_out: the score without one example of each kind, shape (kinds,). counts: how many examples each kind has.
    """
    mean = np.average(left_out, weights=counts)
    return float((counts.sum() - 1) * np.average((left_out - mean) ** 2, weights=counts))
