"""Duplicates within a split and leakage between splits, ignoring case, whitespace and order."""

from pipeline.reporting.data_card import Duplicates, duplicates, leakage


def test_duplicate_pairs_are_found_in_either_order() -> None:
    first = ["It fell .", "It  ROSE .", "it fell .", "It fell .", "Other ."]
    second = ["It rose .", "It fell .", "Other .", "It rose .", "Words ."]
    assert duplicates(first, second, [1, 0, 1, 1, 0]) == Duplicates(repeated=2, contradictory=2, identical=0)
    assert duplicates(first, second, [1, 1, 1, 1, 0]) == Duplicates(repeated=2, contradictory=0, identical=0)


def test_a_pair_of_identical_sentences_is_counted() -> None:
    assert duplicates(["It fell ."], ["it fell ."], [1]) == Duplicates(repeated=0, contradictory=0, identical=1)


def test_leakage_distinguishes_pairs_from_single_sentences() -> None:
    train_first, train_second = ["It fell .", "He came ."], ["It dropped .", "He went ."]
    test_first = ["it dropped .", "He came .", "She came .", "He  WENT ."]
    test_second = ["It fell .", "It fell .", "She went .", "She went ."]
    found = leakage(test_first, test_second, train_first, train_second)
    assert found.pairs.tolist() == [True, False, False, False]
    assert found.sentences.tolist() == [True, True, False, True]
