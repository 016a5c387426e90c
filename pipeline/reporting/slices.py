"""Divide a split into slices, and score each of them.

The slices are formed by properties of the texts, by whether train has the texts, and by the columns of the user.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pipeline.core.data_card import LEAKAGE
from pipeline.core.task import Task
from pipeline.evaluation.metrics import Ints, is_defined, scores
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.uncertainty import score_intervals

MIN_ROWS = 20  # The scores of fewer rows are too uncertain to tell anything.
OVERLAPS = (0.4, 0.6)  # These bounds divide the pairs of MRPC into thirds of about equal size.
_MAX_VALUES = 20  # of a column. All rarer values are one slice.

_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")  # noqa: RUF001

# The names of the slices, and the position of each row's slice among them, shape (n,).
Assignment = tuple[Sequence[str], Ints]


class Slice(NamedTuple):
    """A slice of a split.

    Attributes:
        criterion: The property by which the rows are divided, such as "Length".
        name: The name of the slice within the criterion.
        n: The number of rows.
        positive: With two classes, the proportion of rows with class 1. Otherwise None.
        scores: The `slice_metrics` that are defined for the labels of the slice.
        intervals: The 95% confidence intervals of these scores.
    """

    criterion: str
    name: str
    n: int
    positive: float | None
    scores: dict[str, float]
    intervals: dict[str, dict[str, float]]


def slice_metrics(task: Task) -> list[str]:
    """Return the metrics of a slice. It is judged by the first one.

    Only the RMSE of a regression is comparable between slices. A correlation is lower if the labels of a slice differ
    less from each other, even if the predictions are better.
    """
    return ["rmse"] if task.problem_type == "regression" else task.metrics[:2]


def score_slices(task: Task, rows: pd.DataFrame, predictions: Predictions) -> list[Slice]:
    """Score the slices that have rows. Every row is in exactly one slice of each criterion.

    Args:
        rows: See `Results.rows`.
    """
    scored = []
    for criterion, (names, numbers) in _assignments(task, rows):
        for number, name in enumerate(names):
            members = numbers == number
            if not members.any():
                continue
            labels, predicted = predictions.labels[members], predictions.predicted[members]
            probability = None if predictions.probability is None else predictions.probability[members]
            defined = [metric for metric in slice_metrics(task) if is_defined(metric, task, labels)]
            intervals = score_intervals(defined, labels, predicted, probability)
            scored.append(
                Slice(
                    criterion=criterion,
                    name=name,
                    n=len(labels),
                    positive=float(np.mean(labels == 1)) if task.binary else None,
                    scores=scores(defined, labels, predicted, probability),
                    intervals={metric: interval._asdict() for metric, interval in intervals.items()},
                )
            )
    return scored


def _assignments(task: Task, rows: pd.DataFrame) -> Iterator[tuple[str, Assignment]]:
    texts = [rows[column].tolist() for column in task.text_columns]
    yield "Length", assign_by_length(texts)
    if task.pairs:
        yield "Word overlap", assign_by_overlap(*texts)
    leakage = rows[LEAKAGE].to_numpy()
    yield "Leakage", (("no text in train", "a text in train", f"the whole {task.singular_noun} in train"), leakage)
    for column in task.slice_columns:
        yield f"Column {column}", assign_by_column(column, rows[column].tolist())


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def assign_by_length(texts: Sequence[Sequence[str]]) -> Assignment:
    """Divide the rows into thirds, by the number of words in all their texts."""
    lengths = np.sum([[len(words(text)) for text in column] for column in texts], axis=0)
    low, high = np.quantile(lengths, (1 / 3, 2 / 3), method="lower").tolist()
    middle = f"{high}" if high == low + 1 else f"{low + 1} to {high}"
    names = (f"up to {low} words", f"{middle} words", f"over {high} words")
    return names, np.searchsorted([low, high], lengths)


def assign_by_overlap(first: Sequence[str], second: Sequence[str]) -> Assignment:
    """Divide the pairs at the bounds OVERLAPS, by the Jaccard index of the two sets of words of each pair."""
    overlaps = [_overlap(*texts) for texts in zip(first, second, strict=True)]
    low, high = (round(100 * bound) for bound in OVERLAPS)
    names = (f"up to {low}% shared", f"{low}% to {high}% shared", f"over {high}% shared")
    return names, np.searchsorted(OVERLAPS, overlaps)


def _overlap(first: str, second: str) -> float:
    """Return the Jaccard index of the sets of words of two texts."""
    first_words, second_words = set(words(first)), set(words(second))
    return len(first_words & second_words) / max(len(first_words | second_words), 1)


def assign_by_column(column: str, values: Sequence[str]) -> Assignment:
    """Divide by the values of a column, most frequent first. The rarer values are one slice."""
    frequent = [value for value, _ in Counter(values).most_common(_MAX_VALUES)]
    position = {value: number for number, value in enumerate(frequent)}
    names = [f"{column}: {value or '(none)'}" for value in [*frequent, "(other values)"]]
    return names, np.array([position.get(value, len(frequent)) for value in values])
