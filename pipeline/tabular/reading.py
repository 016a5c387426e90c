"""Read rows of CSV, TSV, JSON and Parquet files in batches. Every error names the file and the line."""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.core.messages import UserError, log
from pipeline.core.text import closest_match, listing, literal
from pipeline.tabular.csv_rows import csv_rows
from pipeline.tabular.file_format import DEFAULT_FORMAT, FileFormat
from pipeline.tabular.json_rows import is_list, line_rows, list_rows, nested_names, nested_value
from pipeline.tabular.opening import (
    LONE_SURROGATE,
    Rows,
    data_suffix,
    is_compressed,
    open_bytes,
    text_codec,
)
from pipeline.tabular.parquet_rows import class_names, parquet_batches

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")  # suffixes of the files that can be read
_SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
REMEDIES = {  # by the suffix of a file that cannot be read
    **dict.fromkeys(("", ".txt", ".data"), "If it is a table, rename it to .csv or .tsv."),
    ".zip": "Unpack it first.",
    ".arrow": "Read its directory with datasets.load_from_disk, and write each split with to_parquet.",
}
_ROWS = 1 << 15  # rows per batch
_HEAD = 1 << 16  # bytes that show how a file is encoded
# A column without a name, such as an index that pandas or R has written, or what trailing delimiters separate.
_UNNAMED = re.compile(r"|__index_level_\d+__|Unnamed: \d+(\.\d+)*")


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file.

    Attributes:
        path: The file.
        unit: "line" or "row", depending on what `numbers` are.
        numbers: The line on which each row starts. If the file has no lines, the number of the row, from 0.
        columns: The values of each column, or None if missing. A column that the file does not have is left out.
        schema: The schema, if it is a Parquet file.
    """

    path: Path
    unit: str
    numbers: Sequence[int]
    columns: Mapping[str, list[Any]]
    schema: pa.Schema | None = None

    @cached_property
    def class_names(self) -> dict[str, list[str]]:
        """The class names of each column that contains class numbers, if the file has such names."""
        return {} if self.schema is None else class_names(self.path, self.schema)

    def place(self, row: int) -> str:
        return f"{self.path} {self.unit} {self.numbers[row]}"

    def error(self, row: int, reason: str) -> UserError:
        return UserError(f"{self.place(row)} {reason}")

    def text(self, row: int, name: str) -> str:
        """Return a field as text. It is empty if the value is missing. Raises UserError if the value is not text.

        The text of a class number is the name of the class. The package `datasets` writes -1 if a class is missing.
        """
        value = self.columns[name][row]
        class_names = self.class_names.get(name, []) if isinstance(value, int) else []
        if value in range(-1, len(class_names)):
            value = class_names[value] if value >= 0 else None
        if isinstance(value, (list, dict, bytes)):
            raise self.error(row, f'has {literal(value)} in column "{name}", which is not text. Correct it.')
        text = "" if is_missing(value) else str(value)
        if LONE_SURROGATE.search(text):
            raise self.error(row, f'has {literal(value)} in column "{name}", which is not valid Unicode. Correct it.')
        return text


class ColumnSelection(NamedTuple):
    """The columns to read.

    Attributes:
        wanted: Columns that the file must have, unless they are optional.
        optional: The wanted columns that may be missing, but not spelled differently.
        keep_rest: Whether to read all other columns too.
        remedy: A sentence that says what to do if a column is missing.
    """

    wanted: Sequence[str]
    optional: Sequence[str] = ()
    keep_rest: bool = False
    remedy: str = "Name one of these columns in params.yaml."

    def select(self, path: Path, names: list[str], nested: Sequence[str] = ()) -> list[str]:
        """Choose the columns to read from a file, and warn about other columns that occur more than once.

        Args:
            names: The columns of the file. Those without a name are left out, unless they are wanted.
            nested: The names of fields inside the columns, such as "review.text".

        Raises:
            UserError: A wanted column is missing, or occurs more than once.
        """
        rest = [name for name in names if not _UNNAMED.fullmatch(name)] if self.keep_rest else []
        lowercase = {name.strip().lower() for name in [*names, *nested]}
        selected = dict.fromkeys([*self.wanted, *rest])
        for name in selected:
            if (count := names.count(name)) > 1 and name in self.wanted:
                raise UserError(f'{path} has {count} columns named "{name}". Rename all but one.')
            if count > 1:
                log.warning('%s has %d columns named "%s". Only the last one is read.', path, count, name)
            may_be_missing = name in self.optional and name.strip().lower() not in lowercase
            if name not in names and name not in nested and not may_be_missing:
                raise self._missing_column(path, name, [*names, *nested])
        return [name for name in dict.fromkeys([*names, *nested]) if name in selected]

    def _missing_column(self, path: Path, missing: str, names: list[str]) -> UserError:
        names = [name for name in names if not _UNNAMED.fullmatch(name)]
        by_lowercase = {candidate.strip().lower(): candidate for candidate in names}
        similar = closest_match(missing.strip().lower(), by_lowercase)
        remedy = (f'Did you mean "{by_lowercase[similar]}"? ' if similar else "") + self.remedy
        return UserError(f'{path} has no column "{missing}". Its columns are: {listing(names, 20)}. {remedy}')


def read_file(
    path: Path,
    columns: ColumnSelection,
    file_format: FileFormat = DEFAULT_FORMAT,
) -> Iterator[Batch]:
    """Yield the rows of a file in batches.

    Raises:
        UserError: The file or a row cannot be read, a column is missing, or the text is in another encoding.
    """
    check_file(path, file_format)
    encoding = file_format.encoding
    if data_suffix(path) == ".parquet":
        for numbers, values, schema in parquet_batches(path, _ROWS, partial(columns.select, path)):
            yield Batch(path, "row", numbers, values, schema)
    elif data_suffix(path) in (".csv", ".tsv"):
        rows = csv_rows(path, file_format, partial(columns.select, path))
        yield from _row_batches(path, "line", rows, columns)
    elif is_list(path, encoding):
        yield from _row_batches(path, "row", list_rows(path, encoding), columns)
    else:
        yield from _row_batches(path, "line", line_rows(path, encoding), columns)


def check_file(path: Path, file_format: FileFormat) -> None:
    """Raise UserError if a file cannot be read, is empty, has an unsupported suffix, or is in another encoding."""
    suffix = data_suffix(path)
    if suffix in _SPREADSHEETS:
        raise UserError(
            f'{path} is a spreadsheet. In the program that made it, save it as "CSV UTF-8", or convert it with '
            "pandas.read_excel(..., dtype=str).to_csv(..., index=False)."
        )
    if suffix not in FORMATS or (is_compressed(path) and suffix == ".parquet"):
        formats = (
            f"Save it in one of these formats: {', '.join(FORMATS)}. All but .parquet may be compressed (.csv.gz)."
        )
        raise UserError(f"{path} has an unsupported suffix. {REMEDIES.get(suffix, formats)}")
    with open_bytes(path) as file:
        head = file.read(_HEAD)
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise UserError(f"{path} is empty. Put rows into it, or remove it.")
    if suffix != ".parquet":
        _check_encoding(path, head, file_format.encoding)


def _check_encoding(path: Path, head: bytes, encoding: str) -> None:
    """Raise UserError if a file is certainly in another encoding. Other mistakes appear when its lines are decoded."""
    codec = text_codec(encoding)
    is_wide = codec.startswith(("utf-16", "utf-32"))
    # "utf-16-le" and "utf-16-be" would read the mark as a character. In UTF-32, the same bytes begin another mark.
    may_start_with_mark = codec == "utf-16" or codec.startswith("utf-32")
    if not may_start_with_mark and head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        actual, alternative = "utf-16", ", or save it as UTF-8"
    elif not is_wide and b"\0" in head:
        raise UserError(
            f"{path} contains null bytes, so it is not {encoding} text. Save it as UTF-8 text, or correct its "
            "suffix (.gz, .parquet, .xlsx). If it is UTF-16, you can set data.encoding to utf-16-le or utf-16-be "
            "instead (in a command, --encoding)."
        )
    elif codec != "utf-8-sig" and (_is_utf8(head) or (is_wide and b"\0" not in head)):
        actual, alternative = "utf-8", ""
    else:
        return
    raise UserError(
        f"{path} is {actual.upper()} text, not {encoding}. Set data.encoding={actual} (in a command, --encoding "
        f"{actual}){alternative}."
    )


def _is_utf8(head: bytes) -> bool:
    """Return whether bytes are UTF-8 with other characters than ASCII, which is unlikely in any other encoding."""
    try:
        return not codecs.getincrementaldecoder("utf-8")().decode(head).isascii()
    except UnicodeDecodeError:
        return False


def _row_batches(path: Path, unit: str, rows: Rows, columns: ColumnSelection) -> Iterator[Batch]:
    names: list[str] = []
    while chunk := list(islice(rows, _ROWS)):
        # A JSON object may omit a column. The first batch must have the column in some row, but later batches need not.
        keys = dict.fromkeys([*names, *chain.from_iterable(row for _, row in chunk)])
        nested = [] if keys.keys() >= set(columns.wanted) else nested_names(row for _, row in chunk)
        names = columns.select(path, list(keys), nested)
        values = {name: [nested_value(row, name) for _, row in chunk] for name in names}
        yield Batch(path, unit, [number for number, _ in chunk], values)


def is_missing(value: object) -> bool:
    """Return whether a value is missing: null, or NaN, which Python's `json` writes for a missing number."""
    return value is None or value != value
