"""Confidence intervals and comparisons match their definitions and other libraries."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from report_inputs import TASKS
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score

from pipeline.evaluation.metrics import METRICS, Floats, Ints, Values
from pipeline.evaluation.uncertainty import (
    MIN_CHANGED,
    Difference,
    difference,
    fold_difference,
    jackknife,
    score_caveats,
    score_intervals,
)

SCORES: dict[str, Callable[[Ints, Ints], float]] = {
    "accuracy": accuracy_score,
    "f1": lambda labels, predictions: f1_score(labels, predictions, zero_division=0),
}


def paired_differences(
    names: Iterable[str], labels: Values, a: Values, b: Values, *, same_seeds: bool
) -> dict[str, Difference]:
    """Compare A and B by each metric. a, b: the predictions of each run."""
    sides = {name: [np.stack([jackknife(name, labels, run) for run in side]) for side in (a, b)] for name in names}
    return {name: difference(*both, same_seeds=same_seeds) for name, both in sides.items()}


def random_runs(n: int, quality: float, runs: int, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Return labels, and the predictions of runs that find the same examples hard."""
    labels = random.integers(2, size=n)
    hard = random.beta(2, 2, size=n) - 0.5
    right = random.random((runs, n)) < quality - 0.6 * hard
    return labels, np.where(right, labels, 1 - labels)


def test_the_difference_is_the_difference_between_the_mean_scores() -> None:
    labels, predictions = random_runs(200, 0.8, 5, np.random.default_rng(0))
    result = paired_differences(SCORES, labels, predictions[:2], predictions[2:], same_seeds=False)
    for name, score in SCORES.items():
        scores = [score(labels, run) for run in predictions]
        assert result[name].value == pytest.approx(np.mean(scores[2:]) - np.mean(scores[:2]))


def mean_squares(right: Ints) -> tuple[float, float]:
    """Return the mean squares of examples and residual in a two-way ANOVA. right: shape (runs, examples)."""
    runs, n = right.shape
    run_means, example_means = right.mean(1, keepdims=True), right.mean(0, keepdims=True)
    residual = right - run_means - example_means + right.mean()
    return float(runs * example_means.var(ddof=1)), float((residual**2).sum() / (runs - 1) / (n - 1))


def test_the_interval_of_groups_with_the_same_seeds_follows_the_analysis_of_variance() -> None:
    labels, predictions = random_runs(200, 0.8, 6, np.random.default_rng(4))
    right = (predictions == labels).astype(int)
    table = right[3:] - right[:3]
    examples, residual = mean_squares(table)
    shared, between = max((examples - residual) / table.size, 0), table.mean(1).var(ddof=1) / 3

    def half_width(quantile: float) -> float:
        return float(np.sqrt(shared * stats.t(199).ppf(quantile) ** 2 + between * stats.t(2).ppf(quantile) ** 2))

    result = paired_differences(SCORES, labels, predictions[:3], predictions[3:], same_seeds=True)["accuracy"]
    assert shared > 0
    assert result.high - result.value == pytest.approx(half_width(0.975))
    assert result.value - result.low == pytest.approx(half_width(0.975))


def test_groups_with_different_seeds_are_compared_with_welchs_t_test() -> None:
    labels, predictions = random_runs(200, 0.8, 7, np.random.default_rng(3))
    a, b = (side == labels for side in np.split(predictions, [3]))
    welch = stats.ttest_ind(a.mean(1), b.mean(1), equal_var=False)
    between = a.mean(1).var(ddof=1) / 3 + b.mean(1).var(ddof=1) / 4
    mean_models = (b.mean(0) - a.mean(0)).var(ddof=1) / 200
    shared = mean_models - sum(mean_squares(side.astype(int))[1] / side.size for side in (a, b))
    half_width = np.sqrt(shared * stats.t(199).ppf(0.975) ** 2 + between * stats.t(welch.df).ppf(0.975) ** 2)
    result = paired_differences(SCORES, labels, predictions[:3], predictions[3:], same_seeds=False)["accuracy"]
    assert shared > 0
    assert (result.low, result.high) == pytest.approx((result.value - half_width, result.value + half_width))


@pytest.mark.parametrize("same_seeds", [True, False])
def test_seeds_without_an_effect_give_the_interval_of_single_models(same_seeds: bool) -> None:
    """The variance between runs is 0, so only the variance over examples is left, in both F1 and accuracy."""
    labels, (a, b) = random_runs(200, 0.8, 2, np.random.default_rng(9))
    single = paired_differences(SCORES, labels, a[np.newaxis], b[np.newaxis], same_seeds=False)
    group = paired_differences(SCORES, labels, np.stack([a] * 3), np.stack([b] * 3), same_seeds=same_seeds)
    for name in SCORES:
        for attribute in ("value", "low", "high", "detectable"):
            assert getattr(group[name], attribute) == pytest.approx(getattr(single[name], attribute))


def test_the_interval_of_a_group_is_never_narrower_than_the_interval_of_its_mean_models() -> None:
    """Each run of B is better on two examples that no other run improves. The scores of the runs do not vary."""
    labels = np.ones(60, dtype=int)
    a, b = np.zeros((3, 60), dtype=int), np.zeros((3, 60), dtype=int)
    for run in range(3):
        b[run, 2 * run : 2 * run + 2] = 1
    result = paired_differences(SCORES, labels, a, b, same_seeds=True)["accuracy"]
    assert result.value == pytest.approx(2 / 60)
    error = (b.mean(0) - a.mean(0)).std(ddof=1) / 60**0.5
    assert result.high - result.value == pytest.approx(stats.t(59).ppf(0.975) * error)


def test_runs_that_change_different_examples_get_a_students_t_interval() -> None:
    """The runs have no effect in common, so their differences get a Student's t interval."""
    labels = np.ones(60, dtype=int)
    a, b = np.zeros((3, 60), dtype=int), np.zeros((3, 60), dtype=int)
    b[0, :10], b[1, 10:22], b[2, 22:40] = 1, 1, 1
    result = paired_differences(SCORES, labels, a, b, same_seeds=True)["accuracy"]
    differences = [10 / 60, 12 / 60, 18 / 60]
    expected = stats.t.interval(0.95, 2, loc=np.mean(differences), scale=stats.sem(differences))
    assert (result.low, result.high) == pytest.approx(expected)


@pytest.mark.parametrize(("right", "n"), [(0, 5), (1, 20), (39, 40), (9, 9), (1475, 1725)])
def test_accuracy_gets_a_wilson_interval(right: int, n: int) -> None:
    labels = np.arange(n) % 2
    predictions = np.where(np.arange(n) < right, labels, 1 - labels)
    expected = stats.binomtest(right, n).proportion_ci(method="wilson")
    result = score_intervals(SCORES, labels, predictions)["accuracy"]
    assert result == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= result.low < result.high <= 1


@pytest.mark.parametrize(
    ("true_positives", "errors", "negatives"), [(39, 1, 0), (39, 1, 60), (40, 0, 5), (0, 3, 5), (900, 250, 575)]
)
def test_the_interval_of_f1_follows_from_a_wilson_interval(true_positives: int, errors: int, negatives: int) -> None:
    labels = np.repeat([1, 1, 0], [true_positives, errors, negatives])
    predictions = np.repeat([1, 0, 0], [true_positives, errors, negatives])
    proportion = stats.binomtest(true_positives, true_positives + errors).proportion_ci(method="wilson")
    low, high = (2 * bound / (1 + bound) for bound in (proportion.low, proportion.high))
    result = score_intervals(SCORES, labels, predictions)["f1"]
    assert result == pytest.approx((low, high), abs=1e-12)
    # False positives count like false negatives.
    assert score_intervals(SCORES, predictions, labels)["f1"] == result
    assert result.low <= f1_score(labels, predictions) <= result.high + 1e-12


def test_a_perfect_score_and_a_score_of_0_lie_in_their_intervals() -> None:
    """Rounding must not move a bound past the score. With 60 examples, the upper one was slightly below 1."""
    for n in range(1, 200):
        labels = np.ones(n, int)
        assert score_intervals(["accuracy"], labels, labels)["accuracy"].high == 1
        assert score_intervals(["accuracy"], labels, 1 - labels)["accuracy"].low == 0


def test_without_positives_the_interval_of_f1_is_0_to_1() -> None:
    assert score_intervals(SCORES, np.zeros(9, dtype=int), np.zeros(9, dtype=int))["f1"] == (0, 1)


def test_pairing_by_seed_cancels_the_effect_of_a_seed_on_both_sides() -> None:
    random = np.random.default_rng(4)
    labels = random.integers(2, size=300)
    a = np.stack([np.where(random.random(300) < accuracy, labels, 1 - labels) for accuracy in (0.6, 0.7, 0.8, 0.9)])
    b = a.copy()
    first_wrong = np.argmax(b != labels, axis=1)
    b[range(4), first_wrong] = labels[first_wrong]  # each run of B gets one more example right than the same seed of A
    widths = {}
    for same_seeds in (True, False):
        result = paired_differences(SCORES, labels, a, b, same_seeds=same_seeds)["accuracy"]
        widths[same_seeds] = result.high - result.low
    assert widths[False] > 10 * widths[True]


def test_the_difference_between_identical_runs_is_0() -> None:
    labels, predictions = random_runs(100, 0.8, 1, np.random.default_rng(8))
    result = paired_differences(SCORES, labels, predictions, predictions, same_seeds=True)["f1"]
    assert (result.value, result.low, result.high, result.detectable) == (0, 0, 0, 0)


def test_folds_are_compared_by_the_mean_of_their_differences() -> None:
    """Two learners rank the examples of each fold equally well. A's folds have other offsets, which cost B nothing."""
    random, n = np.random.default_rng(0), 400
    labels, fold = np.arange(n) % 2, np.arange(n) // 100
    noise = labels + random.standard_normal(n)
    scores = {"a": noise + 3.0 * fold, "b": noise}
    compute = METRICS["roc_auc"].compute

    def auc(values: Floats, rows: Any) -> float:
        return compute(labels[rows], labels[rows], np.stack([-values[rows], values[rows]], axis=1))

    differences = np.array([auc(scores["b"], fold == k) - auc(scores["a"], fold == k) for k in range(4)])
    pooled = [np.array([auc(values, fold >= 0)] * 3) for values in scores.values()]
    assert pooled[1][0] - pooled[0][0] > 0.1
    assert fold_difference(*pooled, differences).value == 0


def test_with_at_most_200_examples_the_jackknife_leaves_out_one_example_at_a_time() -> None:
    labels, (predictions,) = random_runs(40, 0.8, 1, np.random.default_rng(0))
    without = [METRICS["f1"].compute(np.delete(labels, i), np.delete(predictions, i), None) for i in range(40)]
    score, *left_out = jackknife("f1", labels, predictions)
    assert score == f1_score(labels, predictions)
    assert sorted(left_out) == pytest.approx(sorted(without))


@pytest.mark.parametrize(("name", "perfect"), [("f1_macro", 1), ("roc_auc", 1), ("pearson", 1), ("rmse", 0)])
def test_a_perfect_score_has_an_interval_as_wide_as_for_perfect_accuracy(name: str, perfect: float) -> None:
    """The jackknife sees no variance at a perfect score."""
    labels = np.arange(50) % 2
    probabilities = np.stack([1 - labels, labels], axis=1)
    low, high = score_intervals([name], labels, labels, probabilities)[name]
    gap = 1 - score_intervals(["accuracy"], labels, labels)["accuracy"].low
    assert perfect in (low, high)
    assert high - low == pytest.approx(gap * (2 if name == "pearson" else 1))


def test_two_examples_on_a_line_have_the_widest_interval() -> None:
    """Their correlation is 1, and must not become 0.9999999999999999 with an interval of no width."""
    low, high = score_intervals(["pearson"], np.array([0.3, 1.7]), np.array([0.7, 1.9]))["pearson"]
    assert high == 1
    assert low < 0


def test_a_score_that_these_labels_do_not_define_cannot_be_interpreted() -> None:
    task, labels = TASKS["pairs"], np.zeros(200, dtype=int)
    [caveat] = score_caveats(["accuracy", "f1"], task, "test", labels, split_type=None)
    assert caveat.startswith("F1 cannot be interpreted on test, ")
    assert not score_caveats(["accuracy", "f1"], task, "test", 1 - labels, split_type=None)


@pytest.mark.parametrize("rare", [0, 1])
def test_a_label_that_nearly_all_examples_have_is_as_uncertain_as_a_rare_one(rare: int) -> None:
    task = TASKS["multi_label"]
    labels = np.full((200, task.outputs), 1 - rare)
    labels[:5] = rare
    [caveat] = score_caveats(["roc_auc"], task, "test", labels, split_type=None)
    assert f'"{task.labels[0]}"' in caveat


@functools.cache
def differs(fixed: int, broken: int, n: int) -> bool:
    """Return whether two runs differ in accuracy if B fixes and breaks these numbers of examples."""
    labels = np.ones(n, dtype=int)
    a, b = labels.copy(), labels.copy()
    a[:fixed] = 0
    b[fixed : fixed + broken] = 0
    result = paired_differences(["accuracy"], labels, a[None], b[None], same_seeds=True)["accuracy"]
    return fixed + broken >= MIN_CHANGED and not result.low <= 0 <= result.high


@pytest.mark.parametrize("mean", [6, 12, 24])
def test_equal_models_are_called_different_in_about_5_percent_of_cases_however_few_examples_change(mean: int) -> None:
    """The rate covers how many examples change and how many of them B gets right."""
    rate = 0.0
    for changed in range(MIN_CHANGED, 60):
        probability = stats.poisson.pmf(changed, mean)
        if probability > 1e-3:
            # The more lopsided the change, the clearer the difference. Find the fewest fixed examples that suffice.
            fewest = next(fixed for fixed in range(changed // 2, changed + 2) if differs(fixed, changed - fixed, 200))
            rate += 2 * probability * stats.binom.sf(fewest - 1, changed, 0.5)
    assert rate <= 0.055


def test_the_interval_of_a_score_that_depends_on_one_example_stays_within_bounds() -> None:
    labels = np.zeros(1000, int)
    labels[0] = 1  # without it, the area under the curve is 0.5
    probability = np.linspace(0.4, 0, 1000)
    probability[1] = 0.5  # ranked before the only positive example
    probabilities = np.column_stack([1 - probability, probability])
    low, high = score_intervals(["roc_auc"], labels, np.zeros(1000, int), probabilities)["roc_auc"]
    assert 0 <= low < 0.5 and 0.999 <= high <= 1
