"""Write rows, batch by batch, as CSV, TSV, JSON lines or parquet."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output

_HALVES = "backslashreplace"  # a half of a character in UTF-16, as JSON may have, becomes JSON's \ud83d again
Columns = Mapping[str, Sequence[Any] | pa.Array]
Write = Callable[[Columns], None]


@contextmanager
def writing_rows(path: Path | None) -> Iterator[Write]:
    """Yield the function that writes a batch of columns: to a file, by its ending, or as JSON lines to standard output.

    The file appears when the block succeeds. Raises UserError where it cannot be written, or has another ending; and
    the function where a batch has other columns than the first, which JSON lines alone can take.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors=_HALVES)
        yield lambda columns: _write_json_lines(sys.stdout, columns)
        return
    if path.suffix not in _WRITERS:
        raise UserError(f"{path} cannot be written; name a file that ends in one of {', '.join(_WRITERS)}")
    with atomic_output(path) as draft, _WRITERS[path.suffix](path, draft) as write:
        yield write


@contextmanager
def _json_lines(path: Path, draft: Path) -> Iterator[Write]:
    with draft.open("w", encoding="utf-8", errors=_HALVES, newline="\n") as file:
        yield lambda columns: _write_json_lines(file, columns)


def _write_json_lines(file: IO[str], columns: Columns) -> None:
    for row in _rows(columns):
        values = dict(zip(columns, row, strict=True))
        file.write(json.dumps(values, ensure_ascii=False, default=str) + "\n")  # str: of dates and the like


def _rows(columns: Columns) -> Iterator[tuple[Any, ...]]:
    return zip(*(of.to_pylist() if isinstance(of, pa.Array) else of for of in columns.values()), strict=True)


@contextmanager
def _csv(path: Path, draft: Path) -> Iterator[Write]:
    names: list[str] = []
    with draft.open("w", encoding="utf-8", errors=_HALVES, newline="") as file:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        lines = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        quoted = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)

        def write(columns: Columns) -> None:
            if not names:
                names.extend(columns)
                lines.writerow(names)
            _require_columns(path, names, columns)
            for row in _rows(columns):
                cells = list(map(_cell, row))
                # Python quotes a field for its line feeds, not for carriage returns, which end a line too.
                (quoted if any("\r" in cell for cell in cells if isinstance(cell, str)) else lines).writerow(cells)

        yield write


def _cell(value: Any) -> Any:
    """A value as a field; several labels with a bar between them, as in a user's own data."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "|".join(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value


@contextmanager
def _parquet(path: Path, draft: Path) -> Iterator[Write]:
    writers: list[pq.ParquetWriter] = []

    def write(columns: Columns) -> None:
        if not writers:
            table = pa.table({name: _array(path, name, of, None) for name, of in columns.items()})
            writers.append(pq.ParquetWriter(draft, table.schema))
        schema = writers[0].schema
        _require_columns(path, schema.names, columns)
        arrays = [_array(path, name, columns[name], schema.field(name).type) for name in schema.names]
        writers[0].write_table(pa.Table.from_arrays(arrays, schema=schema))

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()


def _array(path: Path, name: str, values: Sequence[Any] | pa.Array, kind: pa.DataType | None) -> pa.Array:
    try:
        if isinstance(values, pa.Array):
            return values if kind is None else values.cast(kind)
        return pa.array(values, type=kind)
    except pa.ArrowException as error:
        raise UserError(f"{path}: column {name} has values of several kinds ({error}); write .jsonl") from None


def _require_columns(path: Path, names: list[str], columns: Columns) -> None:
    if list(columns) != names:
        other = next(iter(set(columns) ^ set(names)))
        raise UserError(f"{path}: not all rows have a column {other}; write .jsonl, or complete them")


_WRITERS = {".csv": _csv, ".tsv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}
