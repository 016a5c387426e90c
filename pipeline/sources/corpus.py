"""A corpus that fits into memory: its task, a table of each split, and the checksum of the rows."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.task import Task
from pipeline.sources.fetch import Unavailable

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 15  # of a batch


class Rows(NamedTuple):
    """Some rows of a split: the task's text columns, `label` where it is known, `idx`, and slice columns.

    unlabelled: the rows whose label is missing all the same.
    """

    batch: "pa.RecordBatch"
    unlabelled: list[int]


@dataclass(frozen=True)
class Corpus:
    """A corpus that fits into memory.

    splits: by name, the task's text columns (string), `label` (int64: number of the class; float64: of a regression;
    none where the labels are not known) and `idx` (int32: the row's number in its original file).
    published: what source.json says of its origin.
    """

    task: Task
    splits: dict[str, "pa.Table"]
    published: Mapping[str, str]

    def read(self, split: str) -> Iterator["Rows"]:
        """The rows of a split in batches."""
        yield from (Rows(batch, []) for batch in self.splits[split].to_batches(max_chunksize=_ROWS))

    def origin(self) -> dict[str, Any]:
        """What source.json says of the corpus, besides its name."""
        sha256 = {split: rows_sha256(table) for split, table in self.splits.items()}
        return {**self.published, "language": "en", "sha256": sha256}


class Record(NamedTuple):
    """A row as its file has it. where: file and row, for messages. label: None where it is not known."""

    split: str
    where: str
    texts: tuple[str, ...]
    label: str | None
    idx: int


def table_of(
    task: Task, texts: Iterable[Sequence[str]], labels: Sequence[float] | None, idx: Sequence[int]
) -> "pa.Table":
    """The table of a split. texts: each row's. labels: classes, or the numbers of a regression; None: not known."""
    import numpy as np
    import pyarrow as pa

    from pipeline.core.tables import from_numpy, from_strings, schema

    columns = dict(zip(task.text_columns, map(from_strings, zip(*texts, strict=True)), strict=True))
    types: dict[str, pa.DataType | list[str]] = dict.fromkeys(columns, pa.string())
    if labels is not None:
        columns["label"], types["label"] = from_numpy(np.array(labels)), task.labels or pa.float64()
    columns["idx"], types["idx"] = from_numpy(np.array(idx, dtype=np.int32)), pa.int32()
    return pa.table(columns, schema=schema(types))


def rows_sha256(table: "pa.Table") -> str:
    """sha256 over each row's JSON list, such as `[sentence1, sentence2, label, idx]`, and a line feed, in UTF-8."""
    digest = hashlib.sha256()
    for batch in table.to_batches(max_chunksize=10_000):
        for row in zip(*batch.to_pydict().values(), strict=True):
            digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def read_tsv(path: Path, columns: list[str], header: list[str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield where each row stands and its fields in `columns`, of a file with tabs between fields and no quoting.

    header: the names of all columns, where the first line does not have them. Raises Unavailable.
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
    at = [names.index(name) for name in columns]
    for number, line in enumerate(lines if header else lines[1:], start=1 if header else 2):
        fields = line.split("\t")
        if len(fields) != len(names):
            raise Unavailable(f"{path} line {number} has {len(fields)} fields; a row has {len(names)}, between tabs")
        yield f"{path} line {number}", [fields[column] for column in at]
