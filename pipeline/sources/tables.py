"""Read tables strictly: CSV, TSV, JSON, JSON Lines and Parquet. An error names its line."""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, Features

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output, require_file_path
from pipeline.core.text import did_you_mean, listing, literal
from pipeline.sources.file_format import DEFAULT_FORMAT, DELIMITERS, FileFormat

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
_WRITABLE = (".csv", ".tsv", ".jsonl", ".parquet")
_SUFFIXES = re.compile(rf"({'|'.join(map(re.escape, FORMATS))})(\.gz)?$", re.IGNORECASE)
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a UTF-16 pair, which JSON can contain but UTF-8 cannot

csv.field_size_limit(10_000_000)  # By default, a field has at most 131,072 characters.
datasets.disable_progress_bars()


@dataclass(frozen=True)
class Table:
    """Rows as their source has them.

    Attributes:
        source: The file or the split of a Hub dataset, for messages.
        rows: Texts if the source is a CSV file, and otherwise Python values. A missing value is None. The index has
            the place of each row, such as "data/custom/train.csv line 5". A field inside an object is a column with a
            name such as "review.text". Class numbers are replaced by the names of the classes.
        classes: The names of the classes, in the order of their numbers, of each column for which the source has them.
    """

    source: str
    rows: pd.DataFrame
    classes: dict[str, list[str]] = field(default_factory=dict)

    def require(self, names: Sequence[str]) -> None:
        """Raise UserError if a column is missing."""
        for name in names:
            if name not in self.rows:
                columns, hint = listing(self.rows, 20), did_you_mean(name, [*self.rows])
                raise UserError(f'{self.source} has no column "{name}". Its columns are: {columns}.{hint}')

    def texts(self, name: str) -> pd.Series:
        """Return a column as texts. A missing value is an empty text. Raises UserError for a list or an object."""
        texts = ["" if value is None else str(value) for value in self.rows[name]]
        for place, value, text in zip(self.rows.index, self.rows[name], texts, strict=True):
            if isinstance(value, (list, dict)) or LONE_SURROGATE.search(text):
                raise UserError(f'{place}: "{name}" is {literal(value)}, which is not text. Correct it.')
        return pd.Series(texts, self.rows.index, dtype=object, name=name)


def data_suffix(path: Path) -> str | None:
    """Return ".csv" for train.csv and TRAIN.CSV.GZ, and None if the file has no suffix that can be read."""
    match = _SUFFIXES.search(path.name)
    return match[1].lower() if match else None


def data_stem(path: Path) -> str:
    """Return the name of a file without its suffixes: "train" for train.csv and train.csv.gz."""
    return _SUFFIXES.sub("", path.name)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises UserError if it cannot be read, or its suffix is not supported."""
    if data_suffix(path) is None:
        raise UserError(f"{path}: only {', '.join(FORMATS)} can be read, and .gz after it. Convert the file.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


def read_table(path: Path, content: bytes, file_format: FileFormat = DEFAULT_FORMAT) -> Table:
    """Read a table from the content of a file.

    Raises:
        UserError: The content is not what the suffix of `path` says, or it is in another encoding.
    """
    suffix = data_suffix(path)
    if path.suffix.lower() == ".gz":
        content = _decompress(path, content)
    if suffix == ".parquet":
        return _read_parquet(path, content)
    if suffix in (".csv", ".tsv"):  # The text itself is freed at once, because a copy is large.
        return _read_csv(path, io.StringIO(_decode(path, content, file_format.encoding), newline=""), file_format)
    return _read_json(path, _decode(path, content, file_format.encoding))


def concat(tables: Sequence[Table]) -> Table:
    """Join tables. Raises UserError if one has no rows, or lacks a column that another one has."""
    columns = [*dict.fromkeys(name for table in tables for name in table.rows)]
    for table in tables:
        if table.rows.empty:
            raise UserError(f"{table.source} has no rows. Add some, or remove it.")
        table.require(columns)
    classes = {name: names for table in reversed(tables) for name, names in table.classes.items()}
    return Table(tables[0].source, pd.concat([table.rows for table in tables]), classes)


def _decompress(path: Path, content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a complete gzip file ({error}). Write it again.") from None


def _decode(path: Path, content: bytes, encoding: str) -> str:
    codec = codecs.lookup(encoding).name
    try:  # Latin-1 means cp1252, as in browsers: https://encoding.spec.whatwg.org
        return content.decode({"utf-8": "utf-8-sig", "iso8859-1": "cp1252"}.get(codec, codec))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1  # `object` is `content` without a byte order mark.
        byte = error.object[error.start]
        raise UserError(
            f"{path} line {line} contains the byte 0x{byte:02x}, which is not valid in {encoding}. "
            "Save it as UTF-8, or set data.encoding (in a command, --encoding), for example to cp1252 or utf-16."
        ) from None


def _read_csv(path: Path, lines: io.StringIO, file_format: FileFormat) -> Table:
    """Read rows with as many fields as the header. Their place is the line on which they start."""
    delimiter = "\t" if data_suffix(path) == ".tsv" else max(DELIMITERS, key=lines.readline().count)
    lines.seek(0)
    rows = _numbered_rows(path, lines, file_format.delimiter or delimiter)
    line, fields = next(rows, (1, []))
    names = _column_names(path, fields, file_format.header)
    if not file_format.header:
        rows = chain([(line, fields)], rows)
    places: list[str] = []
    values: list[list[str]] = []
    for line, fields in rows:
        if len(fields) != len(names):
            raise UserError(
                f"{path} line {line}: the row has {len(fields)} fields, but there are {len(names)} columns. Enclose a "
                "field that contains the delimiter or a line break in double quotes."
            )
        places.append(f"{path} line {line}")
        values.append(fields)
    return Table(str(path), pd.DataFrame(values, places, names, dtype=object))


def _numbered_rows(path: Path, lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank, and the number of the line on which it starts."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path} line {line} is not valid CSV ({error}). See docs/data_files.md.") from None


def _column_names(path: Path, fields: list[str], header: bool) -> list[str]:
    numbered = [f"column_{number}" for number in range(1, len(fields) + 1)]
    names = [name.strip() or number for name, number in zip(fields, numbered, strict=True)] if header else numbered
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f'{path} has several columns named "{repeated}". Rename all but one.')
    return names


def _read_json(path: Path, text: str) -> Table:
    """Read the objects of a list, or the object on each line."""
    rows = {}
    for place, value in _json_values(path, text):
        if not isinstance(value, dict):
            raise UserError(f"{place}: a row must be an object with the columns as keys, got {literal(value)}.")
        rows[place] = _flatten(value)
    frame = pd.DataFrame(list(rows.values()), list(rows), dtype=object)
    return Table(str(path), frame.where(frame.notna(), None))


def _json_values(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    if text.lstrip().startswith("["):
        yield from ((f"{path} row {number}", value) for number, value in enumerate(_parse_json(str(path), text)))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{path} line {number}"
            yield place, _parse_json(place, line)


def _parse_json(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"{place} is not valid JSON: {error}.") from None


def _flatten(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _read_parquet(path: Path, content: bytes) -> Table:
    """Read a Parquet file, perhaps one that `datasets` wrote. Images, sounds and other bytes are left out."""
    try:
        dataset = Dataset(pq.read_table(pa.BufferReader(content))).flatten()
        schema = dataset.data.schema
        binary = [field.name for field in schema if field.type in (pa.binary(), pa.large_binary())]
        values = dataset.remove_columns(binary).with_format("arrow")[:].to_pydict()
        frame = pd.DataFrame(values, [f"{path} row {number}" for number in range(len(dataset))], dtype=object)
        return name_classes(Table(str(path), frame.where(frame.notna(), None)), dataset.features)
    except Exception as error:  # Damaged metadata of `datasets` can cause almost any error.
        raise UserError(f"{path} is not a complete Parquet file ({error!r}). Write it again.") from None


def name_classes(table: Table, features: Features) -> Table:
    """Replace class numbers by the names that a schema has for them. `datasets` writes -1 if a class is not known."""
    rows, classes = table.rows.copy(deep=False), dict(table.classes)
    for column, feature in features.flatten().items():
        feature = getattr(feature, "feature", feature)  # The items of a list have a feature of their own.
        if isinstance(feature, ClassLabel) and column in rows and column not in classes:
            names = {-1: None, **dict(enumerate(feature.names))}
            # A CSV file has the names, or the numbers as texts.
            names |= {str(number): name for number, name in names.items()} | {name: name for name in feature.names}
            values = [_class_names(value, names) for value in rows[column]]
            rows[column] = pd.Series(values, rows.index, dtype=object)
            classes[column] = feature.names
    return replace(table, rows=rows, classes=classes)


def _class_names(value: Any, names: dict[Any, str | None]) -> Any:
    return [_class_names(item, names) for item in value] if isinstance(value, list) else names.get(value, value)


def require_writable(path: Path) -> None:
    """Raise UserError if `write_rows` cannot write to a path because of its suffix, or because it is a directory."""
    require_file_path(path)
    if path.suffix not in _WRITABLE:
        raise UserError(f"{path} has an unsupported suffix. Use one of {', '.join(_WRITABLE)}.")


def write_rows(rows: pd.DataFrame, path: Path) -> None:
    """Write rows to a file with a suffix that `require_writable` accepts. In a CSV file, a list is written as JSON.

    Raises:
        UserError: Parquet cannot store a column.
    """
    with atomic_output(path) as draft:
        if path.suffix == ".parquet":
            try:
                rows.to_parquet(draft, index=False)
            except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
                raise UserError(f"{path}: Parquet cannot store a column ({error}). Write a .jsonl file.") from None
        elif path.suffix == ".jsonl":
            draft.write_text("\n".join([*json_lines(rows), ""]), encoding="utf-8", errors="backslashreplace")
        else:
            # By default, a field with a carriage return, which also ends a line, has no quotes.
            rows.map(lambda value: json.dumps(value, default=str) if isinstance(value, (list, dict)) else value).to_csv(
                draft, index=False, sep="\t" if path.suffix == ".tsv" else ",", quoting=csv.QUOTE_NONNUMERIC,
                lineterminator="\n", errors="backslashreplace",
            )  # fmt: skip


def json_lines(rows: pd.DataFrame) -> list[str]:
    """Return each row as a JSON object."""
    records = rows.astype(object).where(rows.notna(), None).to_dict("records")
    return [json.dumps(row, ensure_ascii=False, default=str) for row in records]
