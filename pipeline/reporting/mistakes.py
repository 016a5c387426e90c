"""The worst mistakes of each kind of task, and the words in which the texts of a pair differ."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pipeline.core.task import Task
from pipeline.evaluation.predictions import Predictions

_MOST = 20  # shown in all
_MOST_CHARACTERS = 2000  # shown of a text


class Group(NamedTuple):
    """Mistakes: `rows` shown, worst first, of `total`. predicted: the class that they are wrongly given, or None."""

    predicted: int | None
    total: int
    rows: list[int]


class Piece(NamedTuple):
    """Consecutive words of a text. differs: the other text of the pair does not have them here."""

    text: str
    differs: bool


def worst(task: Task, of: Predictions) -> list[Group]:
    """The most confident mistakes, ties in the data's order.

    Of two classes in two groups, of class 1 and of class 0. Of several labels, the rows with the surest wrong one. Of a
    regression, the rows with the largest errors.
    """
    wrong, sure = ~of.right, np.abs(of.predicted - of.labels)
    if task.problem_type == "multi_label_classification":
        sure = np.where(of.predicted == of.labels, 0, of.confidence).max(axis=1)
    elif task.labels:
        sure = of.confidence
    kinds = [(1, wrong & (of.predicted == 1)), (0, wrong & (of.predicted == 0))] if task.binary else [(None, wrong)]
    groups = []
    for predicted, members in kinds:
        rows = np.flatnonzero(members)
        first = rows[np.argsort(-sure[rows], kind="stable")][: _MOST // len(kinds)]
        groups.append(Group(predicted, len(rows), first.tolist()))
    return groups


def pieces(texts: Sequence[str], related: bool = True) -> list[list[Piece]]:
    """The texts of a row, with the words marked that differ between two related ones.

    Case is ignored. Long texts are cut.
    """
    short = [text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …" for text in texts]
    if len(short) == 1 or not related:
        return [[Piece(text, False)] for text in short]
    one, other = (text.split() for text in short)
    matcher = SequenceMatcher(None, [word.lower() for word in one], [word.lower() for word in other], autojunk=False)
    same_one, same_other = set[int](), set[int]()
    for start_one, start_other, size in matcher.get_matching_blocks():
        same_one.update(range(start_one, start_one + size))
        same_other.update(range(start_other, start_other + size))
    return [list(_pieces(one, same_one)), list(_pieces(other, same_other))]


def _pieces(words: Sequence[str], same: set[int]) -> Iterator[Piece]:
    for differs, members in groupby(range(len(words)), key=lambda at: at not in same):
        yield Piece(" ".join(words[at] for at in members), differs)
