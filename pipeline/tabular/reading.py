"""Read rows of CSV, TSV, JSON and Parquet files in batches. Every error names the file and the line."""

import csv
import difflib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.core.messages import UserError

_ROWS = 1 << 15  # of a batch
_LONGEST_FIELD = 10_000_000  # characters; a quote that is never closed takes everything that follows
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a UTF-16 pair, which JSON can spell but UTF-8 cannot
_TEXT = "UTF-8 text"
_SIGNATURES = {
    b"PAR1": "a parquet file", b"PK\x03\x04": "a zip or Excel file", b"\x1f\x8b": "a gzip file", b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text", b"<": "an HTML or XML page", b"{": "JSON", b"[": "JSON",
    b"version https://git-lfs": "a pointer of git-lfs",
}  # fmt: skip
# A CSV file can begin with one of these, too, if its first column has a name such as <q>, [q] or PAR1.
_IN_NAMES = (b"<", b"{", b"[", b"PAR1")
_NOT_CSV = re.compile(
    rb"""<!doctype|<!--|<\?xml|<(html|head|body|table)(\s|>(?![,\t]))|[\[{][\s\[{]*"|PAR1(?![,\t])""", re.IGNORECASE
)


class RowError(NamedTuple):
    """A row that cannot be used.

    Attributes:
        where: The file and the line.
        why: The rest of the sentence: what was found and what to do.
        row: What could be read of the row.
    """

    where: str
    why: str
    row: Any


def raise_row_error(error: RowError) -> None:
    """Stop at the first row that cannot be used."""
    raise UserError(f"{error.where} {error.why}")


OnError = Callable[[RowError], None]


class Batch(NamedTuple):
    """Consecutive rows of a file.

    Attributes:
        path: The file.
        unit: What the numbers count: "line", or "row" if the file has no lines.
        numbers: The line on which each row starts, or its row number from 0.
        columns: The values of each column, None if missing. A column that the file does not have is left out.
        class_names: By column, the names of the classes whose numbers it holds, if the file has such names.
    """

    path: Path
    unit: str
    numbers: Sequence[int]
    columns: Mapping[str, Sequence[Any] | pa.Array]
    class_names: Mapping[str, list[str]] = MappingProxyType({})

    def where(self, row: int) -> str:
        return f"{self.path} {self.unit} {self.numbers[row]}"

    def error(self, row: int, why: str) -> RowError:
        return RowError(
            self.where(row), why, {name: to_list(values[row : row + 1])[0] for name, values in self.columns.items()}
        )

    def take(self, rows: Sequence[int]) -> "Batch":
        """Return a batch of these rows alone."""
        columns = {
            name: values.take(pa.array(rows, pa.int64()))
            if isinstance(values, pa.Array)
            else [values[row] for row in rows]
            for name, values in self.columns.items()
        }
        return self._replace(numbers=[self.numbers[row] for row in rows], columns=columns)


class Columns(NamedTuple):
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
        similar = difflib.get_close_matches(name.lower(), by_lowercase, n=1)
        remedy = self.remedy + (f': did you mean "{by_lowercase[similar[0]]}"?' if similar else "")
        if len(names) == 1 and path.suffix in (".csv", ".tsv") and (separator := re.search(r"[;\t,|]", names[0])):
            remedy = f"its fields seem to be separated by {separator[0]!r}: a .csv has commas, a .tsv tabs"
        return UserError(f"{path} has no column {name}, but {listing(names, 20)}; {remedy}")


def read_file(path: Path, columns: Columns, on_error: OnError = raise_row_error) -> Iterator[Batch]:
    """Yield the rows of a file in batches, and call `on_error` for each row that cannot be used.

    Raises:
        UserError: The file is not what its ending says, has no such column or is not UTF-8.
    """
    _check_signature(path)
    yield from READERS[path.suffix](path, columns, on_error)


def read_standard_input(columns: Columns, on_error: OnError = raise_row_error) -> Iterator[Batch]:
    """Yield the rows of standard input in batches: JSON objects, one on each line."""
    with io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig") as file:
        name = Path("standard input")
        try:
            yield from _batches(name, "line", _json_lines(name, file, on_error), columns, on_error)
        except UnicodeDecodeError:
            raise UserError("standard input is not UTF-8; convert it") from None


def require_known_format(path: Path) -> None:
    """Raise UserError if there is no reader for the ending of a file."""
    if path.suffix not in READERS:
        raise UserError(f"{path} cannot be read; save it as one of {', '.join(READERS)}")


def _check_signature(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    content = next((content for start, content in _SIGNATURES.items() if head.startswith(start)), _TEXT)
    expected = {".parquet": "a parquet file", ".json": "JSON", ".jsonl": "JSON"}.get(path.suffix, _TEXT)
    if expected == _TEXT and head.startswith(_IN_NAMES) and not _NOT_CSV.match(head):
        content = _TEXT
    if not head:
        raise UserError(f"{path} is empty; put rows into it, or remove it")
    if content != expected:
        raise UserError(f"{path} is {content}, but by its ending {expected}; save it as {expected}, or rename it")
    if b"\0" in head and path.suffix != ".parquet":
        raise UserError(f"{path} has zero bytes, so it is not UTF-8 text; save it as UTF-8")


def _not_utf8(path: Path) -> UserError:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = line[error.start : error.start + 1]
                return UserError(
                    f"{path} line {number} is not UTF-8, but perhaps Windows-1252, where the byte 0x{byte.hex()} is "
                    f'{byte.decode("cp1252", "replace")!r}; save it as UTF-8: "iconv -f WINDOWS-1252 -t UTF-8 '
                    f'{path.name} > new && mv new {path.name}"'
                )
    raise UserError(f"{path} was changed while it was read; run again")


def _read_csv(path: Path, columns: Columns, on_error: OnError) -> Iterator[Batch]:
    csv.field_size_limit(_LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            _, header = next(_csv_rows(path, reader, None, raise_row_error), (0, []))
            header = [name.strip() for name in header]
            positions = {name: header.index(name) for name in columns.select(path, header)}
            rows = _csv_rows(path, reader, len(header), on_error)
            while chunk := list(islice(rows, _ROWS)):
                values = {name: [row[position] for _, row in chunk] for name, position in positions.items()}
                yield Batch(path, "line", [line for line, _ in chunk], values)
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


def _csv_rows(path: Path, reader: Any, fields: int | None, on_error: OnError) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, each with the line on which it starts. fields: how many a row must have."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            why = (
                f"cannot be read ({error}); where a field has double quotes in it, put it into double quotes and "
                'double those inside: "He said ""yes""."'
            )
            on_error(RowError(f"{path} line {line}", why, None))
            continue
        if row is None:
            return
        if row and fields in (None, len(row)):
            yield line, row
        elif row:
            mark = "tab" if path.suffix == ".tsv" else "comma"
            why = f"has {len(row)} fields, the header {fields}; put a field with a {mark} or a line break in it"
            on_error(RowError(f"{path} line {line}", f"{why} into double quotes", row))


def _read_json(path: Path, columns: Columns, on_error: OnError) -> Iterator[Batch]:
    """Read a list of objects, which is loaded as a whole, or an object on each line."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            is_list = file.read(1000).lstrip().startswith("[")
            file.seek(0)
            rows = enumerate(_json_list(path, file)) if is_list else _json_lines(path, file, on_error)
            yield from _batches(path, "row" if is_list else "line", rows, columns, on_error)
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


def _json_list(path: Path, file: io.TextIOWrapper) -> Any:
    text = file.read()
    try:
        return _decode_json(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}; write a list of objects, or an object on each line") from None


def _json_lines(path: Path, file: io.TextIOWrapper, on_error: OnError) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                row = _decode_json(line)
            except (ValueError, RecursionError) as error:
                why = f"is not JSON: {error}; write an object on each line"
                on_error(RowError(f"{path} line {number}", why, line.rstrip("\n")))
            else:
                yield number, row


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its keys and values. Python's reader would keep only the last value of a key."""
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it has the key {quote(next(key for key in keys if keys.count(key) > 1))} twice")
    return row


_decode_json = json.JSONDecoder(object_pairs_hook=_require_unique_keys).decode


def _batches(
    path: Path, unit: str, rows: Iterator[tuple[int, Any]], columns: Columns, on_error: OnError
) -> Iterator[Batch]:
    """Group numbered JSON values into batches."""
    names: list[str] = []
    while chunk := list(islice(rows, _ROWS)):
        for number, row in chunk:
            if not isinstance(row, dict):
                why = f"is {quote(row)}; it must be an object of columns"
                on_error(RowError(f"{path} {unit} {number}", why, row))
        objects = [(number, row) for number, row in chunk if isinstance(row, dict)]
        if objects:
            # The first batch must have every column in some row; later batches may lack it.
            known = dict.fromkeys([*names, *(name for _, row in objects for name in row)])
            names = columns.select(path, list(known))
            values = {name: [row.get(name) for _, row in objects] for name in names}
            yield Batch(path, unit, [number for number, _ in objects], values)


def _read_parquet(path: Path, columns: Columns, on_error: OnError) -> Iterator[Batch]:
    start = 0
    try:
        # By default the reader keeps everything that it has read: https://github.com/apache/arrow/issues/39808
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            names = columns.select(path, file.schema_arrow.names)
            classes = _class_names(file.schema_arrow)
            for batch in file.iter_batches(_ROWS, columns=names):
                try:
                    batch.validate(full=True)
                except pa.ArrowInvalid as error:
                    raise UserError(f"{path} has text that is not UTF-8 ({error}); write it again") from None
                numbers = range(start, start + len(batch))
                yield Batch(path, "row", numbers, {name: batch.column(name) for name in names}, classes)
                start += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a complete parquet file ({error}); write it again") from None


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the class names of each column of integers that the package `datasets` has written as a ClassLabel.

    `Features.from_arrow_schema` fails if the metadata of any column is damaged or newer than the installed version.
    """
    names = {}
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        for name in features.keys() & set(schema.names):
            feature = features[name]
            while isinstance(feature, list) or "feature" in feature:  # a list of classes
                feature = feature[0] if isinstance(feature, list) else feature["feature"]
            arrow_type = schema.field(name).type
            is_integer = pa.types.is_integer(getattr(arrow_type, "value_type", arrow_type))
            if is_integer and feature.get("_type") == "ClassLabel":
                names[name] = feature["names"]
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
    return names


READERS: dict[str, Callable[[Path, Columns, OnError], Iterator[Batch]]] = {
    ".csv": _read_csv, ".tsv": _read_csv, ".json": _read_json, ".jsonl": _read_json, ".parquet": _read_parquet,
}  # fmt: skip


def texts(batch: Batch, name: str, on_error: OnError = raise_row_error) -> pa.Array:
    """Return a column as texts. Numbers are written out; a missing value and a row with an error are empty."""
    values = batch.columns[name]
    if isinstance(values, pa.Array):
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
        try:
            return pc.fill_null(values.cast(pa.string()), "")
        except pa.ArrowException:
            raise UserError(f"{batch.path}: column {name} has {values.type}; it must have texts") from None
    column = ["" if is_missing(value) else str(value) for value in values]
    for row, value in enumerate(values):
        if isinstance(value, (list, dict)) or LONE_SURROGATE.search(column[row]):
            form = "text" if isinstance(value, (list, dict)) else "Unicode"
            on_error(batch.error(row, f"has {quote(value)} as {name}, which is no {form}; correct it"))
            column[row] = ""
    return pa.array(column, pa.string())


def to_list(column: Sequence[Any] | pa.Array) -> list[Any]:
    """Return a column as a list of Python values."""
    return list(column.to_pylist() if isinstance(column, pa.Array) else column)


def is_missing(value: object) -> bool:
    """Return whether a field has no value: null, or NaN, as Python's `json` writes a missing number."""
    return value is None or value != value


def quote(value: object) -> str:
    """Return a value for a message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def listing(names: Iterable[object], most: int = 10) -> str:
    """Return the first names for a message, and how many more there are."""
    texts = [f"{name}"[:60] for name in names]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
