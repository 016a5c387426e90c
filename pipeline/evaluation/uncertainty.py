"""Uncertainty of scores and differences: intervals over examples, or over seeds and examples."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import atanh, exp, inf, log, nan, sqrt, tanh
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from pipeline.evaluation.metrics import METRICS, Floats, Values, is_correct, scores

_GROUPS = 200  # more groups take longer, and fewer make the widths of intervals vary more from one split to another
_Z = NormalDist().inv_cdf(0.975)


class Interval(NamedTuple):
    """A 95% interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A score of B minus that of A, and how much it would vary.

    Attributes:
        value: the difference of the mean scores over runs.
        runs: the number of runs of the smaller side.
        model_variance: the variance over other examples, between these very models.
        example_variance: the part of it that models with other seeds share.
        groups: the number of groups of examples from which both were estimated.
        seed_variance: the variance over other seeds; 0 with one run a side.
        degrees_of_freedom: those of `seed_variance`.
    """

    value: float
    runs: int
    model_variance: float
    example_variance: float
    groups: int
    seed_variance: float
    degrees_of_freedom: float

    def reach(self, quantile: float) -> float:
        """Return how far at most, with a probability of `quantile`, the value lies above the true difference.

        Seeds and examples are crossed random effects. The square is the sum of those of two half-widths (Howe 1974):
        Student's t of the variance between runs, with Welch's degrees of freedom, and that of the examples' effect,
        which all runs share. (A single half-width, of the summed variances with Satterthwaite's degrees of freedom,
        found a difference between up to 7% of equal groups of three.)
        """
        from scipy.special import stdtrit  # scipy.stats takes half a second longer to import

        t_examples = float(stdtrit(self.groups - 1, quantile)) ** 2
        t_seeds = float(stdtrit(self.degrees_of_freedom, quantile)) ** 2 if self.seed_variance else 0.0
        configurations = t_examples * max(self.example_variance, 0) + t_seeds * self.seed_variance
        # Never narrower than for these models alone, without other seeds.
        return sqrt(max(configurations, t_examples * self.model_variance))

    @property
    def low(self) -> float:
        """The lower end of the 95% interval."""
        return self.value - self.reach(0.975)

    @property
    def high(self) -> float:
        """The upper end of the 95% interval."""
        return self.value + self.reach(0.975)

    @property
    def detectable(self) -> float:
        """The true difference for which such an interval excludes 0 about 80% of the time.

        With two seeds a side, which say little about the variance between seeds, 60%; with three or four, 70%.
        """
        return self.reach(0.975) + self.reach(0.8)


def jackknife(name: str, labels: Values, predictions: Values, probabilities: Floats | None = None) -> Floats:
    """Compute a metric over all examples, and without each of 200 random groups of them.

    The grouping depends on the number of examples alone, so runs on the same examples can be compared group by group.

    Returns:
        The score over all, then those without a group. Shape (1 + groups,). With fewer examples than groups, each
        example is a group. A single example leaves nothing to score, which is NaN.
    """
    n = len(labels)
    values = [scores([name], labels, predictions, probabilities)[name]]
    if n == 1:
        return np.array([*values, nan])
    group = np.random.default_rng(0).permutation(n) % _GROUPS
    for number in range(min(n, _GROUPS)):
        rest = group != number
        some = None if probabilities is None else probabilities[rest]
        values.append(METRICS[name].compute(labels[rest], predictions[rest], some))
    return np.array(values)


def _variance(jackknives: Floats) -> Any:
    """Estimate the variance over examples (Efron and Tibshirani 1993, section 11.5). Shape (..., 1 + groups)."""
    left_out = jackknives[..., 1:]
    return (left_out.shape[-1] - 1) * np.var(left_out, axis=-1)


def difference(a: Floats, b: Floats, *, same_seeds: bool) -> Difference:
    """Return the mean score of the runs b minus that of the runs a.

    With one run a side, the interval is for these two models on other examples. With two runs or more, it is for the
    two configurations, on other examples and with other seeds.

    Args:
        a: the jackknife of each run, shape (runs, 1 + groups).
        b: the same for the other side.
        same_seeds: whether run i of a and run i of b have the same seed, so that they are paired.
    """
    sides = [b - a] if same_seeds else [b, -a]
    total = np.sum([side.mean(axis=0) for side in sides], axis=0)
    runs = np.array([len(side) for side in sides])
    models = examples = float(_variance(total))
    seeds, freedom = 0.0, inf
    if runs.max() > 1:
        variances = np.array([side[:, 0].var(ddof=1) for side in sides]) / runs
        seeds = float(variances.sum())
        if seeds > 0:
            freedom = seeds**2 / float((variances**2 / (runs - 1)).sum())
        for side in sides:
            # An example's effect on a single run is in the variance between runs already.
            single, mean = _variance(side).mean(), _variance(side.mean(axis=0))
            examples -= float(single - mean) / (len(side) - 1)
    return Difference(float(total[0]), int(runs.min()), models, examples, len(total) - 1, seeds, freedom)


def score_intervals(
    names: Iterable[str], labels: Values, predictions: Values, probabilities: Floats | None = None
) -> dict[str, Interval]:
    """Compute intervals of the scores over examples, by name of the metric.

    Accuracy gets Wilson's interval, which holds for few examples and for scores near 1 too (Wilson 1927). F1 is
    2 J / (1 + J), where J is the proportion of the true positives among all examples that are positive or called so.
    So Wilson's interval of J gives that of F1 ("indirect" in Lam, Gopal and Qian 2023, arXiv 2309.14621).
    The other metrics get a jackknife interval, see `_jackknife_interval`.
    """
    intervals = {}
    for name in names:
        if name == "accuracy":
            intervals[name] = _wilson(int(is_correct(labels, predictions).sum()), len(labels))
        elif name == "f1":
            positive, called = labels == 1, predictions == 1
            low, high = _wilson(int((positive & called).sum()), int((positive | called).sum()))
            intervals[name] = Interval(2 * low / (1 + low), 2 * high / (1 + high))
        else:
            values = jackknife(name, labels, predictions, probabilities)
            intervals[name] = _jackknife_interval(METRICS[name].scale, len(labels), values)
    return intervals


class _Scale(NamedTuple):
    """A function from the values of a score to all numbers, its inverse, and the inverse's slope at a value."""

    transform: Callable[[float], float]
    inverse: Callable[[float], float]
    slope: Callable[[float], float]


_SCALES = {
    "proportion": _Scale(lambda v: log(v / (1 - v)), lambda x: (1 + tanh(x / 2)) / 2, lambda v: v * (1 - v)),
    "correlation": _Scale(atanh, tanh, lambda v: 1 - v * v),
    "error": _Scale(log, exp, lambda v: v),
}


def _jackknife_interval(scale_name: str, n: int, values: Floats) -> Interval:
    """Compute Student's t interval on a scale without bounds: the logit, Fisher's z, or the logarithm of an error."""
    from scipy.special import stdtrit

    scale, value = _SCALES[scale_name], float(values[0])
    if n == 1:
        return Interval(scale.inverse(-inf), scale.inverse(inf))
    if scale.slope(value) == 0:  # at a bound, where all examples are alike: as wide as that of an accuracy of 1
        gap = (1 - _wilson(n, n).low) * (2 if scale_name == "correlation" else 1)
        return Interval(value - gap, value) if value == 1 else Interval(value, value + gap)
    middle = scale.transform(value)
    reach = float(stdtrit(len(values) - 2, 0.975)) * sqrt(_variance(values)) / scale.slope(value)
    return Interval(scale.inverse(middle - reach), scale.inverse(middle + reach))


def _wilson(hits: int, n: int) -> Interval:
    if n == 0:
        return Interval(0, 1)
    proportion, spread = hits / n, _Z**2 / n
    center = (proportion + spread / 2) / (1 + spread)
    reach = sqrt(spread * (proportion * (1 - proportion) + spread / 4)) / (1 + spread)
    return Interval(center - reach, min(center + reach, 1))  # rounding may put that of a perfect score above 1


def mean_interval(values: Sequence[float]) -> Interval:
    """Compute Student's t interval of the mean of at least two values."""
    from scipy.special import stdtrit

    reach = float(stdtrit(len(values) - 1, 0.975)) * float(np.std(values, ddof=1)) / sqrt(len(values))
    return Interval(float(np.mean(values)) - reach, float(np.mean(values)) + reach)
