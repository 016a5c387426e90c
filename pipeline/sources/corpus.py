"""A corpus in memory: make it from the rows of a source, and check its rows."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import literal
from pipeline.params import DataParams
from pipeline.sources.files import SPLITS
from pipeline.sources.label_classes import PLACEHOLDERS
from pipeline.sources.labels import read_labels
from pipeline.sources.raw_rows import RawRows
from pipeline.sources.splits import read_split_values, split_fractions, split_train

# Characters of two or more bytes in UTF-8, decoded as cp1252 or latin-1 by another program.
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0)).decode("cp1252", "ignore")
_WRONG_ENCODING = f"[ÃÂâ][{re.escape(_CONTINUATION_BYTES)}\x80-\x9f]"
_TEXT_PLACEHOLDERS = PLACEHOLDERS - {"None", "-", ".", "?"}  # These can be the answer to a question.
_MAX_NUMBERS = 5  # how many row numbers a message lists


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


def make_corpus(rows: Mapping[str, RawRows], params: DataParams) -> Corpus:
    """Read the labels, drop incomplete rows if the user wants that, and make the splits that have no rows of their own.

    Args:
        rows: The rows of each split that the source has, train first.

    Returns:
        The corpus, without its origin.

    Raises:
        UserError: The rows do not fit the section `data` of params.yaml.
    """
    split_values = None
    if params.split.column:
        split_values = read_split_values(params.split, rows[TRAIN].columns[params.split.column])
    fractions = split_fractions(params, rows, split_values)
    labels = read_labels(rows, params)
    task = Task(
        name=params.task,
        problem_type=labels.problem_type,
        text_columns=params.text_column_names,
        labels=labels.names,
        metrics=labels.metrics,
        metric_for_best_model=next((name for name in labels.metrics if name.startswith("f1")), labels.metrics[0]),
        predicted_splits=[split for split in SPLITS[1:] if split in rows or split in fractions],
        unlabeled_splits=[split for split in rows if split not in labels.splits],
        slice_columns=params.slice_columns,
    )
    splits = {split: _labeled_rows(part, labels.splits.get(split), task) for split, part in rows.items()}
    splits, warnings = drop_incomplete(splits, task, params.on_missing)
    warnings = [*labels.warnings, *_text_warnings(rows, task), *warnings]
    splits |= split_train(splits[TRAIN], split_values, fractions, params.split, task)
    return Corpus(task, {split: splits[split] for split in task.splits}, {}, warnings)


def _text_warnings(rows: Mapping[str, RawRows], task: Task) -> list[str]:
    """Return warnings for each text column: texts that mean "missing", and texts decoded with a wrong encoding."""
    warnings = []
    for name in task.text_columns:
        texts = pd.concat([part.columns[name].str.strip() for part in rows.values()])
        placeholders = texts[texts.isin(_TEXT_PLACEHOLDERS)]
        if len(placeholders):
            values = " or ".join(map(literal, placeholders.unique()))
            warnings.append(
                f'"{name}" is {values} in {_describe_occurrences(placeholders, texts)}. If it means that the text is '
                "missing, leave these fields empty and set data.on_missing=drop."
            )
        garbled = texts[texts.str.contains(_WRONG_ENCODING)]
        if len(garbled) > 1:
            warnings.append(
                f'"{name}" has characters such as "Ã©" or "â€™" in {_describe_occurrences(garbled, texts)}. Another '
                "program probably decoded these texts incorrectly. Export them again as UTF-8."
            )
    return warnings


def _describe_occurrences(flagged: pd.Series, texts: pd.Series) -> str:
    """Format the number and the percentage of flagged texts, and the place of the first one."""
    return f"{len(flagged):,} of {len(texts):,} rows ({len(flagged) / len(texts):.1%}), first in {flagged.index[0]}"


def _labeled_rows(part: RawRows, labels: pd.Series | None, task: Task) -> pd.DataFrame:
    """Return the rows of a split with the columns of a corpus."""
    rows = part.columns[[*task.text_columns, *task.slice_columns]].reset_index(drop=True)
    if labels is not None:
        rows["label"] = labels.to_numpy()
    rows["idx"] = np.arange(len(rows), dtype=np.int32)
    return rows


def describe_rows(idx: pd.Series, flags: pd.Series | NDArray[np.bool_]) -> str:
    """Format the number and the percentage of flagged rows, and the `idx` of the first ones."""
    flagged = idx[flags]
    first = ", ".join(map(str, flagged.iloc[:_MAX_NUMBERS]))
    more = ", ..." if len(flagged) > _MAX_NUMBERS else ""
    return f"{len(flagged):,} of {len(idx):,} ({len(flagged) / len(idx):.1%}), idx {first}{more}"


_DROPPED_ROWS = ": dropped rows without a "  # in the warnings of `drop_incomplete`, after the name of the split


def drop_incomplete(
    splits: Mapping[str, pd.DataFrame], task: Task, on_missing: Literal["error", "drop"]
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the rows that have all texts and a label, and warnings about the dropped rows.

    Raises:
        UserError: A row does not have all texts and a label, and `on_missing` is "error", or a split would be empty.
    """
    complete, warnings = {}, []
    for split, rows in splits.items():
        missing = {f'rows without a text in "{name}"': rows[name].str.strip() == "" for name in task.text_columns}
        if "label" in rows:
            missing["rows without a label"] = rows["label"].isna()
        description = ", and ".join(
            f"{reason}: {describe_rows(rows['idx'], flags)}" for reason, flags in missing.items() if flags.any()
        )
        if description and on_missing == "error":
            raise UserError(
                f"{split} has {description}. Complete these rows, or set data.on_missing=drop to drop them. The idx is "
                "the number of the row, counted from 0."
            )
        complete[split] = rows
        if description:
            warnings.append(f"{split}: dropped {description}")
            complete[split] = rows[~np.logical_or.reduce(list(missing.values()))]
            if complete[split].empty:
                raise UserError(f"{warnings[-1]}. No row is left. Complete the rows.")
    return complete, warnings


def has_dropped_rows(warnings: Iterable[str]) -> bool:
    """Return whether one of the warnings of a corpus is that `drop_incomplete` dropped rows."""
    return any(_DROPPED_ROWS in warning for warning in warnings)


def published_origin(splits: dict[str, pd.DataFrame], **origin: str) -> dict[str, Any]:
    """Return the entries of source.json for a published corpus, with a checksum of the rows of each split."""
    return {**origin, "sha256": {split: rows_sha256(rows) for split, rows in splits.items()}}


def rows_sha256(rows: pd.DataFrame) -> str:
    """Return the sha256 of all rows, each as a JSON list such as `[sentence1, sentence2, label, idx]` on a line."""
    digest = hashlib.sha256()
    for row in zip(*(rows[name].tolist() for name in rows), strict=True):
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
