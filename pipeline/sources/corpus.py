"""The rows of a corpus in memory."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import Task

_MOST_NUMBERS = 5  # of rows in a message


@dataclass(frozen=True)
class Corpus:
    """A corpus.

    Attributes:
        task: What to predict from the rows.
        splits: The rows of each split: the text columns, "label" (the number of a class, a list of 0 and 1 for each
            label, or a target; no such column if the labels are not known), "idx" (the number of the row in its file)
            and the slice columns.
        origin: What source.json says about the corpus.
        warnings: What the user should know about it.
    """

    task: Task
    splits: dict[str, pd.DataFrame]
    origin: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def describe_rows(idx: pd.Series, flags: pd.Series | NDArray[np.bool_]) -> str:
    """Return how many rows are flagged, and the `idx` of the first ones."""
    flagged = idx[flags]
    first = ", ".join(map(str, flagged.iloc[:_MOST_NUMBERS]))
    more = ", ..." if len(flagged) > _MOST_NUMBERS else ""
    return f"{len(flagged):,} of {len(idx):,} ({len(flagged) / len(idx):.1%}), idx {first}{more}"


def drop_incomplete(
    split: str, rows: pd.DataFrame, task: Task, on_missing: Literal["error", "drop"], warnings: list[str]
) -> pd.DataFrame:
    """Return the rows that have all texts and a label, and add a warning about the others.

    Raises:
        UserError: There are other rows, and `on_missing` says that these are an error.
    """
    missing = {name: rows[name].str.strip() == "" for name in task.text_columns}
    if "label" in rows:
        missing["label"] = rows["label"].isna()
    descriptions = [
        f"rows without {name}: {describe_rows(rows['idx'], absent)}" for name, absent in missing.items() if absent.any()
    ]
    if not descriptions:
        return rows
    if on_missing == "error":
        raise UserError(
            f"{task.name}: {split}: {', '.join(descriptions)}; complete these, or set data.on_missing=drop (idx counts "
            "from 0)"
        )
    warnings.append(f"{split}: dropped {', '.join(descriptions)}")
    return rows[~np.logical_or.reduce(list(missing.values()))]


def published_origin(splits: dict[str, pd.DataFrame], **origin: str) -> dict[str, Any]:
    """Return what source.json says about a published corpus, with a checksum of the rows of each split."""
    return {**origin, "language": "en", "sha256": {split: rows_sha256(rows) for split, rows in splits.items()}}


def rows_sha256(rows: pd.DataFrame) -> str:
    """Return the sha256 of each row's JSON list, such as `[sentence1, sentence2, label, idx]`, and a line feed."""
    digest = hashlib.sha256()
    for row in zip(*(rows[name].tolist() for name in rows), strict=True):
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
