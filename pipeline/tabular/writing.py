"""Write rows in batches as CSV, TSV, JSON lines or Parquet."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output
from pipeline.tabular.reading import to_list

_SURROGATES = "backslashreplace"  # a lone surrogate becomes JSON's \ud83d again
Columns = Mapping[str, Sequence[Any] | pa.Array]
Write = Callable[[Columns], None]


@contextmanager
def writing_rows(path: Path | None) -> Iterator[Write]:
    """Yield a function that writes a batch of columns to a file, or as JSON lines to standard output.

    The file appears when the block succeeds.

    Raises:
        UserError: The file cannot be written, or its ending is unknown. Also raised by the function for a batch whose
            columns differ from those of the first one; only JSON lines can hold such rows.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors=_SURROGATES)
        yield _json_writer(sys.stdout)
        return
    if path.suffix not in (".csv", ".tsv", ".jsonl", ".parquet"):
        raise UserError(f"{path} cannot be written; name a file that ends in one of .csv, .tsv, .jsonl, .parquet")
    with atomic_output(path) as draft:
        if path.suffix == ".parquet":
            with closing(_ParquetFile(path, draft)) as parquet:
                yield parquet.write
        else:
            with draft.open("w", encoding="utf-8", errors=_SURROGATES, newline="") as file:
                yield _json_writer(file) if path.suffix == ".jsonl" else _csv_writer(path, file)


def _json_writer(file: IO[str]) -> Write:
    def write(columns: Columns) -> None:
        for row in _rows(columns):
            values = dict(zip(columns, row, strict=True))
            file.write(json.dumps(values, ensure_ascii=False, default=str) + "\n")  # str: dates and the like

    return write


def _rows(columns: Columns) -> Iterator[tuple[Any, ...]]:
    return zip(*map(to_list, columns.values()), strict=True)


def _csv_writer(path: Path, file: IO[str]) -> Write:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    plain = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    quoted = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    names: list[str] = []

    def write(columns: Columns) -> None:
        if not names:
            names.extend(columns)
            plain.writerow(names)
        _require_columns(path, names, columns)
        for row in _rows(columns):
            cells = [_cell(value) for value in row]
            # Python quotes a field for its line feeds, but not for carriage returns, which end a line, too.
            has_return = any("\r" in cell for cell in cells if isinstance(cell, str))
            (quoted if has_return else plain).writerow(cells)

    return write


def _cell(value: Any) -> Any:
    """Return a value as a field. Several labels have a bar between them, as in a user's own data."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "|".join(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value


class _ParquetFile:
    """A Parquet file with the columns and types of the first batch."""

    def __init__(self, path: Path, draft: Path) -> None:
        self._path, self._draft = path, draft
        self._writer: pq.ParquetWriter | None = None

    def write(self, columns: Columns) -> None:
        types = {column.name: column.type for column in self._writer.schema} if self._writer else {}
        _require_columns(self._path, list(types) or list(columns), columns)
        table = pa.table({name: _array(self._path, name, values, types.get(name)) for name, values in columns.items()})
        self._writer = self._writer or pq.ParquetWriter(self._draft, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer:
            self._writer.close()


def _array(path: Path, name: str, values: Sequence[Any] | pa.Array, arrow_type: pa.DataType | None) -> pa.Array:
    try:
        if isinstance(values, pa.Array):
            return values if arrow_type is None else values.cast(arrow_type)
        return pa.array(values, type=arrow_type)
    except pa.ArrowException as error:
        raise UserError(f"{path}: column {name} has values of several kinds ({error}); write .jsonl") from None


def _require_columns(path: Path, names: list[str], columns: Columns) -> None:
    if list(columns) != names:
        difference = next(iter(set(columns) ^ set(names)), None)
        raise UserError(f"{path}: not all rows have a column {difference}; write .jsonl, or complete them")
