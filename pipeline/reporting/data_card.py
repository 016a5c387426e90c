"""What the corpus is like: labels, duplicates within a split, and what one split gives away of another."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Duplicates(NamedTuple):
    """repeated: pairs that stand earlier in the split too. contradictory: of these, those whose label is another there.

    identical: pairs of twice the same sentence.
    """

    repeated: int
    contradictory: int
    identical: int


class Leakage(NamedTuple):
    """For each of a split's pairs, shape (n,): does it stand in another split too; does at least one sentence of it."""

    pairs: NDArray[np.bool_]
    sentences: NDArray[np.bool_]


def folded(sentence: str) -> str:
    """What two sentences have in common that differ in case and white space alone."""
    return " ".join(sentence.lower().split())


def duplicates(first: Sequence[str], second: Sequence[str], labels: Sequence[int]) -> Duplicates:
    """Of the pairs of a split, `folded` and in either order."""
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
    """What of the pairs (first, second) stands in another split's pairs; `folded` and in either order."""
    pairs, others = _pairs(first, second), set(_pairs(other_first, other_second))
    sentences = {sentence for pair in others for sentence in pair}
    return Leakage(
        np.array([pair in others for pair in pairs]),
        np.array([not sentences.isdisjoint(pair) for pair in pairs]),
    )


def _pairs(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(sorted((folded(a), folded(b)))) for a, b in zip(first, second, strict=True)]
