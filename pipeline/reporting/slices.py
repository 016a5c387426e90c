"""Divide a split by properties of its texts, by leakage and by the user's columns, and score each slice."""

import re
from collections.abc import Iterator
from math import nan

import numpy as np
import pandas as pd

from pipeline.core.task import LEAKAGE, Task
from pipeline.evaluation.intervals import Interval, score_interval
from pipeline.evaluation.metrics import METRICS, Ints
from pipeline.evaluation.predictions import Predictions

MIN_ROWS = 20  # The scores of fewer rows are too uncertain to tell anything.
TOO_FEW = "too few to judge"
_OVERLAPS = (0.4, 0.6)  # These bounds divide the pairs of MRPC into thirds of about equal size.
_MAX_VALUES = 20  # of a column. All rarer values are one slice.

_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")  # noqa: RUF001


def slice_metric(task: Task) -> str:
    """Return the metric by which slices are judged."""
    if task.is_regression:
        return "rmse"  # A correlation is low wherever the labels hardly differ.
    is_slow = METRICS[task.metrics[0]].is_ranking and len(task.labels) > 2  # It takes seconds for each slice.
    return "accuracy" if is_slow else task.metrics[0]


def score_slices(task: Task, predictions: Predictions) -> pd.DataFrame:
    """Score the slices that have rows. Every row is in exactly one slice of each criterion.

    Returns:
        The columns criterion, slice, n, value, low and high (the score and its 95% interval), and verdict: "worse" or
        "better" if the interval excludes the score of all rows, `TOO_FEW` (without a score), or "".
    """
    metric, scored = slice_metric(task), []
    for criterion, names, numbers in _assign_slices(task, predictions.rows):
        for number in np.unique(numbers):
            members = predictions[numbers == number]
            n = len(members)
            score = score_interval(metric, task, members) if n >= MIN_ROWS else Interval(nan, nan, nan)
            scored.append({"criterion": criterion, "slice": names[number], "n": n, **score._asdict()})
    slices = pd.DataFrame(scored)
    # Rounding errors must not make a slice better or worse.
    gap = (METRICS[metric].sign * (slices[["low", "high"]] - predictions.score(metric))).round(9)
    conditions = [slices["n"] < MIN_ROWS, (gap < 0).all(axis=1), (gap > 0).all(axis=1)]
    return slices.assign(verdict=np.select(conditions, [TOO_FEW, "worse", "better"], ""))


def _assign_slices(task: Task, rows: pd.DataFrame) -> Iterator[tuple[str, list[str], Ints]]:
    """Yield each criterion with the names of its slices, and the position of each row's slice among them."""
    words = [[_WORD.findall(text.lower()) for text in rows[column]] for column in task.text_columns]
    lengths = np.sum([[len(text) for text in column] for column in words], axis=0)
    low, high = np.quantile(lengths, (1 / 3, 2 / 3), method="lower").tolist()
    middle = f"{high}" if high == low + 1 else f"{low + 1} to {high}"
    names = [f"up to {low} words", f"{middle} words", f"over {high} words"]
    yield "length", names, np.searchsorted([low, high], lengths)
    if task.has_pairs:  # the Jaccard index of the two sets of words
        pairs = [(set(first), set(second)) for first, second in zip(*words, strict=True)]
        overlaps = [len(first & second) / max(len(first | second), 1) for first, second in pairs]
        low, high = (round(100 * bound) for bound in _OVERLAPS)
        names = [f"up to {low}% shared", f"{low}% to {high}% shared", f"over {high}% shared"]
        yield "shared words", names, np.searchsorted(_OVERLAPS, overlaps)
    names = ["no text in train", "a text in train", f"the whole {task.singular_noun} in train"]
    yield "leakage", names, rows[LEAKAGE].to_numpy()
    for column in task.slice_columns:
        values = rows[column].fillna("").astype(str)
        frequent = values.value_counts().index[:_MAX_VALUES]
        names = [f"{column}: {value or '(none)'}" for value in [*frequent, "(other values)"]]
        numbers = frequent.get_indexer(values)
        yield f"column {column}", names, np.where(numbers < 0, len(frequent), numbers)
