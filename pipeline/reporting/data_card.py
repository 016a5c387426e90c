"""Duplicates within a split, and leakage between splits."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Duplicates(NamedTuple):
    """repeated: pairs that occur earlier in the split too. contradictory: those of them with another label there.

    identical: pairs of a sentence with itself.
    """

    repeated: int
    contradictory: int
    identical: int


class Leakage(NamedTuple):
    """For each pair of a split, shape (n,): whether it, and whether one of its sentences, is in another split too."""

    pairs: NDArray[np.bool_]
    sentences: NDArray[np.bool_]


def normalized(sentence: str) -> str:
    """Lowercase and collapse whitespace."""
    return " ".join(sentence.lower().split())


def duplicates(first: Sequence[str], second: Sequence[str], labels: Sequence[int]) -> Duplicates:
    """Count a split's duplicates among `normalized` pairs in either order."""
    labels_of: dict[tuple[str, ...], set[int]] = {}
    repeated = contradictory = identical = 0
    for pair, label in zip(_pairs(first, second), labels, strict=True):
        identical += pair[0] == pair[1]
        earlier = labels_of.setdefault(pair, set())
        repeated += bool(earlier)
        contradictory += bool(earlier - {label})
        earlier.add(label)
    return Duplicates(repeated, contradictory, identical)


def leakage(
    first: Sequence[str], second: Sequence[str], other_first: Sequence[str], other_second: Sequence[str]
) -> Leakage:
    """Find the pairs (first, second) and their sentences in another split's pairs, `normalized` and in either order."""
    pairs, others = _pairs(first, second), set(_pairs(other_first, other_second))
    sentences = {sentence for pair in others for sentence in pair}
    return Leakage(
        np.array([pair in others for pair in pairs]),
        np.array([not sentences.isdisjoint(pair) for pair in pairs]),
    )


def _pairs(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(sorted((normalized(a), normalized(b)))) for a, b in zip(first, second, strict=True)]
