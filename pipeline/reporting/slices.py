"""Divide a split into slices, and score each of them.

The slices are formed by properties of the texts, by whether train has the texts, and by the columns of the user.
"""

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

FEW = 20  # The scores of fewer rows are too uncertain to tell anything.
NEGATIONS = ("no", "not", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot")
OVERLAPS = (0.4, 0.6)  # These bounds divide the pairs of MRPC into thirds of about equal size.
# With at least this mean word overlap, the two texts of each pair are taken to be about the same subject. The measured
# overlap is 0.52 for MRPC (test), 0.32 for STS-B (dev) and 0.18 for RTE (dev). It is 0.07 for the first paragraph of a
# docstring and the text after it, and 0.05 for the summary and the description of a package. Texts of MRPC in unrelated
# pairs have 0.05, too.
RELATED = 0.12
_MOST_VALUES = 20  # of a column. All rarer values are one slice.
_MOST_CHARACTERS = 40  # of a value in the name of a slice

_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")  # noqa: RUF001
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# MRPC writes "don 't" and "do n't".
_NEGATION = re.compile(rf"\b(?:{'|'.join(NEGATIONS)})\b|n ?['’]t\b", re.IGNORECASE)  # noqa: RUF001

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
    """Return the first two metrics of the task, without Spearman's correlation, which is similar to Pearson's."""
    return [name for name in task.metrics if name != "spearmanr"][:2]


def is_defined(name: str, task: Task, labels: Values) -> bool:
    """Return whether perfect predictions get a perfect score. Without class 1, for example, F1 is always 0."""
    probabilities = None
    if task.problem_type != "regression":
        probabilities = labels if labels.ndim == 2 else np.eye(task.outputs)[labels]
    metric = METRICS[name]
    perfect = 0 if metric.scale == "error" else 1
    return bool(np.isclose(metric.compute(labels, labels, probabilities), perfect))


def slices(task: Task, rows: Rows, predictions: Predictions, related: bool) -> list[Slice]:
    """Score the slices that have rows. Every row is in exactly one slice of each criterion.

    Args:
        related: Whether the texts of a pair share enough words for slices by word overlap.
    """
    scored = []
    for criterion, (names, numbers) in _assignments(task, rows, related):
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
    """Return the words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def by_length(texts: Sequence[Sequence[str]]) -> Assignment:
    """Divide the rows into thirds, by the number of words in all their texts."""
    lengths = np.sum([[len(words(text)) for text in column] for column in texts], axis=0)
    low, high = np.quantile(lengths, (1 / 3, 2 / 3), method="lower").tolist()
    middle = f"{high}" if high == low + 1 else f"{low + 1} to {high}"
    names = (f"up to {low} words", f"{middle} words", f"over {high} words")
    return names, np.searchsorted([low, high], lengths)


def overlaps(first: Sequence[str], second: Sequence[str]) -> Floats:
    """Return the Jaccard index of the two sets of words of each pair, shape (n,)."""
    pairs = [(set(words(left)), set(words(right))) for left, right in zip(first, second, strict=True)]
    return np.array([len(left & right) / max(len(left | right), 1) for left, right in pairs])


def by_overlap(first: Sequence[str], second: Sequence[str]) -> Assignment:
    """Divide the pairs by their `overlaps`, at the bounds OVERLAPS."""
    low, high = (round(100 * bound) for bound in OVERLAPS)
    names = (f"up to {low}% shared", f"{low}% to {high}% shared", f"over {high}% shared")
    return names, np.searchsorted(OVERLAPS, overlaps(first, second))


def by_numbers(texts: Sequence[Sequence[str]]) -> Assignment:
    """Divide by whether a text has numbers in digits, or whether both texts have the same numbers. 1,000 is 1000."""
    numbers = [[{number.replace(",", "") for number in _NUMBER.findall(text)} for text in column] for column in texts]
    if len(numbers) == 1:
        return ("no numbers", "a number"), np.array([len(in_text) > 0 for in_text in numbers[0]], dtype=int)
    names = ("no numbers", "the same numbers", "different numbers")
    pairs = zip(*numbers, strict=True)
    return names, np.array([2 if left != right else int(len(left) > 0) for left, right in pairs])


def by_negation(texts: Sequence[Sequence[str]]) -> Assignment:
    """Divide by how many texts of a row contain one of NEGATIONS or a word that ends in n't."""
    counts = np.sum([[bool(_NEGATION.search(text)) for text in column] for column in texts], axis=0)
    if len(texts) == 1:
        return ("no negation", "negation"), counts
    return ("no negation", "negation in both texts", "negation in only one text"), np.array([0, 2, 1])[counts]


def by_column(column: str, values: Sequence[str | None]) -> Assignment:
    """Divide by the values of a column, most frequent first. The rarer values are one slice."""
    texts = [value or "(none)" for value in values]
    frequent = [text for text, _ in Counter(texts).most_common(_MOST_VALUES)]
    position = {text: number for number, text in enumerate(dict.fromkeys([*frequent, "other"]))}
    names: list[str] = []
    for text in position:
        name = f"{column}: {text[:_MOST_CHARACTERS]}"
        if name in names:  # Another value starts with the same characters.
            name += f" ({len(names) + 1})"
        names.append(name)
    return names, np.array([position.get(text, position["other"]) for text in texts])
