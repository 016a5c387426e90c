"""The rows of a corpus in memory, and the reader of published files with tabs between their fields."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.sources.fetch import Unavailable

if TYPE_CHECKING:
    import pandas as pd  # not at run time, since stage check has to start quickly

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
    splits: dict[str, "pd.DataFrame"]
    origin: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def describe_rows(idx: "pd.Series") -> str:
    """Return how many rows there are, and the `idx` of the first ones."""
    first = ", ".join(str(number) for number in idx.iloc[:_MOST_NUMBERS])
    return f"{len(idx):,} (idx {first}{', ...' * (len(idx) > _MOST_NUMBERS)})"


def drop_incomplete(
    split: str, rows: "pd.DataFrame", task: Task, on_missing: Literal["error", "drop"], warnings: list[str]
) -> "pd.DataFrame":
    """Return the rows that have all texts and a label, and add a warning about the others.

    Raises:
        UserError: There are other rows, and `on_missing` says that these are an error.
    """
    missing = {name: rows[name].str.strip() == "" for name in task.text_columns}
    if "label" in rows:
        missing["label"] = rows["label"].isna()
    descriptions = [
        f"rows without {name}: {describe_rows(rows['idx'][absent])}" for name, absent in missing.items() if absent.any()
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


class Record(NamedTuple):
    """A row as its file has it.

    Attributes:
        where: File and row, for messages.
        label: None if it is not known.
    """

    split: str
    where: str
    texts: tuple[str, ...]
    label: str | None
    idx: int


def table_of(
    task: Task, texts: Iterable[Sequence[str]], labels: Sequence[float] | None, idx: Sequence[int]
) -> "pd.DataFrame":
    """Return the rows of a split. labels: numbers of classes or targets; None if they are not known."""
    import pandas as pd

    rows = pd.DataFrame(texts, columns=task.text_columns)
    if labels is not None:
        rows["label"] = labels
    rows["idx"] = idx
    return rows


def published_origin(splits: dict[str, "pd.DataFrame"], **origin: str) -> dict[str, Any]:
    """Return what source.json says about a published corpus, with a checksum of the rows of each split."""
    return {**origin, "language": "en", "sha256": {split: rows_sha256(rows) for split, rows in splits.items()}}


def rows_sha256(rows: "pd.DataFrame") -> str:
    """Return the sha256 of each row's JSON list, such as `[sentence1, sentence2, label, idx]`, and a line feed."""
    digest = hashlib.sha256()
    for row in zip(*(rows[name].tolist() for name in rows), strict=True):
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def read_tsv(path: Path, columns: list[str], header: list[str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each row and its fields in `columns`, from a file with tabs between fields and no quoting.

    Args:
        header: The names of all columns if the first line does not have them.

    Raises:
        Unavailable: The file is not as it was published.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise Unavailable(f"{path} line {number} is not UTF-8") from None
    lines = text.removesuffix("\n").split("\n")  # not splitlines: it also cuts at characters inside sentences
    if lines[0].endswith("\r"):
        raise Unavailable(f"{path} has line ends of Windows (CRLF); those of the original are LF alone")
    names = header or lines[0].split("\t")
    if missing := [name for name in columns if name not in names]:
        raise Unavailable(f"{path} line 1 is not the original's header, which has {', '.join(missing)}")
    positions = [names.index(name) for name in columns]
    for number, line in enumerate(lines if header else lines[1:], start=1 if header else 2):
        fields = line.split("\t")
        if len(fields) != len(names):
            raise Unavailable(f"{path} line {number} has {len(fields)} fields; a row has {len(names)}, between tabs")
        yield f"{path} line {number}", [fields[position] for position in positions]
