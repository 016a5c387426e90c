"""Read rows of CSV, TSV, JSON and Parquet files in batches. Every error names the file and the line."""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Features

from pipeline.core.messages import UserError
from pipeline.core.text import closest_match, listing, literal

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")  # suffixes of the files that can be read
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a UTF-16 pair, which JSON can contain but UTF-8 cannot
_ROWS = 1 << 15  # rows per batch
_LONGEST_FIELD = 10_000_000  # in characters, because a quote that is never closed would take the rest of the file
_TEXT = "UTF-8 text"
# How files start. The patterns allow for CSV files whose first column has a name such as <q>, [q], {q} or PAR1.
_CONTENTS = {
    "a Parquet file": rb"PAR1(?![,\t])",
    "a zip or Excel file": rb"PK\x03\x04",
    "a gzip file": rb"\x1f\x8b",
    "a PDF": rb"%PDF",
    "UTF-16 text": rb"\xff\xfe|\xfe\xff",
    "an HTML or XML page": rb"<!doctype|<!--|<\?xml|<(html|head|body|table)(\s|>(?![,\t]))",
    "JSON": rb"""[\[{][\s\[{]*\"""",
    "a Git LFS pointer": rb"version https://git-lfs",
}

Rows = Iterator[tuple[int, dict[str, Any]]]  # the line or number of each row, and its values by column


class RowError(UserError):
    """A row that cannot be used.

    Attributes:
        where: The file and the line. The message starts with it.
        why: The rest of the message: what was found and what to do.
        row: The part of the row that could be read.
    """

    def __init__(self, where: str, why: str, row: Any) -> None:
        super().__init__(f"{where} {why}")
        self.where, self.why, self.row = where, why, row


OnError = Callable[[RowError], None]


def raise_row_error(error: RowError) -> None:
    """Raise the error, to stop at the first row that cannot be used."""
    raise error


class Batch(NamedTuple):
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

    @property
    def class_names(self) -> dict[str, list[str]]:
        """The class names of each column that contains class numbers, if the file has such names."""
        return {} if self.schema is None else _class_names(self.schema)

    def where(self, row: int) -> str:
        return f"{self.path} {self.unit} {self.numbers[row]}"

    def error(self, row: int, why: str) -> RowError:
        return RowError(self.where(row), why, {name: values[row] for name, values in self.columns.items()})

    def take(self, rows: Sequence[int]) -> "Batch":
        """Return a batch with only these rows."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return self._replace(numbers=[self.numbers[row] for row in rows], columns=columns)

    def text(self, row: int, name: str) -> str:
        """Return a field as text. It is empty if the value is missing. Raises RowError if the value is not text."""
        value = self.columns[name][row]
        if isinstance(value, (list, dict, bytes)):
            raise self.error(row, f'has {literal(value)} in column "{name}", which is not text. Correct it.')
        text = "" if is_missing(value) else str(value)
        if LONE_SURROGATE.search(text):
            raise self.error(row, f'has {literal(value)} in column "{name}", which is not valid Unicode. Correct it.')
        return text


def texts(batch: Batch, name: str) -> list[str]:
    """Return a column as texts. Raises RowError if one of its values is not text."""
    return [batch.text(row, name) for row in range(len(batch.numbers))]


class ColumnSelection(NamedTuple):
    """The columns to read.

    Attributes:
        wanted: Columns that the file must have, unless they are optional.
        optional: The wanted columns that may be missing.
        keep_rest: Whether to read all other columns too.
        remedy: A sentence that says what to do if a column is missing.
    """

    wanted: Sequence[str]
    optional: Sequence[str] = ()
    keep_rest: bool = False
    remedy: str = "Name one of these columns in params.yaml."

    def select(self, path: Path, names: list[str]) -> list[str]:
        """Choose the columns to read from a file. Raises UserError if one is missing or occurs more than once."""
        selected = dict.fromkeys([*self.wanted, *(names if self.keep_rest else [])])
        for name in selected:
            if names.count(name) > 1:
                raise UserError(f'{path} has {names.count(name)} columns named "{name}". Rename all but one.')
            if name not in names and name not in self.optional:
                raise self._missing_column(path, name, names)
        return [name for name in names if name in selected]

    def _missing_column(self, path: Path, name: str, names: list[str]) -> UserError:
        by_lowercase = {candidate.lower(): candidate for candidate in names}
        similar = closest_match(name.lower(), by_lowercase)
        remedy = (f'Did you mean "{by_lowercase[similar]}"? ' if similar else "") + self.remedy
        if len(names) == 1 and path.suffix in (".csv", ".tsv") and (separator := re.search(r"[;\t,|]", names[0])):
            remedy = (
                f"The fields seem to be separated by {separator[0]!r}. Separate them with commas in a .csv file, and "
                "with tabs in a .tsv file."
            )
        return UserError(f'{path} has no column "{name}". Its columns are: {listing(names, 20)}. {remedy}')


def read_file(path: Path, columns: ColumnSelection, on_error: OnError = raise_row_error) -> Iterator[Batch]:
    """Yield the rows of a file in batches, and call `on_error` for each row that cannot be used.

    Raises:
        UserError: The file is not what its suffix says, a column is missing, or the text is not UTF-8.
    """
    head = check_file(path)
    if path.suffix == ".parquet":
        yield from _read_parquet(path, columns)
    elif path.suffix in (".csv", ".tsv"):
        yield from _batches(path, "line", _csv_rows(path, columns, on_error), columns)
    elif head.startswith(b"["):
        yield from _json_batches(path, "row", _json_list(path), columns, on_error)
    else:
        with path.open("rb") as file:
            yield from _json_batches(path, "line", _json_lines(path, file, on_error), columns, on_error)


def read_standard_input(columns: ColumnSelection, on_error: OnError = raise_row_error) -> Iterator[Batch]:
    """Return the rows of standard input in batches. Each line must be a JSON object."""
    path = Path("standard input")
    return _json_batches(path, "line", _json_lines(path, sys.stdin.buffer, on_error), columns, on_error)


def check_file(path: Path) -> bytes:
    """Return the start of a file. Raises UserError if it cannot be read, is empty, or is not what its suffix says."""
    if path.suffix not in FORMATS:
        raise UserError(f"{path} has an unsupported suffix. Save it in one of these formats: {', '.join(FORMATS)}.")
    try:
        with path.open("rb") as file:
            head = file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if not head:
        raise UserError(f"{path} is empty. Put rows into it, or remove it.")
    content = next((name for name, start in _CONTENTS.items() if re.match(start, head, re.IGNORECASE)), _TEXT)
    expected = {".parquet": "a Parquet file", ".json": "JSON", ".jsonl": "JSON"}.get(path.suffix, _TEXT)
    if content != expected and not (expected == "JSON" and content == _TEXT):  # The JSON parser will say more.
        raise UserError(
            f"{path} is {content}, but the suffix {path.suffix} means {expected}. Save it as {expected}, or rename it."
        )
    if b"\0" in head and path.suffix != ".parquet":
        raise UserError(f"{path} contains null bytes, so it is not UTF-8 text. Save it as UTF-8.")
    return head


def _batches(path: Path, unit: str, rows: Rows, columns: ColumnSelection) -> Iterator[Batch]:
    names: list[str] = []
    while chunk := list(islice(rows, _ROWS)):
        # A JSON object may omit a column. The first batch must have the column in some row, but later batches need not.
        names = columns.select(path, list(dict.fromkeys([*names, *chain.from_iterable(row for _, row in chunk)])))
        values = {name: [row.get(name) for _, row in chunk] for name in names}
        yield Batch(path, unit, [number for number, _ in chunk], values)


def _csv_rows(path: Path, columns: ColumnSelection, on_error: OnError) -> Rows:
    """Yield the rows of a CSV or TSV file, with the line on which each row starts.

    Blank lines are skipped. In a file with only one column, a blank line before the last row is an empty field.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    delimiter, mark = ("\t", "tab") if path.suffix == ".tsv" else (",", "comma")
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(_require_utf8(path, file), delimiter=delimiter, strict=True)
        header: list[str] = []
        selected: set[str] = set()
        blank_lines: list[int] = []
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                why = (
                    f"cannot be read ({error}). If a field contains double quotes, enclose it in double quotes and "
                    'double the quotes inside it: "He said ""yes""."'
                )
                row_error = RowError(f"{path} line {line}", why, None)
                if not header:
                    raise row_error from None
                on_error(row_error)
                continue
            if fields is None:
                return
            if header and not fields:
                blank_lines.append(line)
                continue
            if len(header) == 1:  # A blank line that is followed by another row is a row with an empty field.
                yield from ((blank_line, {header[0]: ""}) for blank_line in blank_lines)
                blank_lines.clear()
            if fields and not header:
                header = [name.strip() for name in fields]
                selected.update(columns.select(path, header))
            elif fields and len(fields) != len(header):
                why = (
                    f"must have as many fields as the header ({len(header)}), got {len(fields)}. Enclose a field that "
                    f"contains a {mark} or a line break in double quotes."
                )
                on_error(RowError(f"{path} line {line}", why, fields))
            elif fields:
                yield line, {name: field for name, field in zip(header, fields, strict=True) if name in selected}


def _require_utf8(path: Path, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that were decoded with `surrogateescape`. Raises UserError at the first line that is not UTF-8."""
    for number, line in enumerate(lines, 1):
        if escaped := LONE_SURROGATE.search(line):
            byte = escaped[0].encode("utf-8", "surrogateescape")
            raise UserError(
                f"{path} line {number} is not UTF-8. It may be Windows-1252, in which the byte 0x{byte.hex()} is "
                f'{byte.decode("cp1252", "replace")!r}. Save it as UTF-8, for example with "iconv -f WINDOWS-1252 '
                f'-t UTF-8 {path} > utf8 && mv utf8 {path}".'
            )
        yield line


def _json_batches(
    path: Path, unit: str, values: Iterator[tuple[int, Any]], columns: ColumnSelection, on_error: OnError
) -> Iterator[Batch]:
    def objects() -> Rows:
        for number, value in values:
            if isinstance(value, dict):
                yield number, value
            else:
                why = f"must be a JSON object with the columns as keys, got {literal(value)}."
                on_error(RowError(f"{path} {unit} {number}", why, value))

    return _batches(path, unit, objects(), columns)


def _json_list(path: Path) -> Iterator[tuple[int, Any]]:
    """Return the items of a list with their numbers from 0. The whole list is loaded into memory."""
    try:
        return enumerate(json.loads(path.read_bytes(), object_pairs_hook=_require_unique_keys))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read as JSON: {error}. Write a list of objects, or an object on each line."
        ) from None


def _json_lines(path: Path, file: Iterable[bytes], on_error: OnError) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                value = json.loads(line, object_pairs_hook=_require_unique_keys)
            except (ValueError, RecursionError) as error:
                text = line.decode(errors="replace").rstrip("\r\n")
                why = f"cannot be read as JSON: {error}. Write an object on each line."
                on_error(RowError(f"{path} line {number}", why, text))
            else:
                yield number, value


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a row from the keys and values of an object. Raises ValueError if a key occurs more than once.

    By default, Python's reader keeps only the last value of a key.
    """
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {literal(next(key for key in keys if keys.count(key) > 1))} occurs more than once")
    return row


def _read_parquet(path: Path, columns: ColumnSelection) -> Iterator[Batch]:
    start = 0
    try:
        # By default, the reader keeps everything that it has read: https://github.com/apache/arrow/issues/39808
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            names = columns.select(path, file.schema_arrow.names)
            for batch in file.iter_batches(_ROWS, columns=names):
                yield Batch(path, "row", range(start, start + len(batch)), batch.to_pydict(), file.schema_arrow)
                start += len(batch)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} contains text that is not UTF-8 ({error}). Write the file again.") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a complete Parquet file ({error}). Write the file again.") from None


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the class names that the package `datasets` wrote for columns with class numbers or lists of them."""
    try:
        features = Features.from_arrow_schema(schema)
    except (AttributeError, KeyError, TypeError, ValueError):  # The schema is damaged, or a newer version wrote it.
        return {}
    names = {}
    for name, feature in features.items():
        feature = getattr(feature, "feature", feature)  # for a list, the feature of its items
        if isinstance(feature, ClassLabel):
            names[name] = feature.names
    return names


def is_missing(value: object) -> bool:
    """Return whether a value is missing: null, or NaN, which Python's `json` writes for a missing number."""
    return value is None or value != value
