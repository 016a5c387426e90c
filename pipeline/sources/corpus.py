"""A corpus in memory, and checks of its rows."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import Task

_MOST_NUMBERS = 5  # how many row numbers a message lists


@dataclass(frozen=True)
class Corpus:
    """The rows of all splits, with their task and origin.

    Attributes:
        splits: The rows of each split. Their columns are the text columns, "label" (a class number, a list with 0 or 1
            for each label, or a target; missing if the labels are not known), "idx" (the number of the row in its
            file, counted across the files if the split has several) and the slice columns.
        origin: The entries of source.json.
        warnings: What the user should know about the data.
    """

    task: Task
    splits: dict[str, pd.DataFrame]
    origin: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def describe_rows(idx: pd.Series, flags: pd.Series | NDArray[np.bool_]) -> str:
    """Format the number and the percentage of flagged rows, and the `idx` of the first ones."""
    flagged = idx[flags]
    first = ", ".join(map(str, flagged.iloc[:_MOST_NUMBERS]))
    more = ", ..." if len(flagged) > _MOST_NUMBERS else ""
    return f"{len(flagged):,} of {len(idx):,} ({len(flagged) / len(idx):.1%}), idx {first}{more}"


def drop_incomplete(
    split: str, rows: pd.DataFrame, task: Task, on_missing: Literal["error", "drop"], warnings: list[str]
) -> pd.DataFrame:
    """Return the rows that have all texts and a label, and add a warning about the dropped rows.

    Raises:
        UserError: A row does not have all texts and a label, and `on_missing` is "error".
    """
    missing = {f'rows without a text in "{name}"': rows[name].str.strip() == "" for name in task.text_columns}
    if "label" in rows:
        missing["rows without a label"] = rows["label"].isna()
    descriptions = [
        f"{description}: {describe_rows(rows['idx'], flags)}" for description, flags in missing.items() if flags.any()
    ]
    if not descriptions:
        return rows
    if on_missing == "error":
        raise UserError(
            f"{task.name}: {split} has {', and '.join(descriptions)}. Complete these rows, or set "
            "data.on_missing=drop to drop them. The idx is the number of the row, counted from 0."
        )
    warnings.append(f"{split}: dropped {', and '.join(descriptions)}")
    return rows[~np.logical_or.reduce(list(missing.values()))]


def published_origin(splits: dict[str, pd.DataFrame], **origin: str) -> dict[str, Any]:
    """Return the entries of source.json for a published corpus, with a checksum of the rows of each split."""
    return {**origin, "sha256": {split: rows_sha256(rows) for split, rows in splits.items()}}


def rows_sha256(rows: pd.DataFrame) -> str:
    """Return the sha256 of all rows, each as a JSON list such as `[sentence1, sentence2, label, idx]` on a line."""
    digest = hashlib.sha256()
    for row in zip(*(rows[name].tolist() for name in rows), strict=True):
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
