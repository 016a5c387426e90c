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

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")  # of the files that can be read
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a UTF-16 pair, which JSON can spell but UTF-8 cannot
_ROWS = 1 << 15  # of a batch
_LONGEST_FIELD = 10_000_000  # characters; a quote that is never closed takes everything that follows
_TEXT = "UTF-8 text"
# How files begin. A CSV file may also begin with a column that is named <q>, [q], {q} or PAR1.
_CONTENTS = {
    "a parquet file": rb"PAR1(?![,\t])",
    "a zip or Excel file": rb"PK\x03\x04",
    "a gzip file": rb"\x1f\x8b",
    "a PDF": rb"%PDF",
    "UTF-16 text": rb"\xff\xfe|\xfe\xff",
    "an HTML or XML page": rb"<!doctype|<!--|<\?xml|<(html|head|body|table)(\s|>(?![,\t]))",
    "JSON": rb"""[\[{][\s\[{]*\"""",
    "a pointer of git-lfs": rb"version https://git-lfs",
}

Rows = Iterator[tuple[int, dict[str, Any]]]  # the line or number of each row, and its values by column


class RowError(UserError):
    """A row that cannot be used.

    Attributes:
        where: The file and the line.
        why: The rest of the sentence: what was found and what to do.
        row: What could be read of the row.
    """

    def __init__(self, where: str, why: str, row: Any) -> None:
        super().__init__(f"{where} {why}")
        self.where, self.why, self.row = where, why, row


OnError = Callable[[RowError], None]


def raise_row_error(error: RowError) -> None:
    """Stop at the first row that cannot be used."""
    raise error


class Batch(NamedTuple):
    """Consecutive rows of a file.

    Attributes:
        path: The file.
        unit: What the numbers count: "line", or "row" if the file has no lines.
        numbers: The line on which each row starts, or its row number from 0.
        columns: The values of each column, None if missing. A column that the file does not have is left out.
        schema: The schema of a Parquet file.
    """

    path: Path
    unit: str
    numbers: Sequence[int]
    columns: Mapping[str, list[Any]]
    schema: pa.Schema | None = None

    @property
    def class_names(self) -> dict[str, list[str]]:
        """The names of the classes whose numbers a column holds, by column, if the file has such names."""
        return {} if self.schema is None else _class_names(self.schema)

    def where(self, row: int) -> str:
        return f"{self.path} {self.unit} {self.numbers[row]}"

    def error(self, row: int, why: str) -> RowError:
        return RowError(self.where(row), why, {name: values[row] for name, values in self.columns.items()})

    def take(self, rows: Sequence[int]) -> "Batch":
        """Return a batch of these rows alone."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return self._replace(numbers=[self.numbers[row] for row in rows], columns=columns)

    def text(self, row: int, name: str) -> str:
        """Return a field as text; it is empty if the value is missing. Raises RowError if it is not a text."""
        value = self.columns[name][row]
        if isinstance(value, (list, dict, bytes)):
            raise self.error(row, f"has {literal(value)} as {name}, which is not a text; correct it")
        text = "" if is_missing(value) else str(value)
        if LONE_SURROGATE.search(text):
            raise self.error(row, f"has {literal(value)} as {name}, which is not valid Unicode; correct it")
        return text


def texts(batch: Batch, name: str) -> list[str]:
    """Return a column as texts. Raises RowError if one of its values is not a text."""
    return [batch.text(row, name) for row in range(len(batch.numbers))]


class ColumnSelection(NamedTuple):
    """The columns to read.

    Attributes:
        wanted: Columns that the file must have.
        optional: Those among them that it may lack.
        keep_rest: Whether to read all other columns, too.
        remedy: What to do if a column is missing.
    """

    wanted: Sequence[str]
    optional: Sequence[str] = ()
    keep_rest: bool = False
    remedy: str = "name one of these in params.yaml"

    def select(self, path: Path, names: list[str]) -> list[str]:
        """Return the columns to read among those of a file. Raises UserError if one is missing or occurs twice."""
        selected = dict.fromkeys([*self.wanted, *(names if self.keep_rest else [])])
        for name in selected:
            if names.count(name) > 1:
                raise UserError(f"{path} has {names.count(name)} columns {name}; rename all but one")
            if name not in names and name not in self.optional:
                raise self._missing_column(path, name, names)
        return [name for name in names if name in selected]

    def _missing_column(self, path: Path, name: str, names: list[str]) -> UserError:
        by_lowercase = {candidate.lower(): candidate for candidate in names}
        similar = closest_match(name.lower(), by_lowercase)
        remedy = self.remedy + (f': did you mean "{by_lowercase[similar]}"?' if similar else "")
        if len(names) == 1 and path.suffix in (".csv", ".tsv") and (separator := re.search(r"[;\t,|]", names[0])):
            remedy = f"its fields seem to be separated by {separator[0]!r}: a .csv has commas, a .tsv tabs"
        return UserError(f"{path} has no column {name}, but {listing(names, 20)}; {remedy}")


def read_file(path: Path, columns: ColumnSelection, on_error: OnError = raise_row_error) -> Iterator[Batch]:
    """Yield the rows of a file in batches, and call `on_error` for each row that cannot be used.

    Raises:
        UserError: The file is not what its suffix says, has no such column or is not UTF-8.
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
    """Return the rows of standard input in batches. Each line holds a JSON object."""
    path = Path("standard input")
    return _json_batches(path, "line", _json_lines(path, sys.stdin.buffer, on_error), columns, on_error)


def check_file(path: Path) -> bytes:
    """Return how a file begins. Raises UserError if it cannot be read, is empty, or is not what its suffix says."""
    if path.suffix not in FORMATS:
        raise UserError(f"{path} cannot be read; save it as one of {', '.join(FORMATS)}")
    try:
        with path.open("rb") as file:
            head = file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if not head:
        raise UserError(f"{path} is empty; put rows into it, or remove it")
    content = next((name for name, start in _CONTENTS.items() if re.match(start, head, re.IGNORECASE)), _TEXT)
    expected = {".parquet": "a parquet file", ".json": "JSON", ".jsonl": "JSON"}.get(path.suffix, _TEXT)
    if content != expected and not (expected == "JSON" and content == _TEXT):  # JSON's parser says what is wrong
        raise UserError(f"{path} is {content}, but by its ending {expected}; save it as {expected}, or rename it")
    if b"\0" in head and path.suffix != ".parquet":
        raise UserError(f"{path} has zero bytes, so it is not UTF-8 text; save it as UTF-8")
    return head


def _batches(path: Path, unit: str, rows: Rows, columns: ColumnSelection) -> Iterator[Batch]:
    names: list[str] = []
    while chunk := list(islice(rows, _ROWS)):
        # JSON objects may lack a column. The first batch must have it in some row; later batches may lack it.
        names = columns.select(path, list(dict.fromkeys([*names, *chain.from_iterable(row for _, row in chunk)])))
        values = {name: [row.get(name) for _, row in chunk] for name in names}
        yield Batch(path, unit, [number for number, _ in chunk], values)


def _csv_rows(path: Path, columns: ColumnSelection, on_error: OnError) -> Rows:
    """Yield the rows of a CSV or TSV file that are not blank. A number is the line on which the row starts."""
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
                    f"cannot be read ({error}); where a field has double quotes in it, put it into double quotes and "
                    'double those inside: "He said ""yes""."'
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
            if len(header) == 1:  # Between other lines, a blank line is a row with an empty field.
                yield from ((blank_line, {header[0]: ""}) for blank_line in blank_lines)
                blank_lines.clear()
            if fields and not header:
                header = [name.strip() for name in fields]
                selected.update(columns.select(path, header))
            elif fields and len(fields) != len(header):
                why = (
                    f"has {len(fields)} fields, the header {len(header)}; put a field with a {mark} or a line break in "
                    "it into double quotes"
                )
                on_error(RowError(f"{path} line {line}", why, fields))
            elif fields:
                yield line, {name: field for name, field in zip(header, fields, strict=True) if name in selected}


def _require_utf8(path: Path, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that were decoded with `surrogateescape`. Raises UserError at the first one that is not UTF-8."""
    for number, line in enumerate(lines, 1):
        if escaped := LONE_SURROGATE.search(line):
            byte = escaped[0].encode("utf-8", "surrogateescape")
            raise UserError(
                f"{path} line {number} is not UTF-8, but perhaps Windows-1252, where the byte 0x{byte.hex()} is "
                f'{byte.decode("cp1252", "replace")!r}; save it as UTF-8: "iconv -f WINDOWS-1252 -t UTF-8 '
                f'{path.name} > new && mv new {path.name}"'
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
                on_error(
                    RowError(f"{path} {unit} {number}", f"is {literal(value)}; it must be an object of columns", value)
                )

    return _batches(path, unit, objects(), columns)


def _json_list(path: Path) -> Iterator[tuple[int, Any]]:
    """Return the items of a list, which is loaded as a whole, with their numbers from 0."""
    try:
        return enumerate(json.loads(path.read_bytes(), object_pairs_hook=_require_unique_keys))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}; write a list of objects, or an object on each line") from None


def _json_lines(path: Path, file: Iterable[bytes], on_error: OnError) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                value = json.loads(line, object_pairs_hook=_require_unique_keys)
            except (ValueError, RecursionError) as error:
                text = line.decode(errors="replace").rstrip("\r\n")
                why = f"is not JSON: {error}; write an object on each line"
                on_error(RowError(f"{path} line {number}", why, text))
            else:
                yield number, value


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its keys and values. Python's reader would keep only the last value of a key."""
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it has the key {literal(next(key for key in keys if keys.count(key) > 1))} twice")
    return row


def _read_parquet(path: Path, columns: ColumnSelection) -> Iterator[Batch]:
    start = 0
    try:
        # By default the reader keeps everything that it has read: https://github.com/apache/arrow/issues/39808
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            names = columns.select(path, file.schema_arrow.names)
            for batch in file.iter_batches(_ROWS, columns=names):
                yield Batch(path, "row", range(start, start + len(batch)), batch.to_pydict(), file.schema_arrow)
                start += len(batch)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} has text that is not UTF-8 ({error}); write it again") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a complete parquet file ({error}); write it again") from None


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the class names that the package `datasets` has written for columns of classes, or of lists of them."""
    try:
        features = Features.from_arrow_schema(schema)
    except (AttributeError, KeyError, TypeError, ValueError):  # damaged, or written by a newer version
        return {}
    names = {}
    for name, feature in features.items():
        feature = getattr(feature, "feature", feature)  # of the items of a list
        if isinstance(feature, ClassLabel):
            names[name] = feature.names
    return names


def is_missing(value: object) -> bool:
    """Return whether a field has no value: null, or NaN, as Python's `json` writes a missing number."""
    return value is None or value != value
