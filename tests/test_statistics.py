"""Simulations of the statistics: false positives, power and coverage. `pytest -n 0 -s -m slow` prints the tables."""

import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from pipeline.evaluation.calibration import expected_calibration_error, if_calibrated, reliability
from pipeline.evaluation.metrics import Floats, Ints
from pipeline.evaluation.uncertainty import paired_differences, score_intervals

pytestmark = pytest.mark.slow

SCORES = ("accuracy", "f1", "matthews_correlation")
RANKS = ("spearmanr",)
SIMULATIONS = 2000  # a rate of 5 % is then found as 5 +- 0.5 %
POSITIVE = 0.67  # of MRPC's pairs
RECALL = {1: 0.92, 0: 0.738}  # of a model with accuracy 0.86
# Correlation between two runs of how well they do on an example: within one configuration, and between two that are
# equally good overall, but on different examples. Two runs then disagree on 12 and 13 % of the pairs.
ONE_CONFIGURATION, TWO_CONFIGURATIONS = 0.75, 0.70


class Groups(NamedTuple):
    """Two groups of runs over seeds. In accuracy: spread, standard deviation over seeds; gain of B over A."""

    runs: int
    n: int
    same_seeds: bool
    spread: float
    gain: float = 0


def predictions(of: Groups, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Labels, shape (n,), and predictions, shape (2, runs, n). All runs share part of an example's difficulty."""
    labels = (random.random(of.n) < POSITIVE).astype(np.int8)
    ease = {label: stats.norm.ppf(recall) for label, recall in RECALL.items()}
    slope = POSITIVE * stats.norm.pdf(ease[1]) + (1 - POSITIVE) * stats.norm.pdf(ease[0])  # of accuracy by ease

    def normal(variance: float, *shape: int) -> np.ndarray:
        return np.sqrt(variance) * random.standard_normal(shape)

    right = (
        np.where(labels, ease[1], ease[0])
        + normal(TWO_CONFIGURATIONS, of.n)
        + normal(ONE_CONFIGURATION - TWO_CONFIGURATIONS, 2, 1, of.n)
        + normal(1 - ONE_CONFIGURATION, 2, of.runs, of.n)
        + normal((of.spread / slope) ** 2, 2, of.runs, 1)
        + np.array([0, of.gain / slope]).reshape(2, 1, 1)
    ) > 0
    return labels, np.where(right, labels, 1 - labels)


def numbers(of: Groups, random: np.random.Generator) -> tuple[Floats, Floats]:
    """As `predictions`, of a regression whose correlation with the labels is 0.86: seeds scale the errors."""
    labels = random.standard_normal(of.n)
    correlation = 0.86
    slope = correlation * (1 - correlation**2)  # of the correlation by the logarithm of the errors' size
    size = np.sqrt(1 / correlation**2 - 1) * np.exp(of.spread / slope * random.standard_normal((2, of.runs, 1)))
    parts = (
        (TWO_CONFIGURATIONS, (of.n,)),
        (ONE_CONFIGURATION - TWO_CONFIGURATIONS, (2, 1, of.n)),
        (1 - ONE_CONFIGURATION, (2, of.runs, of.n)),
    )
    return labels, labels + size * sum(np.sqrt(share) * random.standard_normal(shape) for share, shape in parts)


class Found(NamedTuple):
    """differences: how often the interval of each score excludes 0. In the first score, passes: how often a loss by the
    margin would pass the gate where the true difference is such a loss, which is how often the one-sided p-value is
    below 0.05; detectable: the mean detectable difference.
    """

    differences: dict[str, float]
    passes: float
    detectable: float


def found(of: Groups, simulations: int, scores: tuple[str, ...]) -> Found:
    random = np.random.default_rng(0)
    alarms, passes, detectable = dict.fromkeys(scores, 0), 0, 0.0
    for _ in range(simulations):
        labels, (a, b) = (numbers if scores == RANKS else predictions)(of, random)
        differences = paired_differences(scores, labels, a, b, same_seeds=of.same_seeds)
        first = differences[scores[0]]
        passes += first.value - of.gain > first.reach(0.95)
        detectable += first.detectable
        for name, difference in differences.items():
            alarms[name] += not difference.low <= 0 <= difference.high
    rates = {name: count / simulations for name, count in alarms.items()}
    return Found(rates, passes / simulations, detectable / simulations)


Every = Callable[[list[Groups], int, tuple[str, ...]], list[Found]]


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> Iterator[Every]:
    """Run `found` for many groups in parallel."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with multiprocessing.get_context("spawn").Pool() as pool:
        yield lambda groups, *how: pool.starmap(found, [(of, *how) for of in groups], chunksize=1)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    lines = [[f"{100 * cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    print(f"\n\n{title}", *("  ".join(f"{cell:>11}" for cell in row) for row in (header, *lines)), sep="\n")


@pytest.mark.timeout(2400)  # half an hour of CPU time, on cores that other tests use too
@pytest.mark.parametrize(("scores", "sizes"), [(SCORES, (1725, 408)), (RANKS, (408,))], ids=["classes", "numbers"])
def test_equal_groups_are_called_different_in_five_percent_of_cases(
    scores: tuple[str, ...], sizes: tuple[int, ...], every: Every
) -> None:
    groups = [
        Groups(runs, n, same_seeds, spread)
        for runs, n, same_seeds, spread in itertools.product((10, 5, 3, 2), sizes, (True, False), (0.005, 0.015))
        if runs < 10 or n == max(sizes)  # ten runs take the most time, and have the most reliable variance
    ]
    results = every(groups, SIMULATIONS, scores)
    rows = [
        [of.runs, of.n, "same" if of.same_seeds else "own", of.spread, *its.differences.values(), its.passes]
        for of, its in sorted(zip(groups, results, strict=True))
    ]
    header = ["runs a side", "examples", "seeds", "spread", *scores, "loss passes"]
    table("Equal groups that are called different, and losses by the margin that pass, %", header, rows)
    assert max(rate for its in results for rate in its.differences.values()) <= 0.055
    assert max(its.passes for its in results) <= 0.06, "5 %, and two standard errors"


def test_a_detectable_difference_is_found_in_about_80_percent_of_cases(every: Every) -> None:
    groups = [
        Groups(runs, 1725, same_seeds, spread=0.010)
        for runs, same_seeds in itertools.product((10, 5, 3, 2), (True, False))
    ]
    simulations = 250  # a rate of 80 % is then found as 80 +- 2.5 %
    detectable = [its.detectable for its in every(groups, simulations, SCORES)]
    gains: list[list[float]] = [[0.01, 0.02, 0.03, at] for at in detectable]
    asked = [of._replace(gain=gain) for of, its in zip(groups, gains, strict=True) for gain in its]
    powers = np.array([its.differences["accuracy"] for its in every(asked, simulations, SCORES)]).reshape(-1, 4)
    rows = [
        [of.runs, "same" if of.same_seeds else "own", *power[:3], at, power[3]]
        for of, power, at in sorted(zip(groups, powers.tolist(), detectable, strict=True))
    ]
    header = ["runs a side", "seeds", "+1.0 found", "+2.0 found", "+3.0 found", "detectable", "found"]
    table("Differences in accuracy that are found, %: 1,725 examples, a spread of 1.0 points", header, rows)
    expected = [{2: 0.6, 3: 0.7}.get(of.runs, 0.8) for of in groups]  # as `compare` says
    assert powers[:, 3] == pytest.approx(expected, abs=0.075), "3 standard errors"


def bootstrap(counts: Ints, random: np.random.Generator) -> tuple[tuple[float, float], tuple[float, float]]:
    """Percentile intervals of accuracy and F1. counts: true positives, false negatives, false positives, the rest."""
    n = int(counts.sum())
    drawn = random.multinomial(n, counts / n, size=500)
    both, missed, wrong, _ = drawn.T
    scores = 1 - (missed + wrong) / n, 2 * both / np.maximum(2 * both + missed + wrong, 1)
    accuracy, f1 = (np.percentile(of, (2.5, 97.5)) for of in scores)
    return (accuracy[0], accuracy[1]), (f1[0], f1[1])


def test_intervals_of_scores_have_their_coverage_for_few_examples_and_near_1() -> None:
    random, rows = np.random.default_rng(0), []
    for n, accuracy in itertools.product((20, 40, 100, 408, 1725), (0.7, 0.86, 0.93, 0.97, 0.99)):
        cells = [POSITIVE * accuracy, POSITIVE * (1 - accuracy), (1 - POSITIVE) * (1 - accuracy)]
        true = accuracy, 2 * cells[0] / (2 * cells[0] + cells[1] + cells[2])
        covered = np.zeros((2, 2))
        for counts in random.multinomial(n, [*cells, 1 - sum(cells)], size=SIMULATIONS):
            labels, given = (np.repeat(kinds, counts) for kinds in ([1, 1, 0, 0], [1, 0, 1, 0]))
            intervals = [list(score_intervals(("accuracy", "f1"), labels, given).values()), bootstrap(counts, random)]
            covered += [
                [low - 1e-12 <= value <= high + 1e-12 for value, (low, high) in zip(true, of, strict=True)]
                for of in intervals
            ]
        rows.append([n, accuracy, true[1], *(covered.T.ravel() / SIMULATIONS).tolist()])
    header = ["examples", "accuracy", "F1", "accuracy", "bootstrap", "F1", "bootstrap"]
    table("95 % intervals that hold the true score, %", header, rows)
    for column in (3, 5):
        covered_by_ours = [row[column] for row in rows]
        assert min(covered_by_ours) >= 0.90, "near 1 there are few values that a share can take"
        assert np.mean(covered_by_ours) >= 0.945


def test_a_calibrated_model_is_called_miscalibrated_in_five_percent_of_cases() -> None:
    random, rows = np.random.default_rng(0), []
    for n, sureness in itertools.product((240, 1725), (1, 3, 8)):
        called = np.zeros(4)
        for _ in range(20):
            confidence = 0.5 + 0.5 * random.beta(sureness, 0.6, size=n)
            expected = if_calibrated(confidence)
            for _ in range(SIMULATIONS // 20):
                right = random.random(n)
                accuracy = np.mean(right < confidence)
                error = expected_calibration_error(reliability(confidence, right < confidence))
                overconfident = np.mean(right < confidence - 0.03)
                called += [
                    not expected.accuracy_low <= accuracy <= expected.accuracy_high,
                    abs(confidence.mean() - accuracy) > 0.01,
                    error > expected.calibration_error_high,
                    overconfident < expected.accuracy_low,
                ]
        rows.append([n, float(confidence.mean()), *(called / SIMULATIONS).tolist()])
    header = ["examples", "confidence", "called so", "gap > 1 pt", "ECE > floor", "3 pts found"]
    table("Calibrated models that are called over- or underconfident, %", header, rows)
    for row in rows:
        for rate in (row[2], row[4]):
            assert 0.03 <= rate <= 0.065, "5 %, and 3 standard errors"
