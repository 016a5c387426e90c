"""The uncertainty of scores and differences: intervals that account for the choice of examples, and of seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import atanh, exp, inf, log, nan, sqrt, tanh
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit  # scipy.stats takes half a second longer to import

from pipeline.core.task import Task
from pipeline.core.text import listing, quoted
from pipeline.evaluation.metrics import METRICS, Floats, Values, is_correct, is_defined

# With more groups, the jackknife takes longer. With fewer groups, the widths of the intervals vary more between splits.
_GROUPS = 200
# If the correctness of two models differs on fewer examples than this, the interval of their difference may be too
# narrow. See tests/test_uncertainty.py.
MIN_CHANGED = 10
# With fewer examples, the interval of an accuracy of 85% is wider than ±7 points.
MIN_EXAMPLES = 100
# If a class has fewer examples than this, the intervals of some scores are too narrow. See the simulation in
# tests/test_statistics.py.
MIN_PER_CLASS = 20
_NARROW_WITH_RARE_CLASSES = ("balanced_accuracy", "roc_auc")
_Z = NormalDist().inv_cdf(0.975)
# The lowest and the highest possible score, keyed by `Metric.scale`.
BOUNDS = {"proportion": (0, 1), "correlation": (-1, 1), "error": (0, inf)}


class Interval(NamedTuple):
    """A 95% confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A score of B minus that of A, and how much the difference would vary.

    Attributes:
        value: The difference of the mean scores over runs or folds.
        runs: The number of runs of the side with fewer runs.
        model_variance: The variance of the difference between exactly these models, over other examples.
        example_variance: The part of `model_variance` that models with other seeds would have in common.
        groups: The number of groups of examples from which both variances were estimated.
        seed_variance: The variance over other seeds. It is 0 with one run per side. For cross-validations, see
            `fold_difference`.
        degrees_of_freedom: The degrees of freedom of `seed_variance`.
    """

    value: float
    runs: int
    model_variance: float
    example_variance: float
    groups: int
    seed_variance: float
    degrees_of_freedom: float

    def half_width(self, quantile: float) -> float:
        """Return a bound on how far the value lies above the true difference.

        The bound holds with a probability of `quantile`. Seeds and examples are crossed random effects. The squared
        bound is the sum of two squared half-widths (Howe 1974). One is Student's t times the standard error between
        runs, with Welch's degrees of freedom. The other comes from the effect of the examples, which all runs share.
        (A single half-width, from the summed variances with Satterthwaite's degrees of freedom, found a difference in
        up to 7% of the comparisons of two equal groups of three runs.)
        """
        t2_examples = float(stdtrit(self.groups - 1, quantile)) ** 2
        t2_seeds = float(stdtrit(self.degrees_of_freedom, quantile)) ** 2 if self.seed_variance else 0.0
        squared_for_other_seeds = t2_examples * max(self.example_variance, 0) + t2_seeds * self.seed_variance
        squared_for_these_models = t2_examples * self.model_variance
        # Other seeds must never make the bound narrower than the one for exactly these models.
        return sqrt(max(squared_for_other_seeds, squared_for_these_models))

    @property
    def low(self) -> float:
        """The lower end of the 95% confidence interval."""
        return self.value - self.half_width(0.975)

    @property
    def high(self) -> float:
        """The upper end of the 95% confidence interval."""
        return self.value + self.half_width(0.975)

    @property
    def detectable(self) -> float:
        """The true difference for which such an interval excludes 0 about 80% of the time, with at least five runs."""
        return self.half_width(0.975) + self.half_width(0.8)


def jackknife(name: str, labels: Values, predictions: Values, probabilities: Floats | None = None) -> Floats:
    """Compute a metric over all examples, and again without each of 200 random groups of examples.

    The groups depend only on the number of examples, so runs on the same examples can be compared group by group.

    Returns:
        The score over all examples, followed by the scores without each group. Shape (1 + groups,). With fewer examples
        than groups, each example is a group. A single example leaves nothing to score, so the second value is NaN.
    """
    n, compute = len(labels), METRICS[name].compute
    values = [compute(labels, predictions, probabilities)]
    if n == 1:
        return np.array([*values, nan])
    group = np.random.default_rng(0).permutation(n) % _GROUPS
    for number in range(min(n, _GROUPS)):
        rest = group != number
        rest_probabilities = None if probabilities is None else probabilities[rest]
        values.append(compute(labels[rest], predictions[rest], rest_probabilities))
    return np.array(values)


def _variance(jackknives: Floats) -> Any:
    """Estimate the variance over examples (Efron and Tibshirani 1993, section 11.5) from shape (..., 1 + groups)."""
    leave_one_out_scores = jackknives[..., 1:]
    return (leave_one_out_scores.shape[-1] - 1) * np.var(leave_one_out_scores, axis=-1)


def difference(a: Floats, b: Floats, *, same_seeds: bool) -> Difference:
    """Return the mean score of the runs b minus that of the runs a.

    With one run per side, the interval is about these two models on other examples. With two or more runs, it is about
    the two configurations, on other examples and with other seeds.

    Args:
        a: The jackknife of each run, shape (runs, 1 + groups).
        b: The same for the other side.
        same_seeds: Whether run i of a and run i of b have the same seed, which makes them a pair.
    """
    sides = [b - a] if same_seeds else [b, -a]
    total = np.sum([side.mean(axis=0) for side in sides], axis=0)
    runs = np.array([len(side) for side in sides])
    model_variance = example_variance = float(_variance(total))
    seed_variance, degrees_of_freedom = 0.0, inf
    if runs.max() > 1:
        variances = np.array([side[:, 0].var(ddof=1) for side in sides]) / runs
        seed_variance = float(variances.sum())
        if seed_variance > 0:
            degrees_of_freedom = seed_variance**2 / float((variances**2 / (runs - 1)).sum())
        for side in sides:
            # Part of an example's effect differs from run to run. The variance between runs already contains that part,
            # so it is subtracted here.
            single_run_variance, mean_run_variance = _variance(side).mean(), _variance(side.mean(axis=0))
            example_variance -= float(single_run_variance - mean_run_variance) / (len(side) - 1)
    return Difference(
        value=float(total[0]),
        runs=int(runs.min()),
        model_variance=model_variance,
        example_variance=example_variance,
        groups=len(total) - 1,
        seed_variance=seed_variance,
        degrees_of_freedom=degrees_of_freedom,
    )


def fold_difference(a: Floats, b: Floats, fold_differences: Floats) -> Difference:
    """Return the mean over the folds of the score of B minus that of A, for two cross-validations on the same folds.

    The models of the folds share most of their training examples, so the variance of the mean over k folds is larger
    than 1/k times the variance between the folds: it is 1/k + 1/(k - 1) times as large, because a fold has 1/(k - 1)
    times as many examples as the other folds ("corrected resampled t-test", Nadeau and Bengio 2003,
    https://doi.org/10.1023/A:1024068626366). This ignores the fact that part of the other folds only chooses
    the epoch. The pooled score of all folds is not used, because ROC AUC and other ranking metrics would then compare
    probabilities from different models.

    Args:
        a: The jackknife of the predictions of all folds together, shape (1 + groups,).
        b: The same for the other side.
        fold_differences: The difference within each fold, shape (k,).
    """
    k = len(fold_differences)
    return Difference(
        value=float(fold_differences.mean()),
        runs=k,
        model_variance=float(_variance(b - a)),
        example_variance=0.0,  # The variance between the folds contains it.
        groups=len(a) - 1,
        seed_variance=(1 / k + 1 / (k - 1)) * float(fold_differences.var(ddof=1)),
        degrees_of_freedom=k - 1,
    )


def score_caveats(names: Sequence[str], task: Task, split: str, labels: Values, *, split_type: str | None) -> list[str]:
    """Return sentences that say why scores of a split cannot be interpreted, or why their intervals may be too narrow.

    Args:
        names: The metrics.
        split_type: The value of data.split.type, which published corpora ignore. None if groups do not matter.
    """
    sentences = []
    if split_type == "group" and task.name in ("custom", "hub"):
        sentences.append(
            f"The intervals assume that the {task.noun} are independent. They are too narrow if {task.noun} in one "
            "group (data.split) resemble each other."
        )
    if undefined := [METRICS[name].title for name in names if not is_defined(name, task, labels)]:
        sentences.append(
            f"{' and '.join(undefined)} cannot be interpreted on {split}, because a class is missing or all labels are "
            "the same."
        )
    titles = [METRICS[name].title for name in names if name in _NARROW_WITH_RARE_CLASSES]
    if not titles:
        return sentences
    counts = np.bincount(labels, minlength=task.outputs) if labels.ndim == 1 else labels.sum(axis=0)
    condition = f"fewer than {MIN_PER_CLASS} {split} {task.noun} have each of these labels"
    if labels.ndim == 2:
        counts = np.minimum(counts, len(labels) - counts)
        condition = f"each of these labels is present or absent in fewer than {MIN_PER_CLASS} {split} {task.noun}"
    if rare := [task.labels[number] for number in np.flatnonzero(counts < MIN_PER_CLASS)]:
        sentences.append(
            f"The intervals of {' and '.join(titles)} may be too narrow, because {condition}: "
            f"{listing(map(quoted, rare))}."
        )
    return sentences


def score_intervals(
    names: Iterable[str], labels: Values, predictions: Values, probabilities: Floats | None = None
) -> dict[str, Interval]:
    """Compute the 95% confidence intervals of scores, keyed by the name of the metric.

    Accuracy gets a Wilson interval, which stays valid for few examples and for scores near 1 (Wilson 1927). F1 is
    2 J / (1 + J), where J is the proportion of true positives among all examples that are positive or predicted to be
    positive. So the Wilson interval of J gives the interval of F1 ("indirect" in Lam, Gopal and Qian 2023, arXiv
    2309.14621). The other metrics get a jackknife interval, see `_jackknife_interval`.
    """
    intervals = {}
    for name in names:
        if name == "accuracy":
            intervals[name] = _wilson(int(is_correct(labels, predictions).sum()), len(labels))
        elif name == "f1":
            positive, predicted = labels == 1, predictions == 1
            low, high = _wilson(int((positive & predicted).sum()), int((positive | predicted).sum()))
            intervals[name] = Interval(2 * low / (1 + low), 2 * high / (1 + high))
        else:
            values = jackknife(name, labels, predictions, probabilities)
            intervals[name] = _jackknife_interval(METRICS[name].scale, len(labels), values)
    return intervals


# Scales without bounds for scores: a function that maps a score to all real numbers, its inverse, and the slope of the
# inverse at a score.
_SCALES: dict[str, tuple[Callable[[float], float], ...]] = {
    "proportion": (lambda v: log(v / (1 - v)), lambda x: (1 + tanh(x / 2)) / 2, lambda v: v * (1 - v)),
    "correlation": (atanh, tanh, lambda v: 1 - v * v),
    "error": (log, exp, lambda v: v),
}


def _jackknife_interval(scale: str, n: int, values: Floats) -> Interval:
    """Compute Student's t interval on a scale without bounds: the logit, Fisher's z, or the logarithm of an error."""
    (transform, inverse, slope), value = _SCALES[scale], float(values[0])
    if n == 1:
        return Interval(inverse(-inf), inverse(inf))
    if slope(value) == 0:  # At a bound, the variance of the jackknife is 0. Use the width for an accuracy of 1 instead.
        gap = (1 - _wilson(n, n).low) * (2 if scale == "correlation" else 1)
        return Interval(value - gap, value) if value == 1 else Interval(value, value + gap)
    middle = transform(value)
    half_width = float(stdtrit(len(values) - 2, 0.975)) * sqrt(_variance(values)) / slope(value)
    return Interval(inverse(middle - half_width), inverse(middle + half_width))


def _wilson(hits: int, n: int) -> Interval:
    if n == 0:
        return Interval(0, 1)
    proportion = hits / n
    z2_per_n = _Z**2 / n
    center = (proportion + z2_per_n / 2) / (1 + z2_per_n)
    half_width = sqrt(z2_per_n * (proportion * (1 - proportion) + z2_per_n / 4)) / (1 + z2_per_n)
    # With rounding, a perfect score could lie outside its own interval.
    return Interval(0 if hits == 0 else center - half_width, 1 if hits == n else center + half_width)
