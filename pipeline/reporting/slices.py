"""Where the scores come from: the pairs sorted by length, shared words, numbers and negation, each kind scored."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.evaluation.metrics import Ints, score
from pipeline.evaluation.uncertainty import Interval, score_intervals

FEW = 20  # the scores of fewer pairs say little
NEGATIONS = ("no", "not", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot")
OVERLAPS = (0.4, 0.6)  # about a third of MRPC's pairs lies below, between and above

_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")  # noqa: RUF001
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# MRPC writes "don 't" and "do n't"
_NEGATION = re.compile(rf"\b(?:{'|'.join(NEGATIONS)})\b|n ?['’]t\b", re.IGNORECASE)  # noqa: RUF001


class Slice(NamedTuple):
    """Pairs of a kind. positive: the share of class 1. scores and intervals: of accuracy and F1."""

    kind: str
    name: str
    n: int
    positive: float
    scores: dict[str, float]
    intervals: dict[str, Interval]


def slices(first: Sequence[str], second: Sequence[str], labels: Ints, predictions: Ints) -> list[Slice]:
    """Each kind's slices that have pairs, in order; those of one kind hold every pair once.

    first, second: the sentences of n pairs. labels, predictions: shape (n,), classes 0 and 1.
    """
    found = []
    for kind, sort in _KINDS.items():
        names, number = sort(first, second)
        for at, name in enumerate(names):
            of = number == at
            if of.any():
                actual, given = labels[of], predictions[of]
                scores = score(actual, given), score_intervals(actual, given)
                found.append(Slice(kind, name, len(actual), float(actual.mean()), *scores))
    return found


def words(sentence: str) -> list[str]:
    """Lower-cased, without punctuation."""
    return _WORD.findall(sentence.lower())


Sorted = tuple[tuple[str, ...], Ints]  # the names of slices, and for each pair, shape (n,), the number of its own


def by_length(first: Sequence[str], second: Sequence[str]) -> Sorted:
    """Thirds of these pairs, by the words of both sentences together."""
    lengths = np.array([len(words(a)) + len(words(b)) for a, b in zip(first, second, strict=True)])
    low, high = np.quantile(lengths, (1 / 3, 2 / 3), method="lower").tolist()
    names = (f"up to {low} words", f"{low + 1} to {high} words", f"over {high} words")
    return names, np.searchsorted([low, high], lengths)


def by_overlap(first: Sequence[str], second: Sequence[str]) -> Sorted:
    """By the share of the words of either sentence that stand in both (Jaccard), bounds as in OVERLAPS."""
    shares = []
    for a, b in zip(first, second, strict=True):
        one, other = set(words(a)), set(words(b))
        shares.append(len(one & other) / max(len(one | other), 1))
    low, high = (round(100 * bound) for bound in OVERLAPS)
    names = (f"up to {low} % shared", f"{low} to {high} % shared", f"over {high} % shared")
    return names, np.searchsorted(OVERLAPS, shares)


def by_numbers(first: Sequence[str], second: Sequence[str]) -> Sorted:
    """By whether the sentences hold the same numbers, in digits; 1,000 is 1000."""
    names = ("no numbers", "the same numbers", "a number in one only")
    kinds = []
    for a, b in zip(first, second, strict=True):
        one, other = ({number.replace(",", "") for number in _NUMBER.findall(sentence)} for sentence in (a, b))
        kinds.append(2 if one != other else int(bool(one)))
    return names, np.array(kinds)


def by_negation(first: Sequence[str], second: Sequence[str]) -> Sorted:
    """By how many of the sentences hold a word of NEGATIONS or one that ends in n't."""
    names = ("no negation", "negation in both", "negation in one only")
    counts = [sum(bool(_NEGATION.search(sentence)) for sentence in pair) for pair in zip(first, second, strict=True)]
    return names, np.array([0, 2, 1])[counts]


_KINDS = {"Length": by_length, "Negation": by_negation, "Numbers": by_numbers, "Word overlap": by_overlap}
