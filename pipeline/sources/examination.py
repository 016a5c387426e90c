"""Prepare a corpus: take a fold and drop leaked rows. Then examine it: count its rows, and make the data card."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import aligned, listing, literal
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, describe_rows
from pipeline.sources.data_card import STATISTICS, DataCard, Leak, SplitCard, label_table
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


class Examination(NamedTuple):
    """What a user should see of a corpus before training.

    Attributes:
        leakage: For each pair of a later and an earlier split, which rows of the later one are also in the earlier one.
        lines: The first rows and the label table, for a terminal.
    """

    leakage: dict[tuple[str, str], pd.DataFrame]
    card: DataCard
    lines: list[str]


def prepare(corpus: Corpus, params: DataParams) -> Corpus:
    """Take a fold if `split.fold` names one, and drop the leaked rows of train if `on_leakage` is "drop".

    Raises:
        UserError: A split would have fewer than 2 rows, train would have only one class, or rows leaked and
            `on_leakage` is "error".
    """
    if params.split.fold:
        _require_rows(corpus)
        corpus = take_fold(corpus, params.split)
    if params.on_leakage != "warn":
        corpus = _without_leaked_rows(corpus, params.on_leakage)
    _require_rows(corpus)
    return corpus


def examine(corpus: Corpus) -> Examination:
    """Count the rows, the labels, the duplicates and the leaked rows of a corpus, and make the data card."""
    hashes = {split: hash_rows(rows, corpus.task.text_columns) for split, rows in corpus.splits.items()}
    leakage = {
        (later, earlier): flag_leakage(hashes[later], hashes[earlier])
        for earlier, later in combinations(corpus.task.splits, 2)
    }
    card = _make_card(corpus, hashes, leakage)
    return Examination(leakage, card, _describe(corpus, card))


def _without_leaked_rows(corpus: Corpus, on_leakage: str) -> Corpus:
    """Drop the rows of train that are also in validation or test. Raises UserError if `on_leakage` is "error"."""
    hashes = {split: hash_rows(rows, corpus.task.text_columns)["row"] for split, rows in corpus.splits.items()}
    train, leaked = corpus.splits[TRAIN], hashes.pop(TRAIN).isin(np.concatenate([*hashes.values()]))
    if not leaked.any():
        return corpus
    description = f"rows that are also in validation or test: {describe_rows(train, leaked)}"
    if on_leakage == "error":
        raise UserError(f"train has {description}. Remove them, or set data.on_leakage=drop.")
    splits, warning = {**corpus.splits, TRAIN: train[~leaked]}, f"train: dropped {description}"
    return replace(corpus, splits=splits, warnings=[*corpus.warnings, warning])


def _require_rows(corpus: Corpus) -> None:
    """Raise UserError if a split has fewer than 2 rows, or train has only one class."""
    remedy = "Change data.split, data.on_missing or data.on_leakage, or add rows."
    for split, rows in corpus.splits.items():
        if len(rows) < 2:  # The score of a single row has no interval.
            raise UserError(f"{split} would have fewer than 2 rows. {remedy}")
    if corpus.task.is_single_label and corpus.splits[TRAIN]["label"].nunique() < 2:
        raise UserError(f"train would have only one class. {remedy}")


def _make_card(
    corpus: Corpus, hashes: Mapping[str, pd.DataFrame], leakage: Mapping[tuple[str, str], pd.DataFrame]
) -> DataCard:
    """Return the data card. Its warnings are those of the corpus, followed by the new ones. Duplicates come last."""
    task = corpus.task
    cards, leaks, warnings, duplicates = {}, [], [*corpus.warnings], []
    for split, rows in corpus.splits.items():
        flags, is_half_empty = flag_duplicates(hashes[split]), (rows[task.text_columns] == "").any(axis=1)
        cards[split] = SplitCard(
            rows=len(rows),
            longest=int(rows[task.text_columns].map(len).to_numpy().max()),
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
                shared = describe_rows(corpus.splits[later], flags[name])
                warnings.append(f"{later} has {text.format(earlier)}: {shared}")
    warnings += _rare_labels(task, corpus.splits[TRAIN], cards[TRAIN].labels)
    return DataCard(splits=cards, leakage=leaks, warnings=[*warnings, *duplicates])


def _rare_labels(task: Task, train: pd.DataFrame, counts: list[int]) -> list[str]:
    """Return a warning that names the labels with few rows in train, or an empty list."""
    rare = [number for number, count in enumerate(counts) if count < _MIN_ROWS]
    if not rare:
        return []
    labels = np.array(train["label"].tolist())
    names = listing(literal(task.labels[number]) + _first_row(train, labels, number) for number in rare)
    count = f"{len(rare)} of {len(task.labels)} labels ({len(rare) / len(task.labels):.1%})"
    return [f"train has fewer than {_MIN_ROWS} rows for {count}: {names}"]


def _describe(corpus: Corpus, card: DataCard) -> list[str]:
    """Return the first rows of train and the label table as lines for a terminal."""
    task = corpus.task
    quoted = replace(task, labels=[literal(label) for label in task.labels])
    lines = ["First rows of train:"]
    for row in corpus.splits[TRAIN].head(_FIRST_ROWS).to_dict("records"):
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
    """Return statistics of the targets of a regression."""
    if "label" not in rows or not task.is_regression:
        return {}
    statistics: dict[str, float] = rows["label"].astype(float).agg([*STATISTICS]).to_dict()
    return statistics
