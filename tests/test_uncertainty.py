"""Intervals and tests against their definitions, written out slowly, and against other libraries."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from pipeline.metrics import Ints
from pipeline.uncertainty import mcnemar, mean_interval, paired_differences, score_intervals

SCORES: dict[str, Callable[[Ints, Ints], float]] = {
    "accuracy": accuracy_score,
    "f1": lambda labels, predictions: f1_score(labels, predictions, zero_division=0),
}


def drawn(n: int, quality: float, runs: int, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Labels, and predictions of runs that find the same examples hard."""
    labels = random.integers(2, size=n)
    hard = random.beta(2, 2, size=n) - 0.5
    right = random.random((runs, n)) < quality - 0.6 * hard
    return labels, np.where(right, labels, 1 - labels)


def brute_force(
    labels: Ints, a: Ints, b: Ints, same_seeds: bool, score: Callable[[Ints, Ints], float], resamples: int = 1500
) -> tuple[float, float]:
    """Draw examples one by one, and runs, and score what was drawn."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(resamples):
        examples = random.integers(len(labels), size=len(labels))
        runs_a = random.integers(len(a), size=len(a))
        runs_b = runs_a if same_seeds else random.integers(len(b), size=len(b))
        mean_a, mean_b = (
            np.mean([score(labels[examples], side[run][examples]) for run in runs])
            for side, runs in ((a, runs_a), (b, runs_b))
        )
        found.append(mean_b - mean_a)
    low, high = np.percentile(found, (2.5, 97.5))
    return float(low), float(high)


def quick_f1(labels: Ints, predictions: Ints) -> float:
    return float(2 * (labels * predictions).sum() / max((labels + predictions).sum(), 1))


def test_the_difference_is_that_of_the_scores() -> None:
    labels, predictions = drawn(200, 0.8, 5, np.random.default_rng(0))
    found = paired_differences(labels, predictions[:2], predictions[2:], same_seeds=False)
    for name, score in SCORES.items():
        scores = [score(labels, run) for run in predictions]
        assert found[name].value == pytest.approx(np.mean(scores[2:]) - np.mean(scores[:2]))


@pytest.mark.parametrize(("runs", "same_seeds"), [(1, True), (4, True), (4, False)])
def test_intervals_are_those_of_examples_drawn_one_by_one(runs: int, same_seeds: bool) -> None:
    labels, predictions = drawn(150, 0.8, 2 * runs, np.random.default_rng(2))
    a, b = predictions[:runs], predictions[runs:]
    b[:, :20] = labels[:20]  # B is a little better
    found = paired_differences(labels, a, b, same_seeds=same_seeds)
    for name, score in (("accuracy", lambda one, two: np.mean(one == two)), ("f1", quick_f1)):
        low, high = brute_force(labels, a, b, same_seeds, score)
        width = high - low
        assert found[name].low == pytest.approx(low, abs=0.08 * width)
        assert found[name].high == pytest.approx(high, abs=0.08 * width)


def test_the_interval_of_a_score_is_that_of_examples_drawn_one_by_one() -> None:
    labels, (predictions,) = drawn(150, 0.8, 1, np.random.default_rng(3))
    never = np.zeros((1, 150), dtype=int)  # its F1 is 0: the difference is the score
    low, high = brute_force(labels, never, predictions[np.newaxis], False, quick_f1)
    assert score_intervals(labels, predictions)["f1"] == pytest.approx((low, high), abs=0.08 * (high - low))


def test_pairing_by_seed_leaves_out_what_a_seed_does_to_both() -> None:
    random = np.random.default_rng(4)
    labels = random.integers(2, size=300)
    a = np.stack([np.where(random.random(300) < luck, labels, 1 - labels) for luck in (0.6, 0.7, 0.8, 0.9)])
    b = a.copy()
    wrong = np.argmax(b != labels, axis=1)
    b[range(4), wrong] = labels[wrong]  # each run of B is one example better than its partner
    widths = {}
    for same_seeds in (True, False):
        of = paired_differences(labels, a, b, same_seeds=same_seeds)["accuracy"]
        widths[same_seeds] = of.high - of.low
    assert widths[False] > 10 * widths[True]


def test_nine_intervals_in_ten_and_more_hold_the_true_difference() -> None:
    """95 % of them, were the bootstrap exact; with 300 examples it comes to 93 to 95 %."""
    random = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        right_a = random.random(300) < 0.8
        right_b = np.where(right_a, random.random(300) < 0.95, random.random(300) < 0.4)  # 0.84: 0.04 better
        labels = random.integers(2, size=300)
        a, b = (np.where(right, labels, 1 - labels)[np.newaxis] for right in (right_a, right_b))
        of = paired_differences(labels, a, b, same_seeds=True)["accuracy"]
        hits += of.low <= 0.04 <= of.high
    assert 0.90 <= hits / 200 <= 0.99


def test_the_same_predictions_give_the_same_interval_within_a_second() -> None:
    labels, predictions = drawn(1725, 0.85, 2, np.random.default_rng(6))
    began = time.perf_counter()
    first = paired_differences(labels, predictions[:1], predictions[1:], same_seeds=True)
    assert time.perf_counter() - began < 1
    order = np.random.default_rng(7).permutation(1725)
    assert paired_differences(labels[order], predictions[:1, order], predictions[1:, order], same_seeds=True) == first


def test_identical_runs_differ_by_nothing() -> None:
    labels, predictions = drawn(100, 0.8, 1, np.random.default_rng(8))
    of = paired_differences(labels, predictions, predictions, same_seeds=True)["f1"]
    assert (of.value, of.low, of.high) == (0, 0, 0)


@pytest.mark.parametrize(
    ("broken", "fixed", "p"),
    [(0, 0, 1.0), (0, 5, 0.0625), (1, 5, 0.21875), (2, 12, 0.012939453125), (10, 10, 1.0), (0, 6, 0.03125)],
)
def test_mcnemar_is_the_binomial_tables(broken: int, fixed: int, p: float) -> None:
    assert mcnemar(broken, fixed) == pytest.approx(p)
    assert mcnemar(fixed, broken) == pytest.approx(p)


def test_the_interval_of_a_mean_is_students() -> None:
    # t(0.975; 4 degrees of freedom) = 2.776445; the standard deviation of 1 to 5 is 1.581139
    reach = 2.776445 * 1.581139 / 5**0.5
    assert mean_interval([1, 2, 3, 4, 5]) == pytest.approx((3 - reach, 3 + reach), abs=1e-5)
