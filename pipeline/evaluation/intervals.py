"""Confidence intervals of scores and of differences, over the choice of examples and of seeds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, stdtrit  # scipy.stats takes half a second longer to import

from pipeline.core.task import Task
from pipeline.core.text import listing, quoted
from pipeline.evaluation.metrics import METRICS, Floats, Values, is_defined
from pipeline.evaluation.predictions import Predictions

_GROUPS = 50  # With 200 groups, the intervals are 2% narrower and take four times as long.
_Z_SQUARED = 1.96**2
# The simulations in tests/test_statistics.py support these numbers.
MIN_CHANGED = 10  # If two models differ on fewer examples, the interval of their difference may be too narrow.
MIN_EXAMPLES = 100  # With fewer examples, the interval of an accuracy of 85% is wider than ±7 points.
MIN_PER_CLASS = 40  # With fewer examples of a class, the intervals of some scores are too narrow.
_NARROW_WITH_RARE_CLASSES = ("balanced_accuracy", "roc_auc")
BOUNDS = {"proportion": (0.0, 1.0), "correlation": (-1.0, 1.0), "error": (0.0, inf)}  # keyed by `Metric.scale`
# Scales without bounds: a function that maps a score to all real numbers, its inverse, and the inverse's slope there.
_SCALES: dict[str, tuple[Callable[[float], float], ...]] = {
    "proportion": (logit, expit, lambda value: value * (1 - value)),
    "correlation": (np.arctanh, np.tanh, lambda value: 1 - value**2),
    "error": (np.log, np.exp, lambda value: value),
}


class Interval(NamedTuple):
    """A score and its 95% confidence interval."""

    value: float
    low: float
    high: float


class Difference(NamedTuple):
    """A score of B minus that of A, and its 95% confidence interval."""

    value: float
    low: float
    high: float
    detectable: float  # the true difference that is detected in about 80% of such comparisons, with at least five runs


def jackknife(metric: str, predictions: Predictions) -> Floats:
    """Compute a metric over all examples, and again without each of 50 random groups of them, shape (1 + groups,).

    The groups depend only on the number of examples, so runs on the same examples can be compared group by group. With
    fewer examples than groups, each example is a group. There must be at least two examples.
    """
    n = len(predictions)
    group = np.random.default_rng(0).permutation(n) % _GROUPS
    examples = replace(predictions, rows=predictions.rows[[]])  # It would take time to copy the texts.
    rests = (examples[group != number] for number in range(min(n, _GROUPS)))
    return np.array([predictions.score(metric), *(rest.score(metric) for rest in rests)])


def _variance(jackknives: Floats) -> Floats:
    """Estimate the variance over examples (Efron and Tibshirani 1993, section 11.5) from shape (..., 1 + groups)."""
    return np.asarray((jackknives.shape[-1] - 2) * np.var(jackknives[..., 1:], axis=-1))


def score_interval(metric: str, task: Task, predictions: Predictions) -> Interval:
    """Return a score with Student's t interval of its jackknife on a scale without bounds. F1 has its own interval."""
    scale, n = METRICS[metric].scale, len(predictions)
    if not is_defined(metric, task, predictions.labels):  # Such labels say nothing about other examples.
        return Interval(predictions.score(metric), *BOUNDS[scale])
    if metric == "f1":
        return _f1_interval(predictions)
    return _jackknife_interval(scale, n, jackknife(metric, predictions))


def _f1_interval(predictions: Predictions) -> Interval:
    """Return the interval of F1 that follows from Wilson's interval of the Jaccard index.

    F1 is 2 J / (1 + J), where J is the proportion of true positives among all examples that are positive or predicted
    to be positive ("indirect" in Lam, Gopal and Qian 2023, arXiv 2309.14621). With a handful of positive examples, the
    jackknife's interval contains the true F1 in only 55% to 90% of cases, and this one in 95%.
    """
    positive, predicted = predictions.labels == 1, predictions.predicted == 1
    hits, n = int((positive & predicted).sum()), int((positive | predicted).sum())
    center, half_width = hits + _Z_SQUARED / 2, sqrt(_Z_SQUARED * (hits * (n - hits) / n + _Z_SQUARED / 4))
    low, high = max(center - half_width, 0) / (n + _Z_SQUARED), (center + half_width) / (n + _Z_SQUARED)
    value = predictions.score("f1")
    # With rounding, a perfect score could lie outside its interval.
    return Interval(value, min(value, 2 * low / (1 + low)), max(value, 2 * high / (1 + high)))


def _jackknife_interval(scale: str, n: int, values: Floats) -> Interval:
    (transform, inverse, slope), value = _SCALES[scale], float(values[0])
    low, high = BOUNDS[scale]
    if slope(value) == 0:  # The jackknife has no variance there. This is Wilson's interval of n correct examples of n.
        gap = _Z_SQUARED / (n + _Z_SQUARED) * (2 if scale == "correlation" else 1)
        return Interval(value, max(low, value - gap), min(high, value + gap))
    half_width = stdtrit(len(values) - 2, 0.975) * sqrt(_variance(values)) / slope(value)
    middle = transform(value)
    return Interval(value, float(inverse(middle - half_width)), float(inverse(middle + half_width)))


def difference(a: Floats, b: Floats, *, same_seeds: bool) -> Difference:
    """Return the mean score of the runs b minus that of the runs a.

    With one run per side, the interval is about these two models on other examples. With more runs, it is about the two
    configurations, on other examples and with other seeds.

    Args:
        a, b: The jackknife of each run, shape (runs, 1 + groups).
        same_seeds: Whether run i of a and run i of b have the same seed, which makes them a pair.
    """
    sides = [b - a] if same_seeds else [b, -a]
    total = np.sum([side.mean(axis=0) for side in sides], axis=0)
    if len(a) == len(b) == 1:
        return _difference(float(total[0]), total)
    runs = np.array([len(side) for side in sides])
    variances = np.array([side[:, 0].var(ddof=1) for side in sides]) / runs
    seed_variance, seed_freedom = float(variances.sum()), inf
    if seed_variance > 0:
        seed_freedom = seed_variance**2 / float((variances**2 / (runs - 1)).sum())  # Welch
    example_variance = float(_variance(total))
    for side in sides:
        # The variance between runs already contains the part of an example's effect that differs from run to run.
        part = _variance(side).mean() - _variance(side.mean(axis=0))
        example_variance -= float(part) / (len(side) - 1)
    return _difference(
        float(total[0]), total, example_variance=example_variance, seed_variance=seed_variance,
        seed_freedom=seed_freedom,
    )  # fmt: skip


def fold_difference(a: Floats, b: Floats, fold_differences: Floats) -> Difference:
    """Return the mean over the folds of the score of B minus that of A, for two cross-validations on the same folds.

    The models of the folds share most of their training examples, so the variance of the mean over k folds is not 1/k
    of the variance between the folds, but 1/k + 1/(k - 1) of it ("corrected resampled t-test", Nadeau and Bengio 2003,
    https://doi.org/10.1023/A:1024068626366). The mean is used because a ranking metric, such as ROC AUC, must not
    compare probabilities from different models.

    Args:
        a, b: The jackknife of the predictions of all folds together, shape (1 + groups,).
        fold_differences: The difference within each fold, shape (k,).
    """
    k = len(fold_differences)
    fold_variance = (1 / k + 1 / (k - 1)) * float(fold_differences.var(ddof=1))  # It contains the example variance.
    return _difference(float(fold_differences.mean()), b - a, seed_variance=fold_variance, seed_freedom=k - 1)


def _difference(
    value: float, total: Floats, *, example_variance: float = 0, seed_variance: float = 0, seed_freedom: float = inf
) -> Difference:
    """Add the interval. Seeds and groups of examples are crossed random effects.

    The squared half-width is the sum of two squared half-widths (Howe 1974): Student's t times the standard error
    between runs, and the effect of the examples, which all runs share. (A single half-width, with Satterthwaite's
    degrees of freedom, found a difference in up to 7% of the comparisons of two equal groups of three runs.)

    Args:
        total: The jackknife of the difference between exactly these models, shape (1 + groups,).
        example_variance: The part of its variance over examples that models with other seeds would have in common.
        seed_variance, seed_freedom: The variance over other seeds or folds, and its degrees of freedom. 0 with one run.
    """
    model_variance = float(_variance(total))

    def half_width(quantile: float) -> float:
        t2_examples = float(stdtrit(len(total) - 2, quantile)) ** 2
        t2_seeds = float(stdtrit(seed_freedom, quantile)) ** 2 if seed_variance else 0.0
        squared_for_other_seeds = t2_examples * max(example_variance, 0) + t2_seeds * seed_variance
        # Other seeds must never make the interval narrower than the one for exactly these models.
        return sqrt(max(squared_for_other_seeds, t2_examples * model_variance))

    width = half_width(0.975)
    return Difference(value, value - width, value + width, width + half_width(0.8))


def caveats(names: Sequence[str], task: Task, split: str, labels: Values, split_type: str | None) -> list[str]:
    """Say why the intervals of metrics may be too narrow.

    Args:
        split_type: The value of data.split.type. None if groups do not matter.
    """
    sentences = []
    if split_type == "group" and task.name in ("custom", "hub"):  # Published corpora ignore data.split.
        sentences.append(f"The intervals are too narrow if {task.noun} in one group (data.split) resemble each other.")
    narrow = [METRICS[name].title for name in names if name in _NARROW_WITH_RARE_CLASSES]
    if narrow and task.is_single_label:
        counts = np.bincount(labels, minlength=task.outputs)
        if rare := [quoted(name) for name, n in zip(task.labels, counts, strict=True) if n < MIN_PER_CLASS]:
            reason = f"fewer than {MIN_PER_CLASS} {split} {task.noun} have these labels: {listing(rare)}"
            sentences.append(f"The intervals of {' and '.join(narrow)} may be too narrow, because {reason}.")
    return sentences
