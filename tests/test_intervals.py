"""Confidence intervals and comparisons match their definitions and other libraries."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import as_predictions
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score

from pipeline.core.task import Task
from pipeline.evaluation import intervals
from pipeline.evaluation.intervals import Difference, difference, jackknife, score_interval
from pipeline.evaluation.metrics import METRICS, Ints, Values
from pipeline.sources.demo import DEMO
from pipeline.sources.glue import glue_task

SCORES: dict[str, Callable[..., float]] = {"accuracy": accuracy_score, "f1": f1_score}


def task_of(metric: str) -> Task:
    return glue_task("stsb") if METRICS[metric].problem_types == ("regression",) else DEMO


def compare(metric: str, labels: Values, a: Any, b: Any, same_seeds: bool = True) -> Difference:
    """Compare A and B. a, b: the predictions of each run."""
    sides = [np.stack([jackknife(metric, as_predictions(labels, run)) for run in side]) for side in (a, b)]
    return difference(*sides, same_seeds=same_seeds)


def random_runs(runs: int, n: int = 40) -> tuple[Ints, Ints]:
    """Return labels, and the predictions of runs that find the same examples hard but are not equally good."""
    random = np.random.default_rng(3)
    labels = random.integers(2, size=n)
    right = random.random((runs, n)) < random.uniform(0.5, 1, (runs, 1)) - 0.6 * (random.beta(2, 2, size=n) - 0.5)
    return labels, np.where(right, labels, 1 - labels)


@pytest.mark.parametrize("same_seeds", [True, False])
def test_the_interval_of_seed_groups_follows_the_analysis_of_variance(same_seeds: bool) -> None:
    """Runs and examples are crossed random effects. Different seeds are compared as in Welch's t-test."""
    labels, runs = random_runs(6 if same_seeds else 7)
    runs[3:, :12] = labels[:12]  # All runs of B are right about these examples, so the examples matter.
    a, b = (side.astype(int) for side in np.split(runs == labels, [3]))
    freedom = 2 if same_seeds else stats.ttest_ind(a.mean(1), b.mean(1), equal_var=False).df
    seeds, examples = 0.0, (b.mean(0) - a.mean(0)).var(ddof=1) / 40
    for table in [b - a] if same_seeds else [a, b]:
        residuals = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
        seeds += table.mean(1).var(ddof=1) / len(table)
        examples -= (residuals**2).sum() / (len(table) - 1) / 39 / table.size
    assert examples > 0
    half_width = np.sqrt(examples * stats.t(39).ppf(0.975) ** 2 + seeds * stats.t(freedom).ppf(0.975) ** 2)
    result = compare("accuracy", labels, runs[:3], runs[3:], same_seeds)
    assert (result.low, result.high) == pytest.approx((result.value - half_width, result.value + half_width))
    for metric, score in SCORES.items():
        scores = [score(labels, run) for run in runs]
        value = compare(metric, labels, runs[:3], runs[3:], same_seeds).value
        assert value == pytest.approx(np.mean(scores[3:]) - np.mean(scores[:3]))


@pytest.mark.parametrize("same_seeds", [True, False])
def test_seeds_without_an_effect_give_the_interval_of_single_models(same_seeds: bool) -> None:
    labels, (a, b) = random_runs(2)
    for metric in SCORES:
        single = compare(metric, labels, [a], [b])
        assert compare(metric, labels, [a] * 3, [b] * 3, same_seeds) == pytest.approx(single)
        assert compare(metric, labels, [a], [a]) == (0, 0, 0, 0)


def test_the_interval_of_a_group_is_never_narrower_than_the_interval_of_its_mean_models() -> None:
    """Each run of B fixes two examples that no other run fixes. The scores of the runs do not vary."""
    labels, b = np.ones(40, int), np.zeros((3, 40), int)
    for run in range(3):
        b[run, 2 * run : 2 * run + 2] = 1
    result = compare("accuracy", labels, np.zeros((3, 40), int), b)
    expected = stats.t.interval(0.95, 39, loc=b.mean(), scale=stats.sem(b.mean(0)))
    assert (result.low, result.high) == pytest.approx(expected)


def test_folds_are_compared_with_the_corrected_resampled_t_test() -> None:
    """The pooled scores do not matter. Ranking metrics would compare probabilities from different models there."""
    differences = np.array([0.1, 0.02, 0.05, -0.03])
    result = intervals.fold_difference(np.full(41, 0.4), np.full(41, 0.9), differences)
    scale = np.sqrt((1 / 4 + 1 / 3) * differences.var(ddof=1))
    expected = stats.t.interval(0.95, 3, loc=differences.mean(), scale=scale)
    assert result[:3] == pytest.approx((differences.mean(), *expected))


def test_the_jackknife_of_few_examples_leaves_out_one_example_at_a_time() -> None:
    labels, [predicted] = random_runs(1)
    without = [f1_score(np.delete(labels, i), np.delete(predicted, i)) for i in range(40)]
    score, *left_out = jackknife("f1", as_predictions(labels, predicted))
    assert score == f1_score(labels, predicted)
    assert sorted(left_out) == pytest.approx(sorted(without))


@pytest.mark.parametrize(
    ("true_positives", "errors", "negatives"), [(39, 1, 0), (39, 1, 60), (40, 0, 5), (0, 3, 5), (900, 250, 575)]
)
def test_the_interval_of_f1_follows_from_a_wilson_interval(true_positives: int, errors: int, negatives: int) -> None:
    labels = np.repeat([1, 1, 0], [true_positives, errors, negatives])
    predicted = np.repeat([1, 0, 0], [true_positives, errors, negatives])
    proportion = stats.binomtest(true_positives, true_positives + errors).proportion_ci(method="wilson")
    low, high = (2 * bound / (1 + bound) for bound in (proportion.low, proportion.high))
    result = score_interval("f1", DEMO, as_predictions(labels, predicted))
    assert result == pytest.approx((f1_score(labels, predicted), low, high), abs=1e-5)


def test_the_caveats_name_rare_classes() -> None:
    labels = np.repeat([0, 1], [195, 5])
    [caveat] = intervals.caveats(["accuracy", "roc_auc"], DEMO, "test", labels, None)
    assert f'"{DEMO.labels[1]}"' in caveat and "ROC AUC" in caveat


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [5, 14, 300])
def test_a_perfect_score_has_an_interval_as_wide_as_for_perfect_accuracy(metric: str, n: int) -> None:
    """The jackknife sees no variance at a bound. Rounding must not move a score past it."""
    labels = np.arange(n) % 2
    positive = labels / 2 + np.linspace(0.1, 0.4, n)  # all different
    probability = np.stack([1 - positive, positive], axis=1)
    value, low, high = score_interval(metric, task_of(metric), as_predictions(labels, labels, probability))
    wilson = stats.binomtest(n, n).proportion_ci(method="wilson")
    assert value == (low if metric == "rmse" else high) == (0 if metric == "rmse" else 1)
    assert high - low >= wilson.high - wilson.low - 1e-4


@pytest.mark.parametrize("mean", [6, 12, 24])
def test_equal_models_are_called_different_in_about_5_percent_of_cases_however_few_examples_change(mean: int) -> None:
    """The rate covers how many examples change and how many of them B gets right."""

    def is_difference(fixed: int, broken: int) -> bool:
        labels = np.ones(200, int)
        a, b = labels.copy(), labels.copy()
        a[:fixed], b[fixed : fixed + broken] = 0, 0
        return not compare("accuracy", labels, [a], [b]).low <= 0

    rate = 0.0
    for changed in range(intervals.MIN_CHANGED, 60):
        probability = stats.poisson.pmf(changed, mean)
        if probability > 1e-3:
            # The more lopsided the change, the clearer the difference. Find the fewest fixed examples that suffice.
            fewest = next(n for n in range(changed // 2, changed + 2) if is_difference(n, changed - n))
            rate += 2 * probability * stats.binom.sf(fewest - 1, changed, 0.5)
    assert rate <= 0.055
