"""Uncertainty of scores and differences: intervals over examples, over seeds and examples; tests of two runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import atanh, exp, inf, log, sqrt, tanh
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from pipeline.evaluation.metrics import METRICS, Floats, Metric, Statistics, Values


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A score of B minus that of A, and what it varies by, as variances.

    runs: of the smaller side. models: over other examples, between these very models. examples: the part of it that
    models with other seeds share. seeds: over other seeds, with its degrees of freedom; 0 with one run a side.
    """

    value: float
    runs: int
    models: float
    examples: float
    seeds: float
    freedom: float

    def reach(self, quantile: float, runs: float | None = None) -> float:
        """How far the found difference lies above the true one at most, with a probability of `quantile`.

        runs: with so many a side, instead of those that there are.
        Seeds and examples are crossed random effects. The square is the sum of those of two half-widths (Howe 1974):
        Student's t of the variance between runs, with Welch's degrees of freedom, and the normal one of the examples'
        effect that all runs share. (A single half-width, of the summed variances with Satterthwaite's degrees of
        freedom, found a difference between up to 7 % of equal groups of three.)
        """
        from scipy.special import ndtri, stdtrit

        times = 1.0 if runs is None else runs / self.runs
        freedom = self.freedom if times == 1 else self.freedom * (self.runs * times - 1) / (self.runs - 1)
        normal = float(ndtri(quantile)) ** 2
        student = float(stdtrit(freedom, quantile)) ** 2 if self.seeds else 0.0
        # Never narrower than for these models alone, without other seeds.
        models = self.examples + (self.models - self.examples) / times
        return sqrt(max(normal * max(self.examples, 0) + student * self.seeds / times, normal * models))

    @property
    def low(self) -> float:
        """Of the 95 % interval."""
        return self.value - self.reach(0.975)

    @property
    def high(self) -> float:
        return self.value + self.reach(0.975)

    @property
    def detectable(self) -> float:
        """The smallest true difference for which such an interval excludes 0 in about four of five cases (power 0.8).

        Between groups of three seeds, which say little about the variance between seeds, in seven of ten.
        """
        return self.reach(0.975) + self.reach(0.8)

    def p(self, limit: float) -> float:
        """One-sided p-value of the hypothesis that the true difference is `limit` or less."""
        gap = self.value - limit
        if not (self.models or self.seeds):
            return float(gap <= 0)
        low, high = 0.5, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.reach(middle) < abs(gap) else (low, middle)
        return 1 - low if gap > 0 else low


def score_intervals(metrics: Iterable[str], labels: Values, predictions: Values) -> dict[str, Interval]:
    """Intervals of the scores over examples, by name of the metric.

    Of accuracy and F1 by Wilson's formula, valid for few examples and for scores near 1 too (Wilson 1927). F1 is
    2 J / (1 + J) with J = TP / (TP + FP + FN): the formula turns the interval of J into that of F1 ("indirect" in Lam,
    Gopal and Qian 2023, arXiv 2309.14621). Where class 1 is neither present nor predicted, it is 0 to 1.
    Of the others by the jackknife, with Student's t, on a scale without bounds: the logit of a share, Fisher's z of a
    correlation, the logarithm of an error.
    """
    return {name: _INTERVALS.get(name, _jackknife_interval)(name, labels, predictions) for name in metrics}


def _of_accuracy(name: str, labels: Values, predictions: Values) -> Interval:
    hits, n = METRICS[name].statistics(labels, predictions).sum(axis=0)
    return _wilson(hits, n)


def _of_f1(name: str, labels: Values, predictions: Values) -> Interval:
    right, predicted, actual = METRICS[name].statistics(labels, predictions).sum(axis=0)
    low, high = _wilson(right, predicted + actual - right)
    return Interval(2 * low / (1 + low), 2 * high / (1 + high))


_INTERVALS = {"accuracy": _of_accuracy, "f1": _of_f1}


class _Scale(NamedTuple):
    """A function from the values of a score to all numbers, its inverse, and the inverse's slope at a value."""

    of: Callable[[float], float]
    back: Callable[[float], float]
    slope: Callable[[float], float]


_SCALES = {
    "share": _Scale(lambda v: log(v / (1 - v)), lambda x: 1 / (1 + exp(-x)), lambda v: v * (1 - v)),
    "correlation": _Scale(atanh, tanh, lambda v: 1 - v * v),
    "error": _Scale(log, exp, lambda v: v),
}


def _jackknife_interval(name: str, labels: Values, predictions: Values) -> Interval:
    from scipy.special import stdtrit  # Student's t; scipy.stats takes half a second longer to import

    metric, n = METRICS[name], len(labels)
    value, scale = metric.score(labels, predictions), _SCALES[metric.kind]
    if n == 1:
        return Interval(scale.back(-inf), scale.back(inf))
    if scale.slope(value) == 0:  # at a bound, where all examples are alike: as wide as that of an accuracy of 1
        gap = (1 - _wilson(n, n).low) * (2 if metric.kind == "correlation" else 1)
        return Interval(value - gap, value) if value == 1 else Interval(value, value + gap)
    reach = float(stdtrit(n - 1, 0.975)) * sqrt(_jackknife_variance(metric.left_out(labels, predictions)))
    middle, reach = scale.of(value), reach / scale.slope(value)
    return Interval(scale.back(middle - reach), scale.back(middle + reach))


def paired_differences(
    metrics: Iterable[str], labels: Values, a: Values, b: Values, *, same_seeds: bool
) -> dict[str, Difference]:
    """Mean scores over the runs b minus those over the runs a, by name of the metric.

    labels: as `metrics.Values`. a, b: such predictions of each run. With one run a side, the interval is for these two
    models on other examples; with two runs or more, for the two configurations, on other examples and
    with other seeds. same_seeds: run i of a and run i of b have the same seed and are paired.
    """
    found = {}
    for name in metrics:
        metric = METRICS[name]
        # First row: scores over all examples. The others: without one of them.
        of_a, of_b = (
            np.column_stack([[metric.score(labels, run), *metric.left_out(labels, run)] for run in side])
            for side in (a, b)
        )
        found[name] = _difference([of_b - of_a] if same_seeds else [of_b, -of_a])
    return found


def _difference(groups: list[Floats]) -> Difference:
    """The sum of the groups' mean scores.

    groups: each of shape (1 + n, runs): the scores, then those without one example.
    """
    means = np.array([of.mean(axis=1) for of in groups])
    total = means.sum(axis=0)
    models = examples = _jackknife_variance(total[1:])
    runs = np.array([of.shape[1] for of in groups])
    seeds, freedom = 0.0, inf
    if runs.max() > 1:
        variances = np.array([of[0].var(ddof=1) for of in groups]) / runs
        seeds = float(variances.sum())
        if seeds > 0:
            freedom = seeds**2 / float((variances**2 / (runs - 1)).sum())
        for of, mean in zip(groups, means, strict=True):
            # An example's effect on one run alone is in the variance between runs already.
            each = np.mean([_jackknife_variance(run) for run in of[1:].T])
            examples -= float(each - _jackknife_variance(mean[1:])) / (of.shape[1] - 1)
    return Difference(float(total[0]), int(runs.min()), models, examples, seeds, freedom)


class Turned(NamedTuple):
    """How many answers only the first of two runs gets right, and only the second; what one is worth at most."""

    wrong: int
    right: int
    worth: float


def turned(name: str, labels: Values, a: Values, b: Values) -> Turned:
    """Compare the answers of two runs of a classifier, of several labels those to each label, for a metric."""
    metric, right_a, right_b = METRICS[name], a == labels, b == labels
    if labels.ndim > 1:
        alternatives: Iterator[Values] = (
            np.where(np.arange(labels.shape[1]) == label, 1 - a, a) for label in range(labels.shape[1])
        )
    else:
        alternatives = iter([(a + 1) % (max(labels.max(), a.max(), 1) + 1)])
    score, worth = metric.score(labels, a), 0.0
    for alternative in alternatives:
        now, then = _statistics(metric, labels, a, alternative)
        worth = max(worth, float(np.max(score - metric.changed(now.sum(axis=0), then - now))))
    return Turned(int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum()), worth or 1 / labels.size)


def _statistics(metric: Metric, labels: Values, a: Values, b: Values) -> tuple[Statistics, Statistics]:
    """The statistics of two runs, with the same classes and around the same means."""
    both = metric.statistics(np.concatenate([labels, labels]), np.concatenate([a, b]))
    return both[: len(labels)], both[len(labels) :]


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several hypotheses, adjusted so that 5 % is the chance of any false rejection (Holm 1979)."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = largest
    return adjusted


def mcnemar(broken: int, fixed: int) -> float:
    """Two-sided exact p-value of McNemar's test (McNemar 1947). broken, fixed: examples only B gets wrong, or right."""
    from scipy.stats import binomtest

    return float(binomtest(fixed, broken + fixed).pvalue) if broken + fixed else 1.0


def randomization_test(name: str, labels: Values, a: Values, b: Values) -> float:
    """Two-sided p-value of the difference in a metric between two runs, a and b (Yeh 2000, approximate randomization).

    That is the share of 2,000 draws, each of which swaps the two predictions of about half of the examples, with a
    difference at least as large. Seeded. Of accuracy, McNemar's test is the exact form.
    """
    metric = METRICS[name]
    of_a, of_b = _statistics(metric, labels, a, b)
    sums_a, sums_b, gain = of_a.sum(axis=0), of_b.sum(axis=0), of_b - of_a
    gain = gain[np.flatnonzero(abs(gain).sum(axis=1))]

    def difference(swapped: Floats) -> Floats:
        return np.abs(metric.of_sums(sums_b - swapped) - metric.of_sums(sums_a + swapped))

    random = np.random.default_rng(0)
    draws = np.concatenate([difference(random.integers(2, size=(20, gain.shape[0])) @ gain) for _ in range(100)])
    as_large = draws >= difference(np.zeros_like(sums_a)) - 1e-12  # equal, apart from rounding
    return float((1 + as_large.sum()) / (1 + len(draws)))


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


def _jackknife_variance(left_out: Floats) -> float:
    """Variance of a score over examples (Efron and Tibshirani 1993, section 11.5).

    left_out: the score without each example, shape (n,).
    """
    return (len(left_out) - 1) * float(np.var(left_out))
