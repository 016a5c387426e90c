"""The mistakes that the model was surest of, and the words in which their sentences differ."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pipeline.evaluation.metrics import Floats, Ints


class Piece(NamedTuple):
    """Some words of a sentence. differs: the other sentence has none of them at this place."""

    text: str
    differs: bool


def most_confident(labels: Ints, predictions: Ints, confidence: Floats, predicted: int, most: int) -> list[int]:
    """Where the pairs stand that are wrongly called `predicted`, the surest first. Shapes (n,).

    confidence: the probability of the predicted class. Of equally sure ones the first in the data comes first.
    """
    wrong = np.flatnonzero((predictions == predicted) & (labels != predicted))
    return [int(at) for at in wrong[np.argsort(-confidence[wrong], kind="stable")][:most]]


def differences(first: str, second: str) -> tuple[list[Piece], list[Piece]]:
    """Both sentences in pieces that are alike or differ by turns; case is no difference."""
    one, other = first.split(), second.split()
    matcher = SequenceMatcher(None, [word.lower() for word in one], [word.lower() for word in other], autojunk=False)
    alike_one, alike_other = set[int](), set[int]()
    for start_one, start_other, size in matcher.get_matching_blocks():
        alike_one.update(range(start_one, start_one + size))
        alike_other.update(range(start_other, start_other + size))
    return list(_pieces(one, alike_one)), list(_pieces(other, alike_other))


def _pieces(words: Sequence[str], alike: set[int]) -> Iterator[Piece]:
    for differs, members in groupby(range(len(words)), key=lambda at: at not in alike):
        yield Piece(" ".join(words[at] for at in members), differs)
