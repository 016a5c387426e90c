"""The most confident mistakes, or a regression's largest errors, and the words in which the texts of a pair differ."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pipeline.core.percent import percent
from pipeline.core.task import Task
from pipeline.evaluation.metrics import Values
from pipeline.evaluation.predictions import Predictions


class Piece(NamedTuple):
    """Consecutive words of a text. differs: the other text does not have them here."""

    text: str
    differs: bool


class Mistakes(NamedTuple):
    """The first rows of `n` mistakes of a kind, the worst first. kind: what they are, as a heading says it."""

    kind: str
    n: int
    rows: list[int]


def mistakes(task: Task, of: Predictions, most: int) -> list[Mistakes]:
    """The mistakes; of two classes, those of each apart. most: how many rows at most. Ties in the data's order."""
    if task.problem_type == "regression":
        errors = np.abs(of.predicted - of.labels)
        return [Mistakes("The largest errors", len(errors), _worst(errors, errors >= 0, most))]
    wrong = ~of.right
    sure = (
        of.confidence if of.confidence.ndim == 1 else np.where(of.predicted != of.labels, of.confidence, 0).max(axis=1)
    )
    if not task.binary:
        return [Mistakes("Wrong", int(wrong.sum()), _worst(sure, wrong, most))]
    return [
        Mistakes(f"Wrongly called {task.labels[given]}", int(members.sum()), _worst(sure, members, most))
        for given in (1, 0)
        for members in [wrong & (of.predicted == given)]
    ]


def _worst(by: Values, members: Values, most: int) -> list[int]:
    at = np.flatnonzero(members)
    return [int(row) for row in at[np.argsort(-by[at], kind="stable")][:most]]


def told(task: Task, of: Predictions, row: int) -> str:
    """What is said of a mistake below its texts."""
    given, actual = (task.named(values[row]) for values in (of.predicted, of.labels))
    if task.problem_type == "regression":
        text = f"predicted {given}, labelled {actual}."
    elif of.labels.ndim == 2:
        surest = int(np.where(of.predicted[row] != of.labels[row], of.confidence[row], 0).argmax())
        about = ("of" if of.predicted[row, surest] else "that it is not") + f" {task.labels[surest]}"
        text = f"predicted {given}, labelled {actual}; {percent(of.confidence[row, surest])} % sure {about}."
    else:
        text = f"{percent(of.confidence[row])} % sure of {given}{'' if task.binary else f', labelled {actual}'}."
    if of.swapped is None:
        return text
    turned = task.named(of.swapped[row])
    other = "the same answer" if turned == given else f"{turned}{', which is right' if turned == actual else ''}"
    return f"{text} With the texts swapped: {other}."


def differences(first: str, second: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces that alternately match and differ; case is ignored."""
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
