"""Examine a corpus: drop the rows that must not be used, and make the data card."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.data_card import STATISTICS, DataCard, Leak, SplitCard, label_table
from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import aligned, listing, literal
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, describe_rows
from pipeline.sources.duplicates import flag_duplicates, flag_leakage, hash_rows
from pipeline.sources.folds import take_fold

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


class Examined(NamedTuple):
    """A corpus without the rows that must not be used, and what a user should see of it.

    Attributes:
        leakage: For each pair of a later and an earlier split, which rows of the later one are also in the earlier one.
        lines: The first rows and the label table, for a terminal.
    """

    task: Task
    splits: dict[str, pd.DataFrame]
    leakage: dict[tuple[str, str], pd.DataFrame]
    card: DataCard
    lines: list[str]


def examine(corpus: Corpus, params: DataParams) -> Examined:
    """Take a fold, drop leaked rows, and make the data card.

    Raises:
        UserError: A split would be empty, train would have only one class, or `on_leakage` is "error".
    """
    if params.split.fold:
        _require_rows(corpus.splits, corpus.task)
        corpus = take_fold(corpus, params.split)
    task, splits, warnings = corpus.task, {**corpus.splits}, [*corpus.warnings]
    hashes = {split: hash_rows(rows, task.text_columns) for split, rows in splits.items()}
    leaked = hashes[TRAIN]["row"].isin(np.concatenate([hashes[split]["row"] for split in task.predicted_splits]))
    if leaked.any() and params.on_leakage != "warn":
        description = f"rows that are also in validation or test: {describe_rows(splits[TRAIN], leaked)}"
        if params.on_leakage == "error":
            raise UserError(f"train has {description}. Remove them, or set data.on_leakage=drop.")
        warnings.append(f"train: dropped {description}")
        splits[TRAIN], hashes[TRAIN] = splits[TRAIN][~leaked], hashes[TRAIN][~leaked]
    _require_rows(splits, task)
    leakage = {
        (later, earlier): flag_leakage(hashes[later], hashes[earlier])
        for earlier, later in combinations(task.splits, 2)
    }
    card = _make_card(task, splits, hashes, leakage, warnings)
    return Examined(task, splits, leakage, card, _describe(task, splits, card))


def _require_rows(splits: dict[str, pd.DataFrame], task: Task) -> None:
    """Raise UserError if a split has no rows, or train has only one class."""
    remedy = "Change data.split, data.on_missing or data.on_leakage, or add rows."
    for split, rows in splits.items():
        if rows.empty:
            raise UserError(f"{split} would have no rows. {remedy}")
    if task.is_single_label and splits[TRAIN]["label"].nunique() < 2:
        raise UserError(f"train would have only one class. {remedy}")


def _make_card(
    task: Task,
    splits: Mapping[str, pd.DataFrame],
    hashes: Mapping[str, pd.DataFrame],
    leakage: Mapping[tuple[str, str], pd.DataFrame],
    warnings: list[str],
) -> DataCard:
    """Return the data card. Its warnings are the given ones, followed by the new ones. Duplicates come last."""
    cards, leaks, warnings, duplicates = {}, [], [*warnings], []
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
            warnings.append(f"{split} has pairs with an empty text: {describe_rows(rows, is_half_empty)}")
        for name, text in _DUPLICATES.items():
            if flags[name].any():
                duplicates.append(f"{split} has {text}: {describe_rows(rows, flags[name])}")
    for (later, earlier), flags in leakage.items():
        leak = Leak(later=later, earlier=earlier, **{name: int(flags[name].sum()) for name in _LEAKS})
        leaks.append(leak)
        for name, text in _LEAKS.items():
            if flags[name].any() and (name != "texts" or leak.texts != leak.rows):
                rows = describe_rows(splits[later], flags[name])
                warnings.append(f"{later} has {text.format(earlier)}: {rows}")
    rare = [number for number, count in enumerate(cards[TRAIN].labels) if count < _MIN_ROWS]
    if rare:
        labels = np.array(splits[TRAIN]["label"].tolist())
        names = listing(literal(task.labels[number]) + _first_row(splits[TRAIN], labels, number) for number in rare)
        count = f"{len(rare)} of {len(task.labels)} labels ({len(rare) / len(task.labels):.1%})"
        warnings.append(f"train has fewer than {_MIN_ROWS} rows for {count}: {names}")
    return DataCard(splits=cards, leakage=leaks, warnings=[*warnings, *duplicates])


def _describe(task: Task, splits: Mapping[str, pd.DataFrame], card: DataCard) -> list[str]:
    """Return the first rows of train and the label table as lines for a terminal."""
    quoted = replace(task, labels=[literal(label) for label in task.labels])
    lines = ["First rows of train:"]
    for row in splits[TRAIN].head(_FIRST_ROWS).to_dict("records"):
        texts = " | ".join(literal(row[name]) for name in task.text_columns)
        lines.append(f"  {texts} -> {quoted.format_label(row['label'], separator=', ', if_empty='no label')}")
    return [*lines, "", *aligned(label_table(task, card), "right")]


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
    """Return statistics of the targets of a regression. For a single row, the standard deviation is 0 and not NaN."""
    if "label" not in rows or not task.is_regression:
        return {}
    statistics: dict[str, float] = rows["label"].astype(float).agg([*STATISTICS]).fillna(0).to_dict()
    return statistics
