"""Slices of the rows by what their texts are like, by leakage and by the user's own columns, each with its scores."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.core.task import Task
from pipeline.evaluation.metrics import Ints, Values, scores
from pipeline.evaluation.uncertainty import Interval, score_intervals
from pipeline.reporting.results import Rows

FEW = 20  # scores over fewer rows say little
NEGATIONS = ("no", "not", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot")
OVERLAPS = (0.4, 0.6)  # split MRPC's pairs into about equal thirds
_MOST_VALUES = 20  # of a column; rarer ones make one slice
_MOST_SCORES = 2

_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")  # noqa: RUF001
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# MRPC writes "don 't" and "do n't"
_NEGATION = re.compile(rf"\b(?:{'|'.join(NEGATIONS)})\b|n ?['’]t\b", re.IGNORECASE)  # noqa: RUF001


class Slice(NamedTuple):
    """A slice of n rows. positive: of two classes, the share of class 1.

    scores, intervals: of the task's first metrics. Without F1 where no row has label 1: it is 0 then, whatever is
    predicted.
    """

    kind: str
    name: str
    n: int
    positive: float | None
    scores: dict[str, float]
    intervals: dict[str, Interval]


def slices(task: Task, rows: Rows, predictions: Values) -> list[Slice]:
    """The non-empty slices, in order. Every row is in one slice of each kind. predictions: of the rows."""
    found = []
    for kind, (names, number) in _assignments(rows):
        for at, name in enumerate(names):
            of = number == at
            if of.any():
                actual, given = rows.labels[of], predictions[of]
                defined = [one for one in task.metrics[:_MOST_SCORES] if one != "f1" or np.any(actual == 1)]
                found.append(
                    Slice(
                        kind, name, len(actual), float(np.mean(actual == 1)) if task.binary else None,
                        scores(defined, actual, given), score_intervals(defined, actual, given),
                    )
                )  # fmt: skip
    return found


Assignment = tuple[Sequence[str], Ints]  # names of the slices, and the index of each row's slice, shape (n,)
Texts = list[list[str]]  # of each text column


def _assignments(rows: Rows) -> Iterator[tuple[str, Assignment]]:
    for kind, assign in _OF_TEXTS.items():
        yield kind, assign(rows.texts)
    if len(rows.texts) == 2:
        yield "Word overlap", by_overlap(rows.texts)
    if rows.leakage is not None and rows.leakage.any():
        shared = ("no text in train", "a text in train", "the whole pair in train")
        yield "Leakage", (shared if len(rows.texts) == 2 else (shared[0], "", "the text in train"), rows.leakage)
    for column, values in rows.columns.items():
        yield column, by_value(values)


def by_value(values: Sequence[str]) -> Assignment:
    """By the values of a column, the most frequent first; the rarest together."""
    names = [name for name, _ in Counter(values).most_common(_MOST_VALUES)]
    place = {name: at for at, name in enumerate(names)}
    others = ["other values"] if len(set(values)) > len(names) else []
    return [*(name or "no value" for name in names), *others], np.array([place.get(of, len(names)) for of in values])


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def by_length(texts: Texts) -> Assignment:
    """Thirds of these rows, by the number of words in all their texts."""
    lengths = np.array([sum(len(words(text)) for text in row) for row in zip(*texts, strict=True)])
    low, high = np.quantile(lengths, (1 / 3, 2 / 3), method="lower").tolist()
    names = (f"up to {low} words", f"{low + 1} to {high} words", f"over {high} words")
    return names, np.searchsorted([low, high], lengths)


def by_overlap(texts: Texts) -> Assignment:
    """By the Jaccard index of the two sets of words, bounds in OVERLAPS."""
    shares = []
    for a, b in zip(*texts, strict=True):
        one, other = set(words(a)), set(words(b))
        shares.append(len(one & other) / max(len(one | other), 1))
    low, high = (round(100 * bound) for bound in OVERLAPS)
    names = (f"up to {low} % shared", f"{low} to {high} % shared", f"over {high} % shared")
    return names, np.searchsorted(OVERLAPS, shares)


def by_numbers(texts: Texts) -> Assignment:
    """By whether there are numbers, in digits; of pairs, by whether both have the same. 1,000 is 1000."""
    found = [[{number.replace(",", "") for number in _NUMBER.findall(text)} for text in of] for of in texts]
    if len(texts) == 1:
        return ("no numbers", "numbers"), np.array([int(bool(of)) for of in found[0]])
    names = ("no numbers", "the same numbers", "a number in one only")
    return names, np.array([2 if one != other else int(bool(one)) for one, other in zip(*found, strict=True)])


def by_negation(texts: Texts) -> Assignment:
    """By how many of a row's texts contain one of NEGATIONS or a word that ends in n't."""
    counts = np.sum([[bool(_NEGATION.search(text)) for text in of] for of in texts], axis=0)
    if len(texts) == 1:
        return ("no negation", "negation"), counts
    return ("no negation", "negation in both", "negation in one only"), np.array([0, 2, 1])[counts]


_OF_TEXTS: dict[str, Callable[[Texts], Assignment]] = {
    "Length": by_length, "Negation": by_negation, "Numbers": by_numbers,
}  # fmt: skip
