"""Make the data card: counts and warnings that a user should see before training."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.data_card import DataCard, Leak, SplitCard
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import listing, literal
from pipeline.sources.corpus import describe_rows
from pipeline.sources.duplicates import flag_duplicates

_MIN_ROWS = 50  # A model learns little about a class with fewer rows.
_MAX_LEAKED = 0.05  # a proportion: with more rows that are also in train, the warning says what to do
_DUPLICATES = {
    "repeated": "rows that duplicate an earlier row",
    "contradictory": "rows that duplicate an earlier row but have a different label",
}

Counts = NDArray[np.int64]


def survey(
    task: Task,
    splits: dict[str, pd.DataFrame],
    hashes: dict[str, pd.DataFrame],
    leakage: dict[tuple[str, str], pd.DataFrame],
    warnings: list[str],
) -> DataCard:
    """Return the data card.

    Args:
        leakage: For each pair of a later and an earlier split, which rows of the later one are also in the earlier one.
        warnings: The warnings so far. The card lists them first, followed by the new ones. Duplicates come last.
    """
    warnings, duplicates = [*warnings], []
    counts = {split: _count_labels(task, rows) for split, rows in splits.items() if "label" in rows and task.labels}
    cards = {}
    for split, rows in splits.items():
        flags = flag_duplicates(hashes[split])
        for flag, description in _DUPLICATES.items():
            if flags[flag].any():
                duplicates.append(f"{split} has {description}: {describe_rows(rows['idx'], flags[flag])}")
        cards[split] = SplitCard(
            rows=len(rows),
            longest=int(max(rows[name].str.len().max() for name in task.text_columns)),
            labels=counts[split].tolist() if split in counts else [],
            numbers={} if task.labels or "label" not in rows else _summarize(rows["label"].astype(float)),
            **{flag: int(flags[flag].sum()) for flag in _DUPLICATES},
        )
    leaks = []
    for (later, earlier), flags in leakage.items():
        leak = Leak(later=later, earlier=earlier, **{name: int(flags[name].sum()) for name in flags})
        warnings += _leak_warnings(leak, flags, splits[later]["idx"])
        leaks.append(leak)
    warnings += _class_warnings(task, splits, counts)
    return DataCard(splits=cards, leakage=leaks, warnings=warnings + duplicates)


def _summarize(targets: pd.Series) -> dict[str, float]:
    return {"mean": targets.mean(), "std": targets.std(), "min": targets.min(), "max": targets.max()}


def _count_labels(task: Task, rows: pd.DataFrame) -> Counts:
    """Return how many rows have each class or label."""
    labels = np.array(rows["label"].tolist(), dtype=np.int64)
    return labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=len(task.labels))


def _leak_warnings(leak: Leak, flags: pd.DataFrame, idx: pd.Series) -> list[str]:
    descriptions = {
        "rows": f"rows that are also in {leak.earlier}",
        "contradictory": f"rows that are also in {leak.earlier}, but with a different label",
        "texts": f"rows that share a text with {leak.earlier}",
    }
    if leak.texts == leak.rows:  # These are the same rows.
        del descriptions["texts"]
    remedies = {}
    if leak.earlier == TRAIN and leak.rows > _MAX_LEAKED * len(idx):
        remedies["rows"] = (
            ". If the pipeline makes the splits, set data.split.type=group to keep such rows in the same split. "
            "Otherwise, set data.on_leakage=drop to remove them from train"
        )
    return [
        f"{leak.later} has {description}: {describe_rows(idx, flags[flag])}{remedies.get(flag, '')}"
        for flag, description in descriptions.items()
        if flags[flag].any()
    ]


def _class_warnings(task: Task, splits: dict[str, pd.DataFrame], counts: dict[str, Counts]) -> list[str]:
    """Return warnings about labels that are missing in a split, or that have few rows in train."""
    warnings = []
    for split, split_counts in counts.items():
        if len(new := np.flatnonzero((counts[TRAIN] == 0) & (split_counts > 0))):
            labels = np.array(splits[split]["label"].tolist())
            has_new = labels[:, new].any(axis=1) if labels.ndim == 2 else np.isin(labels, new)
            names = listing(literal(task.labels[label]) for label in new)
            idx = describe_rows(splits[split]["idx"], has_new)
            warnings.append(f"{split} has rows with a label that train does not have ({names}): {idx}")
        if split != TRAIN and len(absent := np.flatnonzero(split_counts == 0)):
            names = listing(literal(task.labels[label]) for label in absent)
            warnings.append(
                f"{split} has no rows for {len(absent)} of {len(task.labels)} labels "
                f"({len(absent) / len(task.labels):.1%}), which cannot be scored there: {names}"
            )
    rare = [(name, count) for name, count in zip(task.labels, counts.get(TRAIN, []), strict=True) if count < _MIN_ROWS]
    if rare:
        size = len(splits[TRAIN])
        names = listing(f"{literal(name)} ({count}, {count / size:.1%})" for name, count in rare)
        warnings.append(
            f"train has fewer than {_MIN_ROWS} rows for {len(rare)} of {len(task.labels)} labels "
            f"({len(rare) / len(task.labels):.1%}), which is too few to learn them well: {names}"
        )
    return warnings
