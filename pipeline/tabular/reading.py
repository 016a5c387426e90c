"""Read rows of CSV, TSV, JSON and Parquet files in batches. Every error names the file and the line."""

import codecs
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Features

from pipeline.core.messages import UserError
from pipeline.core.text import closest_match, listing, literal
from pipeline.tabular.csv_rows import csv_rows
from pipeline.tabular.file_format import DEFAULT_FORMAT, DELIMITERS, FileFormat
from pipeline.tabular.json_rows import document_rows, is_document, json_lines
from pipeline.tabular.opening import (
    LONE_SURROGATE,
    data_suffix,
    is_compressed,
    open_bytes,
    open_text,
    text_codec,
)
from pipeline.tabular.row_errors import OnError, RowError, raise_row_error

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")  # suffixes of the files that can be read
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
_ROWS = 1 << 15  # rows per batch
_HEAD = 1 << 16  # bytes that show what a file contains
_TEXT = "UTF-8 text"
# How files start. The patterns allow for CSV files whose first column has a name such as <q>, [q], {q} or PAR1.
_BINARY_CONTENTS = {
    "a Parquet file": rb"PAR1(?![,;|\t])",
    "a zip or Excel file": rb"PK\x03\x04",
    "a gzip file": rb"\x1f\x8b",
    "a PDF": rb"%PDF",
}
_TEXT_CONTENTS = {
    "an HTML or XML page": r"<!doctype|<!--|<\?xml|<(html|head|body|table)(\s|>(?![,;|\t]))",
    "JSON": r"""[\[{][\s\[{]*\"""",
    "a Git LFS pointer": r"version https://git-lfs",
}
# A column without a name, such as an index that pandas or R has written, or what trailing delimiters separate.
_UNNAMED = re.compile(r"|__index_level_\d+__")


Rows = Iterator[tuple[int, dict[str, Any]]]  # the line or number of each row, and its values by column


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

    def select(self, path: Path, names: list[str], nested: Sequence[str] = ()) -> list[str]:
        """Choose the columns to read from a file. Raises UserError if one is missing or occurs more than once.

        Args:
            names: The columns of the file. Those without a name are left out, unless they are wanted.
            nested: The names of fields inside the columns, such as "review.text".
        """
        rest = [name for name in names if not _UNNAMED.fullmatch(name)] if self.keep_rest else []
        selected = dict.fromkeys([*self.wanted, *rest])
        for name in selected:
            if names.count(name) > 1:
                raise UserError(f'{path} has {names.count(name)} columns named "{name}". Rename all but one.')
            if name not in names and name not in nested and name not in self.optional:
                raise self._missing_column(path, name, [*names, *nested])
        return [name for name in dict.fromkeys([*names, *nested]) if name in selected]

    def _missing_column(self, path: Path, missing: str, names: list[str]) -> UserError:
        names = [name for name in names if not _UNNAMED.fullmatch(name)]
        by_lowercase = {candidate.lower(): candidate for candidate in names}
        similar = closest_match(missing.lower(), by_lowercase)
        remedy = (f'Did you mean "{by_lowercase[similar]}"? ' if similar else "") + self.remedy
        is_delimited = len(names) == 1 and data_suffix(path) in (".csv", ".tsv")
        if is_delimited and (delimiter := next((mark for mark in DELIMITERS if mark in names[0]), None)):
            remedy = (
                f"The fields seem to be separated by {delimiter!r}. Set data.delimiter to it (in a command, "
                "--delimiter)."
            )
        return UserError(f'{path} has no column "{missing}". Its columns are: {listing(names, 20)}. {remedy}')


def read_file(
    path: Path,
    columns: ColumnSelection,
    on_error: OnError = raise_row_error,
    file_format: FileFormat = DEFAULT_FORMAT,
) -> Iterator[Batch]:
    """Yield the rows of a file in batches, and call `on_error` for each row that cannot be used.

    Raises:
        UserError: The file is not what its suffix says, a column is missing, or the text is in another encoding.
    """
    check_file(path, file_format)
    encoding = file_format.encoding
    if data_suffix(path) == ".parquet":
        yield from _read_parquet(path, columns)
    elif data_suffix(path) in (".csv", ".tsv"):
        rows = csv_rows(path, file_format, partial(columns.select, path), on_error)
        yield from _batches(path, "line", rows, columns)
    elif is_document(path, encoding):
        yield from _batches(path, "row", document_rows(path, file_format, on_error), columns)
    else:
        with open_text(path, encoding, newline="\n") as lines:
            yield from _batches(path, "line", json_lines(path, lines, encoding, on_error), columns)


def read_standard_input(
    columns: ColumnSelection,
    on_error: OnError = raise_row_error,
    file_format: FileFormat = DEFAULT_FORMAT,
) -> Iterator[Batch]:
    """Return the rows of standard input in batches. Each line must be a JSON object."""
    encoding = file_format.encoding
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding=text_codec(encoding), errors="surrogateescape", newline="\n")
    path = Path("standard input")
    return _batches(path, "line", json_lines(path, sys.stdin, encoding, on_error), columns)


def check_file(path: Path, file_format: FileFormat = DEFAULT_FORMAT) -> None:
    """Raise UserError if a file cannot be read, is empty, or is not what its suffix and `data.encoding` say."""
    suffix = data_suffix(path)
    if suffix in _SPREADSHEETS:
        raise UserError(
            f'{path} is a spreadsheet. In the program that made it, save it as "CSV UTF-8", or convert it with '
            "pandas.read_excel(..., dtype=str).to_csv(..., index=False)."
        )
    if suffix not in FORMATS or (is_compressed(path) and suffix == ".parquet"):
        raise UserError(
            f"{path} has an unsupported suffix. Save it in one of these formats: {', '.join(FORMATS)}. All but "
            ".parquet may be compressed (.csv.gz)."
        )
    head = _read_head(path)
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise UserError(f"{path} is empty. Put rows into it, or remove it.")
    expected = {".parquet": "a Parquet file", ".json": "JSON", ".jsonl": "JSON"}.get(suffix, _TEXT)
    content = _match(_BINARY_CONTENTS, head)
    if content is None and expected != "a Parquet file":
        _check_encoding(path, head, file_format.encoding)
        text = codecs.getincrementaldecoder(text_codec(file_format.encoding))("replace").decode(head).lstrip()
        content = _match(_TEXT_CONTENTS, text)
    content = content or _TEXT
    if content != expected and not (expected == "JSON" and content == _TEXT):  # The JSON parser will say more.
        raise UserError(
            f"{path} is {content}, but the suffix {suffix} means {expected}. Save it as {expected}, or rename it."
        )


def _read_head(path: Path) -> bytes:
    """Return the start of a file, decompressed. Raises UserError if it is compressed and its suffix does not say so."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if not is_compressed(path):
        if head.startswith(b"\x1f\x8b"):
            raise UserError(f"{path} is a gzip file. Rename it to {path.name}.gz.")
        return head
    if head and not head.startswith(b"\x1f\x8b"):
        raise UserError(f"{path} is not a gzip file. Rename it to {path.stem}.")
    with open_bytes(path) as decompressed:
        return decompressed.read(_HEAD)


def _match(contents: Mapping[str, Any], head: Any) -> str | None:
    return next((content for content, start in contents.items() if re.match(start, head, re.IGNORECASE)), None)


def _check_encoding(path: Path, head: bytes, encoding: str) -> None:
    """Raise UserError if a file is certainly in another encoding. Other mistakes appear when its lines are decoded."""
    codec = text_codec(encoding)
    wide = codec.lower().replace("_", "-").startswith(("utf-16", "utf-32"))
    even, odd = head[::2].count(0), head[1::2].count(0)
    if not wide and head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        actual = "utf-16"
    elif not wide and max(even, odd) > 10 * min(even, odd):  # Half of the bytes of Latin letters are 0 in UTF-16.
        actual = "utf-16-be" if even > odd else "utf-16-le"
    elif not wide and even + odd:
        raise UserError(f"{path} contains null bytes, so it is not text. Save it as UTF-8 text.")
    elif codec != "utf-8-sig" and (_is_utf8(head) or (wide and not even + odd)):
        actual = "utf-8"
    else:
        return
    alternative = "" if actual == "utf-8" else ", or save it as UTF-8"
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


def _batches(path: Path, unit: str, rows: Rows, columns: ColumnSelection) -> Iterator[Batch]:
    names: list[str] = []
    while chunk := list(islice(rows, _ROWS)):
        # A JSON object may omit a column. The first batch must have the column in some row, but later batches need not.
        keys = dict.fromkeys([*names, *chain.from_iterable(row for _, row in chunk)])
        nested = [] if keys.keys() >= set(columns.wanted) else _nested_names(row for _, row in chunk)
        names = columns.select(path, list(keys), nested)
        values = {name: [nested_value(row, name) for _, row in chunk] for name in names}
        yield Batch(path, unit, [number for number, _ in chunk], values)


def _nested_names(values: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the fields inside the objects, such as "review.text"."""
    names: dict[str, None] = {}
    for value in values:
        for key, inner in value.items():
            if isinstance(inner, dict):
                names |= dict.fromkeys(f"{key}.{name}" for name in [*inner, *_nested_names([inner])])
    return list(names)


def nested_value(row: dict[str, Any], name: str) -> Any:
    """Return a value by its name. If the row does not have the name, dots lead into objects, as in "review.text"."""
    if name in row:
        return row[name]
    key, _, inner_name = name.partition(".")
    inner = row.get(key)
    return nested_value(inner, inner_name) if inner_name and isinstance(inner, dict) else None


def _read_parquet(path: Path, columns: ColumnSelection) -> Iterator[Batch]:
    start = 0
    try:
        # By default, the reader keeps everything that it has read: https://github.com/apache/arrow/issues/39808
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            schema = file.schema_arrow
            names = columns.select(path, schema.names, _nested_fields(schema))
            for batch in file.iter_batches(_ROWS, columns=names):
                values = batch.to_pydict()
                for name in names:
                    if name not in values:
                        outer, _, inner_name = name.partition(".")
                        values[name] = [nested_value(value or {}, inner_name) for value in values[outer]]
                columns_of_batch = {name: values[name] for name in names}
                yield Batch(path, "row", range(start, start + len(batch)), columns_of_batch, schema)
                start += len(batch)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} contains text that is not UTF-8 ({error}). Write the file again.") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a complete Parquet file ({error}). Write the file again.") from None


def _nested_fields(fields: Iterable[pa.Field]) -> list[str]:
    """Return the names of the fields inside structs, such as "review.text"."""
    names = []
    for field in fields:
        if pa.types.is_struct(field.type):
            inner = [*field.type.names, *_nested_fields(field.type.fields)]
            names += [f"{field.name}.{name}" for name in inner]
    return names


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the class names that the package `datasets` wrote for columns with class numbers or lists of them."""
    try:
        features = Features.from_arrow_schema(schema)
    except (AttributeError, KeyError, TypeError, ValueError):  # The schema is damaged, or a newer version wrote it.
        return {}
    return _names_of_classes(features)


def _names_of_classes(features: Mapping[str, Any]) -> dict[str, list[str]]:
    names = {}
    for name, feature in features.items():
        feature = getattr(feature, "feature", feature)  # for a list, the feature of its items
        if isinstance(feature, ClassLabel):
            names[name] = feature.names
        elif isinstance(feature, dict):
            names |= {f"{name}.{inner_name}": classes for inner_name, classes in _names_of_classes(feature).items()}
    return names


def is_missing(value: object) -> bool:
    """Return whether a value is missing: null, or NaN, which Python's `json` writes for a missing number."""
    return value is None or value != value
