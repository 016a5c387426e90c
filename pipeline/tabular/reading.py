"""Files of rows, read in batches: CSV, TSV, JSON and parquet. What is wrong with one is told by file and line."""

import csv
import difflib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.core.messages import UserError
from pipeline.core.tables import class_names, from_strings

_ROWS = 1 << 15  # of a batch
_LONGEST_FIELD = 10_000_000  # characters; a quote that is never closed takes all that follows
HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # half a character of UTF-16, as JSON may have
_TEXT = "UTF-8 text"
_SIGNATURES = {
    b"PAR1": "a parquet file", b"PK\x03\x04": "a zip or Excel file", b"\x1f\x8b": "a gzip file", b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text", b"<": "an HTML or XML page", b"{": "JSON", b"[": "JSON",
    b"version https://git-lfs": "a pointer of git-lfs",
}  # fmt: skip
# A table, too, may begin with one of these: as the name of its first column, such as <q>, [q] or PAR1.
_IN_NAMES = (b"<", b"{", b"[", b"PAR1")
_NO_TABLE = re.compile(
    rb"""<!doctype|<!--|<\?xml|<(html|head|body|table)(\s|>(?![,\t]))|[\[{][\s\[{]*"|PAR1(?![,\t])""", re.IGNORECASE
)


class Fault(NamedTuple):
    """A row that cannot be used.

    where: file and line. why: the rest of the sentence, what was found and what to do. row: what could be read of it.
    """

    where: str
    why: str
    row: Any


def refuse(fault: Fault) -> None:
    """Stop at the first row that cannot be used."""
    raise UserError(f"{fault.where} {fault.why}")


class Batch(NamedTuple):
    """Some rows of a file. columns: by name, a value per row, None where missing; a column that is not there is absent.

    numbers: of each row, the line on which it starts; or in a file without lines its number, from 0.
    class_names: by column, the names of the classes whose numbers it has, if the file has them.
    """

    path: Path
    unit: str
    numbers: Sequence[int]
    columns: Mapping[str, Sequence[Any] | pa.Array]
    class_names: Mapping[str, list[str]] = MappingProxyType({})

    def where(self, row: int) -> str:
        return f"{self.path} {self.unit} {self.numbers[row]}"

    def fault(self, row: int, why: str) -> Fault:
        return Fault(self.where(row), why, self.row(row))

    def take(self, rows: Sequence[int]) -> "Batch":
        """These rows alone."""
        columns = {
            name: of.take(pa.array(rows, pa.int64())) if isinstance(of, pa.Array) else [of[row] for row in rows]
            for name, of in self.columns.items()
        }
        return self._replace(numbers=[self.numbers[row] for row in rows], columns=columns)

    def row(self, row: int) -> dict[str, Any]:
        """A row by column, as Python values."""
        return {name: of[row].as_py() if isinstance(of, pa.Array) else of[row] for name, of in self.columns.items()}


class Columns(NamedTuple):
    """Which columns to read: those `wanted`, of which `optional` may be absent; with `others`, all others too.

    remedy: what to do where one is missing.
    """

    wanted: Sequence[str]
    optional: Sequence[str] = ()
    others: bool = False
    remedy: str = "name one of these in params.yaml"

    def found(self, path: Path, names: list[str]) -> list[str]:
        """Those that a file has. Raises UserError where one is missing or doubled."""
        every = dict.fromkeys([*self.wanted, *(names if self.others else [])])
        for name in every:
            if names.count(name) > 1:
                raise UserError(f"{path} has {names.count(name)} columns {name}; rename all but one")
            if name not in names and name not in self.optional:
                raise self._missing(path, name, names)
        return [name for name in names if name in every]

    def _missing(self, path: Path, name: str, names: list[str]) -> UserError:
        by_lower = {found.lower(): found for found in names}
        close = difflib.get_close_matches(name.lower(), by_lower, n=1)
        do = self.remedy + (f': did you mean "{by_lower[close[0]]}"?' if close else "")
        if len(names) == 1 and path.suffix in (".csv", ".tsv") and (other := re.search(r"[;\t,|]", names[0])):
            do = f"its fields seem to be separated by {other[0]!r}: a .csv has commas, a .tsv tabs"
        return UserError(f"{path} has no column {name}, but {listing(names, 20)}; {do}")


def listing(names: Iterable[object], most: int = 10) -> str:
    """The first names, and how many more there are."""
    texts = [f"{name}"[:60] for name in names]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def read_files(files: Sequence[Path], columns: Columns, refused: Callable[[Fault], None] = refuse) -> Iterator[Batch]:
    """The rows of some files, one after another. refused: called for a row that cannot be used, which is left out.

    Raises UserError where a file is not what its ending says, lacks a column or is not UTF-8.
    """
    for path in files:
        _check_signature(path)
        empty = True

        def noted(fault: Fault) -> None:
            nonlocal empty
            empty = False
            refused(fault)

        for batch in READERS[path.suffix](path, columns, noted):
            empty = False
            yield batch
        if empty:
            raise UserError(f"{path} has no rows; add some, or remove it")


def read_standard_input(columns: Columns, refused: Callable[[Fault], None] = refuse) -> Iterator[Batch]:
    """As `read_files`: an object of JSON on each line."""
    with io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig") as file:
        try:
            name = Path("standard input")
            yield from _of_objects(name, "line", _lines(name, file, refused), columns, refused)
        except UnicodeDecodeError:
            raise UserError("standard input is not UTF-8; convert it") from None


def _check_signature(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    found = next((kind for start, kind in _SIGNATURES.items() if head.startswith(start)), _TEXT)
    expected = {".parquet": "a parquet file", ".json": "JSON", ".jsonl": "JSON"}.get(path.suffix, _TEXT)
    if expected == _TEXT and head.startswith(_IN_NAMES) and not _NO_TABLE.match(head):
        found = _TEXT
    if not head:
        raise UserError(f"{path} is empty; put rows into it, or remove it")
    if found != expected:
        raise UserError(f"{path} is {found}, but by its ending {expected}; save it as {expected}, or rename it")
    if b"\0" in head and path.suffix != ".parquet":
        raise UserError(f"{path} has zero bytes, so it is not UTF-8 text; save it as UTF-8")


def _open_text(path: Path) -> io.TextIOWrapper:
    return path.open(encoding="utf-8-sig", newline="")


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
    raise AssertionError("the file was changed while it was read")


def _read_csv(path: Path, columns: Columns, refused: Callable[[Fault], None]) -> Iterator[Batch]:
    csv.field_size_limit(_LONGEST_FIELD)
    with _open_text(path) as file:
        lines = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            _, header = next(_csv_rows(path, lines, None, refuse), (0, []))
            header = [name.strip() for name in header]
            names = columns.found(path, header)
            rows = _csv_rows(path, lines, len(header), refused)
            while taken := list(islice(rows, _ROWS)):
                by_column = list(zip(*(row for _, row in taken), strict=True))
                of_batch = {name: by_column[header.index(name)] for name in names}
                yield Batch(path, "line", [number for number, _ in taken], of_batch)
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


def _csv_rows(
    path: Path, lines: Any, fields: int | None, refused: Callable[[Fault], None]
) -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the line on which it starts, but empty lines and those without so many fields."""
    while True:
        start = lines.line_num + 1
        try:
            row = next(lines, None)
        except csv.Error as error:
            why = (
                f"cannot be read ({error}); where a field has double quotes in it, put it into double quotes and "
                'double those inside: "He said ""yes""."'
            )
            refused(Fault(f"{path} line {start}", why, None))
            continue
        if row is None:
            return
        if row and fields in (None, len(row)):
            yield start, row
        elif row:
            mark = "tab" if path.suffix == ".tsv" else "comma"
            why = f"has {len(row)} fields, the header {fields}; put a field with a {mark} or a line break in it"
            refused(Fault(f"{path} line {start}", f"{why} into double quotes", row))


def _read_json(path: Path, columns: Columns, refused: Callable[[Fault], None]) -> Iterator[Batch]:
    """A list of objects, which is read whole, or an object on each line."""
    with _open_text(path) as file:
        try:
            listed = file.read(1000).lstrip().startswith("[")
            file.seek(0)
            if listed:
                yield from _of_objects(path, "row", enumerate(_whole(path, file)), columns, refused)
            else:
                yield from _of_objects(path, "line", _lines(path, file, refused), columns, refused)
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


def _whole(path: Path, file: io.TextIOWrapper) -> list[Any]:
    try:
        found: list[Any] = json.load(file)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}; write a list of objects, or an object on each line") from None
    return found


def _lines(path: Path, file: io.TextIOWrapper, refused: Callable[[Fault], None]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                why = f"is not JSON: {error}; write an object on each line"
                refused(Fault(f"{path} line {number}", why, line.rstrip("\n")))


def _of_objects(
    path: Path, unit: str, rows: Iterator[tuple[int, Any]], columns: Columns, refused: Callable[[Fault], None]
) -> Iterator[Batch]:
    seen: list[str] = []
    while taken := list(islice(rows, _ROWS)):
        objects = []
        for number, row in taken:
            if isinstance(row, dict):
                objects.append((number, row))
            else:
                refused(Fault(f"{path} {unit} {number}", f"is {shown(row)}; it must be an object of columns", row))
        if not objects:
            continue
        # A column may be missing in all rows of a batch, but not in those of the first.
        known = list(dict.fromkeys(chain(seen, chain.from_iterable(row for _, row in objects))))
        seen = columns.found(path, known)
        of_batch = {name: [row.get(name) for _, row in objects] for name in seen}
        yield Batch(path, unit, [number for number, _ in objects], of_batch)


def _read_parquet(path: Path, columns: Columns, refused: Callable[[Fault], None]) -> Iterator[Batch]:
    row = 0
    try:
        # By default the reader keeps all that it has read: https://github.com/apache/arrow/issues/39808
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            names = columns.found(path, file.schema_arrow.names)
            classes = class_names(file.schema_arrow)
            for batch in file.iter_batches(_ROWS, columns=names):
                numbers = range(row, row := row + len(batch))
                try:
                    batch.validate(full=True)
                except pa.ArrowInvalid as error:
                    raise UserError(f"{path} has text that is not UTF-8 ({error}); write it again") from None
                yield Batch(path, "row", numbers, {name: batch.column(name) for name in names}, classes)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a complete parquet file ({error}); write it again") from None


READERS: dict[str, Callable[[Path, Columns, Callable[[Fault], None]], Iterator[Batch]]] = {
    ".csv": _read_csv, ".tsv": _read_csv, ".json": _read_json, ".jsonl": _read_json, ".parquet": _read_parquet,
}  # fmt: skip


def require_form(path: Path) -> None:
    """Raise UserError for an ending that is none of these."""
    if path.suffix not in READERS:
        raise UserError(f"{path} cannot be read; save it as one of {', '.join(READERS)}")


def shown(value: object) -> str:
    """A value for a message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def missing(value: object) -> bool:
    """Whether a field has no value: null, or NaN, as Python's `json` writes a missing number."""
    return value is None or value != value


def texts(batch: Batch, name: str, refused: Callable[[Fault], None] = refuse) -> pa.Array:
    """A column as texts: numbers are written out, and what is missing or refused is empty."""
    values = batch.columns[name]
    if isinstance(values, pa.Array):
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
        try:
            return pc.coalesce(values.cast(pa.string()), from_strings([""])[0])
        except pa.ArrowException:
            raise UserError(f"{batch.path}: column {name} has {values.type}; it must have texts") from None
    found = []
    for row, value in enumerate(values):
        text, why = "" if missing(value) else str(value), ""
        if isinstance(value, (list, dict)):
            why = "which is no text; correct it"
        elif HALF_CHARACTER.search(text):
            why = "which is no Unicode; correct it"
        if why:
            refused(batch.fault(row, f"has {shown(value)} as {name}, {why}"))
            text = ""
        found.append(text)
    return from_strings(found)
