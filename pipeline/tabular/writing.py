"""Write rows in batches as CSV, TSV, JSON Lines or Parquet."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output

_SURROGATES = "backslashreplace"  # writes a lone surrogate as an escape, such as \ud83d
Columns = Mapping[str, list[Any]]
Types = Mapping[str, pa.DataType]
Write = Callable[[Columns, Types], None]


@contextmanager
def writing_rows(path: Path | None) -> Iterator[Write]:
    """Yield a function that writes a batch of columns to a file, or as JSON Lines to standard output.

    The file appears only if the block succeeds. The second argument of the function has the known types of columns. A
    Parquet file uses them, and infers the types of other columns from the first batch.

    Raises:
        UserError: The file cannot be written, or its suffix is not supported. The function also raises it if the
            columns of a batch differ from the columns of the first batch, because only JSON Lines can hold such rows.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors=_SURROGATES)
        yield partial(_write_json, sys.stdout)
        return
    if path.suffix not in (".csv", ".tsv", ".jsonl", ".parquet"):
        raise UserError(f"{path} has an unsupported suffix. Use one of .csv, .tsv, .jsonl, .parquet.")
    with atomic_output(path) as draft:
        if path.suffix == ".parquet":
            with closing(_ParquetFile(path, draft)) as parquet:
                yield parquet.write
        else:
            with draft.open("w", encoding="utf-8", errors=_SURROGATES, newline="") as file:
                if path.suffix == ".jsonl":
                    yield partial(_write_json, file)
                else:
                    yield _CsvFile(path, file).write


def _write_json(file: IO[str], columns: Columns, _: Types) -> None:
    for row in zip(*columns.values(), strict=True):
        values = dict(zip(columns, row, strict=True))
        file.write(json.dumps(values, ensure_ascii=False, default=str) + "\n")  # str for dates and similar types


class _CsvFile:
    """A CSV or TSV file with the columns of the first batch."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path = path
        self._names: list[str] = []
        delimiter = "\t" if path.suffix == ".tsv" else ","
        # By default, a field with a carriage return, which also ends a line, has no quotes.
        self._writer = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)

    def write(self, columns: Columns, _: Types) -> None:
        if not self._names:
            self._names = list(columns)
            self._writer.writerow(self._names)
        _require_columns(self._path, self._names, columns)
        for row in zip(*columns.values(), strict=True):
            self._writer.writerow(_field(value) for value in row)


def _field(value: Any) -> Any:
    """Format a value as a field. A list of texts is joined with "|", like several labels in custom files."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "|".join(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value


class _ParquetFile:
    """A Parquet file with the columns and types of the first batch."""

    def __init__(self, path: Path, draft: Path) -> None:
        self._path, self._draft = path, draft
        self._writer: pq.ParquetWriter | None = None

    def write(self, columns: Columns, types: Types) -> None:
        if self._writer:
            types = column_types(self._writer.schema)
            _require_columns(self._path, list(types), columns)
        try:
            table = pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()})
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise UserError(
                f"{self._path}: a column has values that Parquet cannot store ({error}). Write a .jsonl file instead."
            ) from None
        self._writer = self._writer or pq.ParquetWriter(self._draft, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer:
            self._writer.close()


def column_types(schema: pa.Schema | None) -> dict[str, pa.DataType]:
    """Return the type of each column in the schema of a Parquet file. Without a schema, the result is empty."""
    return {} if schema is None else dict(zip(schema.names, schema.types, strict=True))


def _require_columns(path: Path, names: list[str], columns: Columns) -> None:
    if list(columns) != names:
        difference = next(iter(set(columns) ^ set(names)), None)
        raise UserError(
            f'{path}: not all rows have a column "{difference}". Write a .jsonl file instead, or complete the rows.'
        )
