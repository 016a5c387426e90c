"""A corpus in memory: make it from tables, and check its rows."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import listing, literal
from pipeline.params import DataParams
from pipeline.sources.files import SPLITS
from pipeline.sources.labels import label_columns, read_labels
from pipeline.sources.splits import read_split_values, split_fractions, split_train
from pipeline.sources.tables import Table

_MAX_NUMBERS = 5  # how many row numbers a message lists


@dataclass(frozen=True)
class Corpus:
    """The rows of all splits, with their task and origin.

    Attributes:
        splits: The rows of each split. Their columns are the text columns, "label" (a class number, a list with 0 or 1
            for each label, or a target; missing if the labels are not known), "idx" (the number of the row in its
            file, counted across the files if the split has several) and the slice columns. The index has the place of
            each row, such as "data/custom/train.csv line 5".
        origin: The entries of source.json.
        warnings: What the user should know about the data.
        groups: With the split type "group" and a column, the group of each row that the source has in train.
    """

    task: Task
    splits: dict[str, pd.DataFrame]
    origin: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    groups: pd.Series | None = None


def make_corpus(tables: Mapping[str, Table], params: DataParams, origin: dict[str, Any]) -> Corpus:
    """Read the labels, drop incomplete rows if the user wants that, and make the splits that have no rows of their own.

    Args:
        tables: The rows of each split that the source has, train first.

    Raises:
        UserError: The rows do not fit the section `data` of params.yaml.
    """
    for split, table in tables.items():
        table.require(_columns_to_read(split, params, table))
    column = params.split.column
    split_values = read_split_values(params.split, tables[TRAIN].texts(column)) if column else None
    fractions = split_fractions(params, tables, split_values)
    labels = read_labels(tables, params)
    task = Task(
        name=params.task,
        problem_type=labels.problem_type,
        text_columns=params.text_column_names,
        labels=labels.names,
        metrics=labels.metrics,
        metric_for_best_model=next((name for name in labels.metrics if name.startswith("f1")), labels.metrics[0]),
        predicted_splits=[split for split in SPLITS[1:] if split in tables or split in fractions],
        unlabeled_splits=[split for split in tables if split not in labels.splits],
        slice_columns=params.slice_columns,
    )
    splits = {}
    for split, table in tables.items():
        rows = pd.DataFrame({name: table.texts(name) for name in [*task.text_columns, *task.slice_columns]})
        if split in labels.splits:
            rows["label"] = labels.splits[split]
        splits[split] = rows.assign(idx=np.arange(len(rows), dtype=np.int32))
    complete, warnings = drop_incomplete(splits, task, params.on_missing)
    if labels.similar:
        names = ", ".join(map(literal, labels.similar))
        warnings = [f"labels that differ only in case or spaces: {names}", *warnings]
    complete |= split_train(complete[TRAIN], split_values, fractions, params.split, task)
    groups = split_values if params.split.type == "group" else None
    return Corpus(task, {split: complete[split] for split in task.splits}, origin, warnings, groups)


def _columns_to_read(split: str, params: DataParams, table: Table) -> list[str]:
    """Return the columns that a split must have. Test may lack all label columns."""
    columns = [*params.text_column_names, *params.slice_columns]
    labels = label_columns(params)
    if split != "test" or {*labels} & {*table.rows}:
        columns += labels
    if split == TRAIN and params.split.column:
        columns.append(params.split.column)
    return columns


def describe_rows(rows: pd.DataFrame, flags: pd.Series | NDArray[np.bool_]) -> str:
    """Format the number and the percentage of flagged rows, and the `idx` of the first ones."""
    flagged = rows["idx"][np.asarray(flags)]
    first = ", ".join(map(str, flagged.iloc[:_MAX_NUMBERS]))
    more = ", ..." if len(flagged) > _MAX_NUMBERS else ""
    return f"{len(flagged):,} of {len(rows):,} ({len(flagged) / len(rows):.1%}), idx {first}{more}"


def drop_incomplete(
    splits: Mapping[str, pd.DataFrame], task: Task, on_missing: Literal["error", "drop"]
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the rows that have a text and a label, and warnings about all other rows. A pair may have one empty text.

    Raises:
        UserError: A row has no text or no label, and `on_missing` is "error", or a split would be empty.
    """
    complete, warnings = {}, []
    for split, rows in splits.items():
        missing = {"text": rows[task.text_columns].apply(lambda column: column.str.strip() == "").all(axis=1)}
        if "label" in rows:
            missing["label"] = rows["label"].isna()
        incomplete = np.logical_or.reduce(list(missing.values()))
        complete[split] = rows[~incomplete]
        if not incomplete.any():
            continue
        reasons = [
            f"rows without a {name}: {describe_rows(rows, flags)}" for name, flags in missing.items() if any(flags)
        ]
        if on_missing == "error" or complete[split].empty:
            raise UserError(
                f"{split} has {', and '.join(reasons)}. Complete these rows, or set data.on_missing=drop to drop them. "
                "The idx is the number of the row, counted from 0."
            )
        warnings.append(f"{split}: dropped {', and '.join(reasons)}{_describe_labels(rows[incomplete], task)}")
    return complete, warnings


def _describe_labels(rows: pd.DataFrame, task: Task) -> str:
    """Format the number of rows of each class. If most dropped rows have the same class, the data changes."""
    if not task.is_single_label or "label" not in rows or rows["label"].isna().all():
        return ""
    counts = rows["label"].dropna().astype(int).value_counts()
    return "; their labels: " + listing(f"{literal(task.labels[label])} {count:,}" for label, count in counts.items())


def published_origin(splits: Mapping[str, pd.DataFrame], **origin: str) -> dict[str, Any]:
    """Return the entries of source.json for a published corpus, with a checksum of the rows of each split."""
    return {**origin, "sha256": {split: rows_sha256(rows) for split, rows in splits.items()}}


def rows_sha256(rows: pd.DataFrame) -> str:
    """Return the sha256 of all rows, each as a JSON list such as `[sentence1, sentence2, label, idx]` on a line."""
    digest = hashlib.sha256()
    for row in zip(*(rows[name].tolist() for name in rows), strict=True):
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
