"""Make the data card: what a user should see before training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.data_card import DataCard, Leak, SplitCard, label_table
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import aligned, listing, literal
from pipeline.sources.corpus import describe_rows
from pipeline.sources.duplicates import flag_duplicates

_FIRST_ROWS = 3
_MIN_ROWS = 50  # A model learns little about a class with fewer rows.
_DUPLICATES = {
    "repeated": "rows that duplicate an earlier row",
    "contradictory": "rows that duplicate an earlier row but have a different label",
}
_LEAKS = {
    "rows": "rows that are also in {}",
    "contradictory": "rows that are also in {}, but with a different label",
    "texts": "rows that share a text with {}",
}


def make_card(
    task: Task,
    splits: Mapping[str, pd.DataFrame],
    hashes: Mapping[str, pd.DataFrame],
    leakage: Mapping[tuple[str, str], pd.DataFrame],
    warnings: list[str],
) -> DataCard:
    """Return the data card.

    Args:
        leakage: For each pair of a later and an earlier split, which rows of the later one are also in the earlier one.
        warnings: The warnings so far. The card lists them first, followed by the new ones. Duplicates come last.
    """
    cards, leaks, duplicates = {}, [], []
    for split, rows in splits.items():
        flags = flag_duplicates(hashes[split])
        lengths = rows[task.text_columns].apply(lambda column: column.str.len())
        is_half_empty = (lengths == 0).any(axis=1)
        cards[split] = SplitCard(
            rows=len(rows),
            longest=int(lengths.to_numpy().max()),
            labels=_count_labels(task, rows),
            numbers=_summarize(task, rows),
            half_empty=int(is_half_empty.sum()),
            repeated=int(flags["repeated"].sum()),
            contradictory=int(flags["contradictory"].sum()),
        )
        if is_half_empty.any():
            warnings = [*warnings, f"{split} has pairs with an empty text: {describe_rows(rows, is_half_empty)}"]
        for name, text in _DUPLICATES.items():
            if flags[name].any():
                duplicates.append(f"{split} has {text}: {describe_rows(rows, flags[name])}")
    for (later, earlier), flags in leakage.items():
        leak = Leak(later=later, earlier=earlier, **{name: int(flags[name].sum()) for name in _LEAKS})
        leaks.append(leak)
        for name, text in _LEAKS.items():
            if flags[name].any() and (name != "texts" or leak.texts != leak.rows):
                rows = describe_rows(splits[later], flags[name])
                warnings = [*warnings, f"{later} has {text.format(earlier)}: {rows}"]
    rare = [number for number, count in enumerate(cards[TRAIN].labels) if count < _MIN_ROWS]
    if rare:
        labels = np.array(splits[TRAIN]["label"].tolist())
        names = listing(literal(task.labels[number]) + _first_row(splits[TRAIN], labels, number) for number in rare)
        count = f"{len(rare)} of {len(task.labels)} labels ({len(rare) / len(task.labels):.1%})"
        warnings = [*warnings, f"train has fewer than {_MIN_ROWS} rows for {count}: {names}"]
    return DataCard(splits=cards, leakage=leaks, warnings=[*warnings, *duplicates])


def describe(task: Task, splits: Mapping[str, pd.DataFrame], card: DataCard) -> list[str]:
    """Return the first rows of train and the label table as lines for a terminal."""
    lines = ["First rows of train:"]
    for row in splits[TRAIN].head(_FIRST_ROWS).to_dict("records"):
        texts = " | ".join(literal(row[name]) for name in task.text_columns)
        lines.append(f"  {texts} -> {_label_name(task, row['label'])}")
    return [*lines, "", *aligned(label_table(task, card), "right")]


def _label_name(task: Task, label: Any) -> str:
    if task.is_multi_label:
        return str([name for name, bit in zip(task.labels, label, strict=True) if bit])
    return f"{label:g}" if task.is_regression else literal(task.labels[int(label)])


def _first_row(rows: pd.DataFrame, labels: NDArray[Any], number: int) -> str:
    """Format the `idx` of the first row with a label, which helps to correct a rare label."""
    has_label = labels[:, number] == 1 if labels.ndim == 2 else labels == number
    return f" (first idx {rows['idx'].iloc[has_label.argmax()]})" if has_label.any() else ""


def _count_labels(task: Task, rows: pd.DataFrame) -> list[int]:
    """Return how many rows have each class or label."""
    if "label" not in rows or task.is_regression:
        return []
    labels = np.array(rows["label"].tolist(), dtype=np.int64)
    counts = labels.sum(axis=0) if task.is_multi_label else np.bincount(labels, minlength=len(task.labels))
    return [int(count) for count in counts]


def _summarize(task: Task, rows: pd.DataFrame) -> dict[str, float]:
    """Return statistics of the targets of a regression."""
    if "label" not in rows or not task.is_regression:
        return {}
    targets = rows["label"].astype(float)
    return {"mean": targets.mean(), "std": targets.std(), "min": targets.min(), "max": targets.max()}
