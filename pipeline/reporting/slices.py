"""Slices of the rows, by their texts, by whether train has them, and by the user's columns; each with its scores."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.core.task import Task
from pipeline.evaluation.metrics import METRICS, Floats, Ints, Values, scores
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.uncertainty import score_intervals
from pipeline.reporting.results import Rows

FEW = 20  # scores over fewer rows say little
NEGATIONS = ("no", "not", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot")
OVERLAPS = (0.4, 0.6)  # split MRPC's pairs into about equal thirds
# Mean word overlap of texts that are about the same thing. Measured: 0.52 for MRPC's test pairs, 0.32 for STS-B's dev
# pairs and 0.18 for RTE's; but 0.07 for the first paragraphs of docstrings and what follows, and 0.05 for summaries and
# descriptions of packages, as for MRPC's texts in unrelated pairs.
RELATED = 0.12
_MOST_VALUES = 20  # of a column; the rarer ones are one slice
_MOST_CHARACTERS = 40  # of a value that names a slice

_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")  # noqa: RUF001
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# MRPC writes "don 't" and "do n't"
_NEGATION = re.compile(rf"\b(?:{'|'.join(NEGATIONS)})\b|n ?['’]t\b", re.IGNORECASE)  # noqa: RUF001


class Slice(NamedTuple):
    """A slice of n rows.

    positive: share of class 1, where there are two. scores, intervals: of `slice_metrics`, without those that the
    labels leave undefined, see `_defined`.
    """

    kind: str
    name: str
    n: int
    positive: float | None
    scores: dict[str, float]
    intervals: dict[str, dict[str, float]]


def slice_metrics(task: Task) -> list[str]:
    """The task's first one or two, but not Spearman's, which says much the same as Pearson's."""
    return [name for name in task.metrics if name != "spearmanr"][:2]


def slices(task: Task, rows: Rows, predictions: Predictions, related: bool = True) -> list[Slice]:
    """The non-empty slices, in order. Every row is in one slice of each kind.

    related: whether pairs share enough words for slices by word overlap.
    """
    found = []
    for kind, (names, numbers) in _assignments(task, rows, related):
        for number, name in enumerate(names):
            members = numbers == number
            if not members.any():
                continue
            labels = predictions.labels[members]
            probability = None if predictions.probability is None else predictions.probability[members]
            outputs = predictions.predicted[members], probability
            defined = [metric for metric in slice_metrics(task) if _defined(metric, labels)]
            limits = score_intervals(defined, labels, *outputs)
            found.append(
                Slice(
                    kind=kind,
                    name=name,
                    n=len(labels),
                    positive=float(np.mean(labels == 1)) if task.binary else None,
                    scores=scores(defined, labels, *outputs),
                    intervals={metric: interval._asdict() for metric, interval in limits.items()},
                )
            )
    return found


def _defined(metric: str, labels: Values) -> bool:
    """Whether a metric says something about these rows.

    F1 and average precision do not if no row has the class, or any label: they are 0, whatever the model says. A
    correlation and ROC AUC do not if all labels are equal.
    """
    if metric in ("f1", "average_precision") or (metric.startswith("f1_") and labels.ndim > 1):
        return bool(np.any(labels == 1))
    if metric == "roc_auc" or METRICS[metric].scale == "correlation":
        return bool(np.ptp(labels))
    return True


Assignment = tuple[Sequence[str], Ints]  # names of the slices, and the index of each row's slice, shape (n,)


def _assignments(task: Task, rows: Rows, related: bool) -> Iterator[tuple[str, Assignment]]:
    yield "Length", by_length(rows.texts)
    yield "Negation", by_negation(rows.texts)
    yield "Numbers", by_numbers(rows.texts)
    if task.pairs and related:
        yield "Word overlap", by_overlap(*rows.texts)
    yield "Leakage", (("no text in train", "a text in train", f"the whole {task.noun[:-1]} in train"), rows.leakage)
    for column, values in rows.columns.items():
        yield f"Column {column}", by_column(column, values)


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def by_length(texts: Sequence[Sequence[str]]) -> Assignment:
    """Thirds of these rows, by the number of words in all their texts."""
    lengths = np.sum([[len(words(text)) for text in column] for column in texts], axis=0)
    low, high = np.quantile(lengths, (1 / 3, 2 / 3), method="lower").tolist()
    names = (f"up to {low} words", f"{low + 1} to {high} words", f"over {high} words")
    return names, np.searchsorted([low, high], lengths)


def overlaps(first: Sequence[str], second: Sequence[str]) -> Floats:
    """The Jaccard index of the two sets of words of each pair. Shape (n,)."""
    pairs = [(set(words(a)), set(words(b))) for a, b in zip(first, second, strict=True)]
    return np.array([len(a & b) / max(len(a | b), 1) for a, b in pairs])


def by_overlap(first: Sequence[str], second: Sequence[str]) -> Assignment:
    """By `overlaps`, bounds in OVERLAPS."""
    low, high = (round(100 * bound) for bound in OVERLAPS)
    names = (f"up to {low} % shared", f"{low} to {high} % shared", f"over {high} % shared")
    return names, np.searchsorted(OVERLAPS, overlaps(first, second))


def by_numbers(texts: Sequence[Sequence[str]]) -> Assignment:
    """By whether there are numbers, in digits, and the same in both texts of a pair; 1,000 is 1000."""
    found = [[{number.replace(",", "") for number in _NUMBER.findall(text)} for text in column] for column in texts]
    if len(found) == 1:
        return ("no numbers", "a number"), np.array([int(bool(of)) for of in found[0]])
    names = ("no numbers", "the same numbers", "a number in one only")
    return names, np.array([2 if one != other else int(bool(one)) for one, other in zip(*found, strict=True)])


def by_negation(texts: Sequence[Sequence[str]]) -> Assignment:
    """By how many of a row's texts contain one of NEGATIONS or a word that ends in n't."""
    counts = np.sum([[bool(_NEGATION.search(text)) for text in column] for column in texts], axis=0)
    if len(texts) == 1:
        return ("no negation", "negation"), counts
    return ("no negation", "negation in both", "negation in one only"), np.array([0, 2, 1])[counts]


def by_column(column: str, values: Sequence[str | None]) -> Assignment:
    """By the most frequent values, most frequent first, and the others as one."""
    named = [(value or "(none)")[:_MOST_CHARACTERS] for value in values]
    frequent = [name for name, _ in Counter(named).most_common(_MOST_VALUES)]
    number = {name: at for at, name in enumerate(dict.fromkeys([*frequent, "other"]))}
    return [f"{column}: {name}" for name in number], np.array([number.get(name, number["other"]) for name in named])
