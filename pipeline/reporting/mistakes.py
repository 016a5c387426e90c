"""The most confident mistakes, and the words in which their sentences differ."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pipeline.evaluation.metrics import Floats, Ints


class Piece(NamedTuple):
    """Consecutive words of a sentence. differs: the other sentence does not have them here."""

    text: str
    differs: bool


def most_confident(labels: Ints, predictions: Ints, confidence: Floats, predicted: int, most: int) -> list[int]:
    """Indices of the pairs wrongly predicted as class `predicted`, most confident first, ties in the data's order.

    labels, predictions, confidence: shape (n,). confidence: probability of the predicted class. most: how many at most.
    """
    wrong = np.flatnonzero((predictions == predicted) & (labels != predicted))
    return [int(at) for at in wrong[np.argsort(-confidence[wrong], kind="stable")][:most]]


def differences(first: str, second: str) -> tuple[list[Piece], list[Piece]]:
    """Both sentences in pieces that alternately match and differ; case is ignored."""
    one, other = first.split(), second.split()
    matcher = SequenceMatcher(None, [word.lower() for word in one], [word.lower() for word in other], autojunk=False)
    same_one, same_other = set[int](), set[int]()
    for start_one, start_other, size in matcher.get_matching_blocks():
        same_one.update(range(start_one, start_one + size))
        same_other.update(range(start_other, start_other + size))
    return list(_pieces(one, same_one)), list(_pieces(other, same_other))


def _pieces(words: Sequence[str], same: set[int]) -> Iterator[Piece]:
    for differs, members in groupby(range(len(words)), key=lambda at: at not in same):
        yield Piece(" ".join(words[at] for at in members), differs)
