"""Duplicates within a split, leakage between splits, and whether their labels are distributed alike."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.metrics import Ints
from pipeline.reporting.slices import words


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


class LabelShift(NamedTuple):
    """p: of the hypothesis that two splits have the same distribution of labels. label: whose share differs most."""

    p: float
    label: int

    @property
    def significant(self) -> bool:
        return self.p < 0.05


def normalized(sentence: str) -> str:
    """Lowercase, collapse whitespace, drop punctuation. MRPC has the same sentence with "-" and with "--"."""
    return " ".join(words(sentence)) or sentence.lower().strip()


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


def label_shift(counts: Ints, other: Ints) -> LabelShift:
    """Compare two splits by Pearson's chi-square test of independence, without a continuity correction.

    counts, other: how many pairs of each split have each label, shape (labels,). p is 1 where all have the same label.
    """
    from scipy.special import chdtrc  # scipy.stats has the whole test, and takes half a second longer to import

    both = np.array([counts, other])
    label = int(np.abs(np.subtract(*both / both.sum(axis=1, keepdims=True))).argmax())
    both = both[:, both.any(axis=0)]
    freedom = both.shape[1] - 1
    if freedom == 0:
        return LabelShift(1, label)
    expected = np.outer(both.sum(axis=1), both.sum(axis=0)) / both.sum()
    return LabelShift(float(chdtrc(freedom, ((both - expected) ** 2 / expected).sum())), label)


def _pairs(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(sorted((normalized(a), normalized(b)))) for a, b in zip(first, second, strict=True)]
