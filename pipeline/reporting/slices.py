"""Slices of the pairs by length, word overlap, numbers and negation, each with its scores."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.evaluation.metrics import Ints, scores
from pipeline.evaluation.uncertainty import Interval, score_intervals

FEW = 20  # scores over fewer pairs say little
NEGATIONS = ("no", "not", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot")
OVERLAPS = (0.4, 0.6)  # split MRPC's pairs into about equal thirds

_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")  # noqa: RUF001
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# MRPC writes "don 't" and "do n't"
_NEGATION = re.compile(rf"\b(?:{'|'.join(NEGATIONS)})\b|n ?['’]t\b", re.IGNORECASE)  # noqa: RUF001


class Slice(NamedTuple):
    """A slice of n pairs. positive: share of class 1.

    scores, intervals: of accuracy and F1. Without F1 where no pair has label 1: it is 0 then, whatever the model says.
    """

    kind: str
    name: str
    n: int
    positive: float
    scores: dict[str, float]
    intervals: dict[str, Interval]


def slices(
    metrics: Sequence[str], first: Sequence[str], second: Sequence[str], labels: Ints, predictions: Ints
) -> list[Slice]:
    """The non-empty slices, in order. Every pair is in one slice of each kind.

    first, second: the sentences of n pairs. labels, predictions: shape (n,), classes 0 and 1.
    """
    found = []
    for kind, assign in _KINDS.items():
        names, number = assign(first, second)
        for at, label in enumerate(names):
            of = number == at
            if of.any():
                actual, given = labels[of], predictions[of]
                defined = [name for name in metrics if name != "f1" or np.any(actual == 1)]
                found.append(
                    Slice(
                        kind, label, len(actual), float(np.mean(actual == 1)),
                        scores(defined, actual, given), score_intervals(defined, actual, given),
                    )
                )  # fmt: skip
    return found


def words(sentence: str) -> list[str]:
    """The words of a sentence in lower case, without punctuation."""
    return _WORD.findall(sentence.lower())


Assignment = tuple[tuple[str, ...], Ints]  # names of the slices, and the index of each pair's slice, shape (n,)


def by_length(first: Sequence[str], second: Sequence[str]) -> Assignment:
    """Thirds of these pairs, by the number of words in both sentences."""
    lengths = np.array([len(words(a)) + len(words(b)) for a, b in zip(first, second, strict=True)])
    low, high = np.quantile(lengths, (1 / 3, 2 / 3), method="lower").tolist()
    names = (f"up to {low} words", f"{low + 1} to {high} words", f"over {high} words")
    return names, np.searchsorted([low, high], lengths)


def by_overlap(first: Sequence[str], second: Sequence[str]) -> Assignment:
    """By the Jaccard index of the two sets of words, bounds in OVERLAPS."""
    shares = []
    for a, b in zip(first, second, strict=True):
        one, other = set(words(a)), set(words(b))
        shares.append(len(one & other) / max(len(one | other), 1))
    low, high = (round(100 * bound) for bound in OVERLAPS)
    names = (f"up to {low} % shared", f"{low} to {high} % shared", f"over {high} % shared")
    return names, np.searchsorted(OVERLAPS, shares)


def by_numbers(first: Sequence[str], second: Sequence[str]) -> Assignment:
    """By whether the sentences contain the same numbers, in digits; 1,000 is 1000."""
    names = ("no numbers", "the same numbers", "a number in one only")
    kinds = []
    for a, b in zip(first, second, strict=True):
        one, other = ({number.replace(",", "") for number in _NUMBER.findall(sentence)} for sentence in (a, b))
        kinds.append(2 if one != other else int(bool(one)))
    return names, np.array(kinds)


def by_negation(first: Sequence[str], second: Sequence[str]) -> Assignment:
    """By how many of the two sentences contain one of NEGATIONS or a word that ends in n't."""
    names = ("no negation", "negation in both", "negation in one only")
    counts = [sum(bool(_NEGATION.search(sentence)) for sentence in pair) for pair in zip(first, second, strict=True)]
    return names, np.array([0, 2, 1])[counts]


_KINDS = {"Length": by_length, "Negation": by_negation, "Numbers": by_numbers, "Word overlap": by_overlap}
