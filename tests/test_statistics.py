"""Simulations of the statistics: false positives, power and coverage. `pytest -n 0 -s -m slow` prints the tables."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import as_predictions
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri

from pipeline.evaluation import intervals
from pipeline.evaluation.intervals import Difference, difference, jackknife
from pipeline.evaluation.metrics import METRICS, Floats, Ints, Values
from pipeline.evaluation.predictions import Predictions
from pipeline.experiments import learning_curves
from pipeline.sources.demo import DEMO

pytestmark = pytest.mark.slow

SIMULATIONS = 2000  # a rate of 5% is then measured as 5 ± 0.5%
RUNS = (10, 5, 3, 2)  # per side
CORRELATION = 0.86  # between the labels and the predictions of a regression
# How strongly two runs are correlated in how well they do on an example: two runs of one configuration, and runs of two
# configurations that are equally good overall but on different examples. They disagree on 12% and 13% of the pairs.
ONE_CONFIGURATION, TWO_CONFIGURATIONS = 0.75, 0.70

Jackknives = dict[str, Floats]  # keyed by metric, shape (2, runs, 1 + groups): `jackknife` of each run on both sides


def noise(configurations: int, runs: int, n: int, random: np.random.Generator) -> Floats:
    """Return how easy each example is for each run: variance 1, partly shared, shape (configurations, runs, n)."""
    parts = (
        (TWO_CONFIGURATIONS, (n,)),
        (ONE_CONFIGURATION - TWO_CONFIGURATIONS, (configurations, 1, n)),
        (1 - ONE_CONFIGURATION, (configurations, runs, n)),
    )
    ease: Floats = sum(np.sqrt(variance) * random.standard_normal(shape) for variance, shape in parts)
    return ease


class Classification:
    """Runs of a binary classification whose accuracy varies between seeds, with standard deviation `deviation`."""

    positive = 0.67  # the proportion of equivalent pairs in MRPC
    recall = (0.738, 0.92)  # of class 0 and 1, for a model with an accuracy of 0.86
    is_stratified = False

    def __init__(self, n: int, deviation: float, random: np.random.Generator, runs: int = RUNS[0]) -> None:
        positions = (np.arange(n) + 0.5) / n if self.is_stratified else random.random(n)
        self.labels = (positions < self.positive).astype(int)
        self._means, self._weights = ndtri(self.recall), np.bincount(self.labels, minlength=2) / n  # of each class
        slope = stats.norm.pdf(self._means) @ self._weights  # how fast the accuracy grows with the ease of all examples
        seeds = deviation / slope * random.standard_normal((2, runs, 1))
        self._ease = self._means[self.labels] + noise(2, runs, n, random) + seeds
        self.logits = np.where(self.labels, self._ease, -self._ease)  # of class 1

    def correct(self, gain: float) -> Any:
        """Return the examples that each run gets right, shape (2, runs, n), if B is better by `gain` in accuracy."""
        target = min(ndtr(self._means) @ self._weights + gain, 0.999)
        shift = brentq(lambda shift: ndtr(self._means + shift) @ self._weights - target, -1, 9)
        return self._ease + np.array([0, shift]).reshape(2, 1, 1) > 0

    def jackknives(self) -> Jackknives:
        return class_jackknives(self.labels, self.logits > 0) | ranking_jackknives(self.labels, self.logits)


class RareClass(Classification):
    """One in a hundred examples is positive. Both classes have normal scores, two standard deviations apart."""

    positive = 0.01
    recall = (0.933, 0.691)
    is_stratified = True


class SeveralLabels:
    """Runs of a multi-label classification with three labels, each like those of `Classification`."""

    def __init__(self, n: int, deviation: float, random: np.random.Generator, runs: int = RUNS[0]) -> None:
        columns = [Classification(n, deviation, random, runs) for _ in range(3)]
        self.labels = np.stack([column.labels for column in columns], axis=-1)
        self.logits = np.stack([column.logits for column in columns], axis=-1)

    def jackknives(self) -> Jackknives:
        predicted = self.logits > 0
        correct, total = sums((self.labels * predicted).sum(axis=-1), (self.labels + predicted).sum(axis=-1))
        return {"f1_micro": 2 * correct / total}


class Regression:
    """Runs of a regression whose correlation varies between seeds, with standard deviation `deviation`."""

    def __init__(self, n: int, deviation: float, random: np.random.Generator, runs: int = RUNS[0]) -> None:
        self.labels = random.standard_normal(n)
        slope = CORRELATION * (1 - CORRELATION**2)  # how the correlation changes with the logarithm of the noise
        factor = np.exp(deviation / slope * random.standard_normal((2, runs, 1)))
        self.logits = self.labels + np.sqrt(1 / CORRELATION**2 - 1) * factor * noise(2, runs, n, random)

    def jackknives(self) -> Jackknives:
        a, b = self.labels, self.logits
        x, y, xx, yy, xy, errors, n = sums(a, b, a * a, b * b, a * b, (a - b) ** 2, np.ones_like(a))
        included = examples_without_groups(len(self.labels))

        def centered_ranks(values: Floats) -> Any:
            order, ranks = np.argsort(values), np.empty_like(included)
            ranks[:, order] = np.cumsum(included[:, order], axis=1)
            return (ranks - (included.sum(axis=1, keepdims=True) + 1) / 2) * included

        ranks = centered_ranks(a)
        covariances = [[(ranks * centered_ranks(run)).sum(axis=1) for run in side] for side in b]
        return {
            "pearson": (n * xy - x * y) / np.sqrt((n * xx - x**2) * (n * yy - y**2)),
            "rmse": np.sqrt(errors / n),
            "spearmanr": np.array(covariances) / (ranks * ranks).sum(axis=1),
        }


Simulation = type[Classification | SeveralLabels | Regression]


@functools.cache
def examples_without_groups(n: int) -> Floats:
    """Return all examples, and the examples without each group of `jackknife`, as 0 and 1, shape (1 + groups, n)."""
    group = np.random.default_rng(0).permutation(n) % intervals._GROUPS
    return np.array([np.ones(n), *(group != number for number in range(min(n, intervals._GROUPS)))], dtype=float)


def sums(*values: Values) -> list[Floats]:
    """Return the sums of each array over all examples, and over all examples without each group."""
    included = examples_without_groups(values[0].shape[-1])
    return [np.asarray(value, dtype=float) @ included.T for value in values]


def class_jackknives(labels: Ints, predicted: Values) -> Jackknives:
    """Do the same as `jackknife` for each run, but a thousand times faster, from the counts in each group."""
    correct, predicted, actual, n = sums(labels * predicted, predicted, labels, np.ones_like(labels))
    negatives = n - predicted - actual + correct
    variances = predicted * (n - predicted) * actual * (n - actual)
    return {
        "accuracy": (correct + negatives) / n,
        "balanced_accuracy": (correct / actual + negatives / (n - actual)) / 2,
        "f1": 2 * correct / (predicted + actual),
        "f1_macro": correct / (predicted + actual) + negatives / (2 * n - predicted - actual),
        "matthews_correlation": (n * correct - predicted * actual) / np.sqrt(np.maximum(variances, 1)),
    }


def ranking_jackknives(labels: Ints, logits: Floats) -> Jackknives:
    """Do the same for metrics of the order of the logits."""
    included = examples_without_groups(len(labels))
    sizes, positives = included.sum(axis=1, keepdims=True), (included @ labels)[:, np.newaxis]
    areas = np.empty((*logits.shape[:-1], len(included)))
    for run in np.ndindex(logits.shape[:-1]):
        order = np.argsort(logits[run])
        ranks = np.cumsum(included[:, order], axis=1)
        is_positive = included[:, order] * labels[order]
        higher_pairs = (ranks * is_positive).sum(axis=1, keepdims=True) - positives * (positives + 1) / 2
        areas[run] = (higher_pairs / (positives * (sizes - positives)))[:, 0]
    return {"roc_auc": areas}


def predictions_of_last_run(simulated: Classification | SeveralLabels | Regression) -> Predictions:
    logits = simulated.logits[-1, -1]
    predicted = logits if isinstance(simulated, Regression) else (logits > 0).astype(int)
    several = isinstance(simulated, SeveralLabels)
    return as_predictions(simulated.labels, predicted, expit(logits if several else np.stack([-logits, logits], -1)))


@pytest.mark.parametrize("simulation", [Classification, SeveralLabels, Regression])
def test_the_fast_jackknives_match_the_jackknives_of_the_metrics(simulation: Simulation) -> None:
    simulated = simulation(300, 0.01, np.random.default_rng(0), runs=3)
    for name, values in simulated.jackknives().items():
        assert values[-1, -1] == pytest.approx(jackknife(name, predictions_of_last_run(simulated)), abs=1e-11), name


def show(title: str, table: pd.DataFrame) -> pd.DataFrame:
    print(f"\n{title}, in percent\n{table.to_string(float_format=lambda rate: f'{100 * rate:.1f}')}")
    return table


def rates(title: str, results: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
    """Return how often the last columns are true for each combination of the first columns."""
    table = pd.DataFrame(results, columns=columns)
    settings = [name for name in columns if table[name].dtype != bool]
    return show(title, table.groupby(settings, sort=False).mean())


@pytest.mark.parametrize(
    ("simulation", "n", "deviation"),
    [
        (Classification, 408, 0.015),
        (Regression, 408, 0.015),
        (SeveralLabels, 408, 0.015),
        pytest.param(Classification, 408, 0.005, marks=pytest.mark.simulation),
        pytest.param(Classification, 1725, 0.005, marks=pytest.mark.simulation),
        pytest.param(Classification, 1725, 0.015, marks=pytest.mark.simulation),
    ],
)
def test_equal_groups_are_called_different_in_5_percent_of_cases(
    simulation: Simulation, n: int, deviation: float
) -> None:
    random, results = np.random.default_rng(0), []
    for _ in range(5000):  # A rate of 5% is then measured as 5 ± 0.3%.
        jackknives = simulation(n, deviation, random).jackknives()
        for name, runs, seeds in itertools.product(jackknives, RUNS, ("same", "different")):
            _, low, high, _ = difference(*jackknives[name][:, :runs], same_seeds=seeds == "same")
            results.append((name, runs, seeds, low > 0, high < 0))
    title = f"Equal groups, {n} examples, standard deviation {100 * deviation} points"
    table = rates(title, results, ["metric", "runs", "seeds", "better", "worse"])
    assert (table["better"] + table["worse"]).max() <= 0.055
    assert table["better"].max() <= 0.035, "a loss as large as the margin passes the gate this often"


@pytest.mark.parametrize(("n", "deviation"), [(1725, 0.01), (300, 0.02), (100, 0.02), (30, 0.02)])
def test_a_detectable_difference_is_found_in_about_80_percent_of_cases(n: int, deviation: float) -> None:
    random = np.random.default_rng(0)
    simulated = [Classification(n, deviation, random) for _ in range(250)]  # 80% is then measured as 80 ± 2.5%.
    rows = []

    def compare(gain: float, runs: int, same_seeds: bool) -> Iterator[Difference]:
        for classes in simulated:
            correct = classes.correct(gain)[:, :runs]
            result = difference(*(sums(correct)[0] / sums(np.ones(n))[0]), same_seeds=same_seeds)
            hits_a, hits_b = correct.sum(axis=1)
            yield result if np.sum(hits_a != hits_b) >= intervals.MIN_CHANGED else result._replace(low=-1.0)

    for runs, same_seeds in itertools.product(RUNS, (True, False)):
        detectable = float(np.mean([result.detectable for result in compare(0, runs, same_seeds)]))
        gains = {"detected": detectable, **{f"+{points} detected": points / 100 for points in (1, 2, 3, 5, 10)}}
        rates = {
            name: np.mean([result.low > 0 for result in compare(gain, runs, same_seeds)])
            for name, gain in gains.items()
        }
        rows.append({"runs": runs, "same seeds": same_seeds, "detectable": detectable, **rates})
    table = show(f"Accuracy of {n} examples, standard deviation {100 * deviation} points", pd.DataFrame(rows))
    if n > 30:  # With fewer examples, often fewer than ten of them change.
        # `compare` states no detectable difference below five runs.
        assert table["detected"][:4].between(0.75, 0.9).all()


class Learners:
    """Two linear discriminants. Each one sees half of the features.

    The features of the second one separate the classes better by `advantage`, as a proportion.
    """

    features = 40

    def __init__(self, n: int, k: int, random: np.random.Generator, advantage: float = 0) -> None:
        self.labels = np.resize([0, 1], n)
        self.folds = random.permutation(n) % k
        distances = np.resize([1, 1 + advantage], self.features) * 2.2 / np.sqrt(self.features)  # between the classes
        self._values = random.standard_normal((n, self.features)) + distances * self.labels[:, None]

    def correct(self, learner: int) -> Any:
        """Return whether learner 0 or 1 is right about each row, out of fold."""
        values = self._values[:, learner::2]
        predicted = np.zeros_like(self.labels)
        for fold in range(self.folds.max() + 1):
            train = self.folds != fold
            means = [values[train & (self.labels == label)].mean(axis=0) for label in (0, 1)]
            weights = np.linalg.solve(np.cov(values[train].T), means[1] - means[0])
            predicted[~train] = (values[~train] - np.mean(means, axis=0)) @ weights > 0
        return (predicted == self.labels).astype(int)

    def compare(self) -> Difference:
        """Compare the accuracies of both learners."""
        a, b = self.correct(0), self.correct(1)
        gains = [(b - a)[self.folds == fold].mean() for fold in range(self.folds.max() + 1)]
        jackknife_a, jackknife_b, n = sums(a, b, np.ones_like(a))
        return intervals.fold_difference(jackknife_a / n, jackknife_b / n, np.array(gains))


@pytest.mark.parametrize(("advantage", "low", "high"), [(0, 0, 0.055), (0.2, 0.2, 0.35), (0.4, 0.8, 0.95)])
def test_fold_groups_find_large_differences_and_at_most_5_percent_of_equal_learners(
    advantage: float, low: float, high: float
) -> None:
    rows = []
    for n, k in itertools.product((200, 500, 1000), (2, 5, 10)):
        random = np.random.default_rng(0)
        results = [Learners(n, k, random, advantage).compare() for _ in range(250 if advantage else 1000)]
        values, lows, highs = np.array([result[:3] for result in results]).T
        found, half_width = np.mean((lows > 0) | (highs < 0)), np.mean(highs - values)
        rows.append({"rows": n, "k": k, "difference": values.mean(), "found": found, "half width": half_width})
    table = show(f"Fold groups, the second learner has an advantage of {advantage}", pd.DataFrame(rows))
    assert low <= table["found"].max() <= high


@pytest.mark.parametrize(
    ("simulation", "n"),
    [*itertools.product((Classification, SeveralLabels, Regression), (40, 100, 408, 1725)), (RareClass, 500)],
)
def test_jackknife_intervals_contain_the_true_score_in_93_to_98_percent_of_cases(
    simulation: Simulation, n: int
) -> None:
    random, results = np.random.default_rng(0), []
    population = predictions_of_last_run(simulation(1_000_000, 0, random, runs=1))
    true = {name: population.score(name) for name in simulation(n, 0, random, runs=1).jackknives()}
    for _ in range(SIMULATIONS):
        for name, values in simulation(n, 0, random, runs=1).jackknives().items():
            _, low, high = intervals._jackknife_interval(METRICS[name].scale, n, values[-1, -1])
            results.append((name, true[name], low <= true[name] <= high))
    table = rates(f"{simulation.__name__}, 95% intervals over {n} examples", results, ["metric", "true", "covered"])
    covered = table["covered"].droplevel("true").drop("f1", errors="ignore")  # F1 has another interval.
    if simulation is RareClass:
        narrow = ["balanced_accuracy", "roc_auc"]
        assert covered[narrow].max() < 0.93, "`caveats` would not have to warn"
        covered = covered.drop(narrow)
    assert covered.between(0.93, 0.98).all()


@pytest.mark.parametrize("n", [40, 100, 408, 1725])
def test_intervals_of_accuracy_and_f1_contain_the_true_score_in_93_to_98_percent_of_cases(n: int) -> None:
    random, results = np.random.default_rng(0), []
    for true in (0.8, 0.85, 0.9, 0.95, 0.97):
        hits, count = sums(random.random((SIMULATIONS, n)) < true, np.ones(n))
        for values in hits / count:
            _, low, high = intervals._jackknife_interval("proportion", n, values)
            results.append(("accuracy", true, low <= true <= high))
    for positive, true in itertools.product((0.1, 0.3, 0.67), (0.6, 0.75, 0.9)):
        errors = positive * (1 - true)  # as many false positives as false negatives
        for cells in random.multinomial(n, [positive - errors, errors, errors, 1 - positive - errors], SIMULATIONS):
            examples = as_predictions(np.repeat([1, 1, 0, 0], cells), np.repeat([1, 0, 1, 0], cells))
            _, low, high = intervals.score_interval("f1", DEMO, examples)
            results.append((f"F1, {positive} positive", true, low <= true <= high))
    table = rates(f"95% intervals over {n} examples", results, ["metric", "true", "covered"])
    assert table["covered"].between(0.93, 0.98).all()


def power_curve(low: float, high: float, exponent: float) -> Callable[[Floats], Floats]:
    """Return a curve of the error by the proportion of rows, from `high` with 1/16 of the rows to `low` with all."""
    factor = (high - low) / (1 - 16**-exponent)
    return lambda part: high - factor + factor * (16 * part) ** -exponent


LEARNING_CURVES: dict[str, Callable[[Floats], Floats]] = {
    "power law, 60 to 90%, exponent 0.6": power_curve(0.1, 0.4, 0.6),
    "power law, 60 to 90%, exponent 1": power_curve(0.1, 0.4, 1),
    "power law, 70 to 85%, exponent 0.3": power_curve(0.15, 0.3, 0.3),
    "fast, then nearly flat": lambda part: 0.1 + 0.35 * expit(1.2 - 1.2 * np.log2(16 * part)),
    "flat at 88%": lambda part: 0.12 + 0 * part,
    "accelerates until a quarter of the rows": lambda part: 0.07 + 0.36 * expit(2.2 - 1.1 * np.log2(16 * part)),
}


def test_the_intervals_of_a_learning_curve_cover_the_truth_in_about_80_percent_of_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The standard deviation of the accuracy between seeds is 1.0 points with all rows and 2.6 with a sixteenth."""
    monkeypatch.setattr(learning_curves, "_DRAWS", 400)
    simulations, seeds, parts, random, rows = 300, 3, 0.5 ** np.arange(4, -1, -1), np.random.default_rng(0), []
    for (name, curve), n in itertools.product(LEARNING_CURVES.items(), (300, 1000)):
        measured, intervals = [], []
        mean_ease = stats.norm.ppf(1 - curve(parts))[:, None, None]
        deviation = 0.01 * parts[:, None, None] ** -0.35 / stats.norm.pdf(mean_ease)
        for _ in range(simulations):
            seed_effect = deviation * random.standard_normal((len(parts), seeds, 1))
            wrong, count = sums(mean_ease + seed_effect + noise(len(parts), seeds, n, random) < 0, np.ones(n))
            errors = wrong / count
            # The mean score of the full size, which is measured too, from the sizes up to half of the rows.
            curves = learning_curves.plausible_curves(2 * parts[:-1], errors[:-1])
            error = np.sqrt(errors[:-1, :, 0].var(axis=1, ddof=1).mean() / seeds) * random.standard_normal(400)
            low, high = np.quantile(learning_curves.predicted_errors(curves, 2) + error, [0.1, 0.9])
            measured.append(low <= errors[-1, :, 0].mean() <= high)
            # The true gain from twice the rows, from all sizes.
            curves = learning_curves.plausible_curves(parts, errors)
            with_all, with_twice = (learning_curves.predicted_errors(curves, multiple) for multiple in (1, 2))
            intervals.append(np.quantile(with_all - with_twice, [0.1, 0.9]))
        gain, (low, high) = float(curve(np.array(1.0)) - curve(np.array(2.0))), np.transpose(intervals)
        covered = {"score": np.mean(measured), "gain": np.mean((low - 1e-6 <= gain) & (gain <= high))}
        rows.append({"curve": name, "examples": n, **covered, "true gain": gain, "from": low.mean(), "to": high.mean()})
        # No interval from the first half can foresee where a curve that still accelerates will bend.
        assert "accelerates" in name or min(covered.values()) >= 0.77, name
    show(
        "80% intervals of learning curves, 3 seeds, 5 sizes: how often they contain the score and the gain",
        pd.DataFrame(rows),
    )
