"""Duplicates within a split and leakage between splits, ignoring case, punctuation and order; and shifted labels."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from pipeline.reporting.data_card import Duplicates, duplicates, label_shift, leakage


def test_duplicate_pairs_are_found_in_either_order() -> None:
    first = ["It fell .", "It  ROSE .", "it fell .", "It fell .", "Other ."]
    second = ["It rose .", "It fell .", "Other .", "It rose .", "Words ."]
    assert duplicates(first, second, [1, 0, 1, 1, 0]) == Duplicates(repeated=2, contradictory=2, identical=0)
    assert duplicates(first, second, [1, 1, 1, 1, 0]) == Duplicates(repeated=2, contradictory=0, identical=0)


def test_sentences_that_differ_in_punctuation_alone_are_the_same_but_not_those_that_differ_in_a_number() -> None:
    known = (["The < .SPX > fell - by 1.5 points ."], ["..."])
    same = leakage(["the .SPX fell -- by 1.5 points"], ["..."], *known)
    assert same.pairs.tolist() == [True]
    other = leakage(["The < .SPX > fell - by 15 points ."], ["!"], *known)
    assert other.sentences.tolist() == [False]


def test_a_pair_of_identical_sentences_is_counted() -> None:
    assert duplicates(["It fell ."], ["it fell ."], [1]) == Duplicates(repeated=0, contradictory=0, identical=1)


def test_leakage_distinguishes_pairs_from_single_sentences() -> None:
    train_first, train_second = ["It fell .", "He came ."], ["It dropped .", "He went ."]
    test_first = ["it dropped .", "He came .", "She came .", "He  WENT ."]
    test_second = ["It fell .", "It fell .", "She went .", "She went ."]
    found = leakage(test_first, test_second, train_first, train_second)
    assert found.pairs.tolist() == [True, False, False, False]
    assert found.sentences.tolist() == [True, True, False, True]


@pytest.mark.parametrize("classes", [2, 3, 20])
def test_the_p_value_of_a_label_shift_matches_scipy(classes: int) -> None:
    rng = np.random.default_rng(classes)
    for scale in (30, 1000):
        counts, other = rng.integers(1, scale, (2, classes))
        expected = chi2_contingency([counts, other], correction=False).pvalue
        assert label_shift(counts, other).p == pytest.approx(expected, rel=1e-9)


def test_a_label_that_neither_split_has_changes_nothing() -> None:
    assert label_shift(np.array([30, 0, 70]), np.array([60, 0, 40])).p == pytest.approx(
        label_shift(np.array([30, 70]), np.array([60, 40])).p
    )
    assert label_shift(np.array([0, 70]), np.array([0, 40])).p == 1


def test_equal_splits_rarely_look_shifted() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.multinomial(3668, (0.3, 0.6, 0.1), 2000), rng.multinomial(408, (0.3, 0.6, 0.1), 2000)
    found = [label_shift(*counts).p < 0.05 for counts in zip(train, test, strict=True)]
    assert np.mean(found) == pytest.approx(0.05, abs=0.015)


def test_the_label_whose_share_differs_most_is_named() -> None:
    assert label_shift(np.array([50, 30, 20]), np.array([48, 40, 12])).label == 1
