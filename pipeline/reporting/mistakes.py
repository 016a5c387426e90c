"""The worst mistakes on a split, and the words in which the two texts of a pair differ."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.core.task import Task
from pipeline.evaluation.predictions import Predictions

_MOST_MISTAKES = 20
_MOST_CHARACTERS = 2000  # of a text
# The proportion of words that the two texts of a pair must share. Marks in less similar texts would cover most words.
_SIMILAR = 0.5


class MistakeGroup(NamedTuple):
    """Mistakes that the report lists together.

    Attributes:
        predicted: With two classes, the class that was wrongly predicted. Otherwise None.
        total: The number of mistakes.
        positions: The positions of the worst mistakes in the split, worst first.
    """

    predicted: int | None
    total: int
    positions: list[int]


class Piece(NamedTuple):
    """Consecutive words of a text.

    Attributes:
        differs: Whether the other text of the pair has different words in this place.
    """

    text: str
    differs: bool


def worst_mistakes(task: Task, predictions: Predictions) -> list[MistakeGroup]:
    """Select the worst mistakes. Ties keep the order of the data.

    The most confident mistakes are the worst. With two classes, there is a group for each class that was wrongly
    predicted. With several labels per example, an example counts by its most confident wrong label. For a regression,
    the largest errors are the worst.
    """
    wrong = ~predictions.is_correct
    if task.problem_type == "regression":
        severity = np.abs(predictions.predicted - predictions.labels)
    elif task.problem_type == "multi_label_classification":
        severity = np.where(predictions.predicted == predictions.labels, 0, predictions.confidence).max(axis=1)
    else:
        severity = predictions.confidence
    groups: list[tuple[int | None, NDArray[np.bool_]]] = [(None, wrong)]
    if task.binary:
        groups = [(label, wrong & (predictions.predicted == label)) for label in (1, 0)]
    selected = []
    for predicted, members in groups:
        positions = np.flatnonzero(members)
        order = np.argsort(-severity[positions], kind="stable")[: _MOST_MISTAKES // len(groups)]
        selected.append(MistakeGroup(predicted, len(positions), positions[order].tolist()))
    return selected


def pieces(texts: Sequence[str]) -> list[list[Piece]]:
    """Shorten long texts, and mark the words that differ between two similar texts, ignoring case."""
    short = [text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …" for text in texts]
    unmarked = [[Piece(text, False)] for text in short]
    if len(short) == 1:
        return unmarked
    left, right = (text.split() for text in short)
    matcher = SequenceMatcher(None, [word.lower() for word in left], [word.lower() for word in right], autojunk=False)
    if matcher.ratio() < _SIMILAR:
        return unmarked
    left_pieces, right_pieces = [], []
    for operation, left_start, left_end, right_start, right_end in matcher.get_opcodes():
        differs = operation != "equal"
        if left_start < left_end:
            left_pieces.append(Piece(" ".join(left[left_start:left_end]), differs))
        if right_start < right_end:
            right_pieces.append(Piece(" ".join(right[right_start:right_end]), differs))
    return [left_pieces, right_pieces]
