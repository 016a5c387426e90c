"""The user's own files: which there are, and their rows in batches. What is wrong with one is told by file and line."""

import csv
import difflib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.messages import UserError, log
from pipeline.core.paths import users_path
from pipeline.core.task import TRAIN

# What a split is called in the name of a file, as on the Hub.
NAMES = {TRAIN: TRAIN, **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"), "test": "test"}
_ROWS = 1 << 15  # of a batch
_LONGEST_FIELD = 10_000_000  # characters; a quote that is never closed takes all that follows
_TEXT = "UTF-8 text"
_SIGNATURES = {
    b"PAR1": "a parquet file", b"PK\x03\x04": "a zip or Excel file", b"\x1f\x8b": "a gzip file", b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text", b"<": "an HTML or XML page", b"{": "JSON", b"[": "JSON",
    b"version https://git-lfs": "a pointer of git-lfs",
}  # fmt: skip


class Batch(NamedTuple):
    """Some rows of a file. columns: by name, a value per row, None where missing; a column that is not there is absent.

    numbers: of each row, the line on which it starts; or in a file without lines its number, from 0.
    """

    path: Path
    unit: str
    numbers: Sequence[int]
    columns: Mapping[str, Sequence[Any] | pa.Array]

    def where(self, row: int) -> str:
        return f"{self.path} {self.unit} {self.numbers[row]}"


def find_files(directory: Path) -> dict[str, list[Path]]:
    """The files of each split in a directory, train first: one, or several shards in order. Raises UserError."""
    found, others = _listed(directory)
    if not directory.is_absolute():  # a temporary experiment runs in another directory, see `users_path`
        users, here = (_relative(of) for of in (users_path(directory), directory))
        if lacking := sorted(users - here):
            name = directory / lacking[0]
            raise UserError(
                f"{name} is not in the copy of the repository in which this experiment runs: it is not tracked; "
                f'run "dvc add {name} && git add {name}.dvc {name.parent}/.gitignore", or "git add {name}"'
            )
    for split, candidates in found.items():
        if len(candidates) > 1:
            raise UserError(f"{directory} has {listing(candidates)}, each of which may be {split}; leave one of them")
    if TRAIN not in found:
        has = f", but {listing(others)}" if others else ""
        raise UserError(
            f"data.directory: {directory} has no train file{has}; put train{', train'.join(READERS)} there, or where "
            'it has train.csv.dvc run "dvc pull"'
        )
    if ignored := [name for name in others if not name.endswith(".dvc")]:
        log.warning("%s: not read, since named neither train, validation nor test: %s", directory, listing(ignored))
    return {split: next(iter(found[split].values())) for split in dict.fromkeys(NAMES.values()) if split in found}


def listing(names: Iterable[object], most: int = 10) -> str:
    """The first names, and how many more there are."""
    texts = [f"{name}"[:60] for name in names]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _listed(directory: Path) -> tuple[dict[str, dict[str, list[Path]]], list[str]]:
    """By split and name the files, or the shards, that may be it; and the names of the files that are no split's."""
    found: dict[str, dict[str, list[Path]]] = {}
    others = []
    for path in _visible(directory) if directory.is_dir() else []:
        stem, _, shards = re.fullmatch(r"(.*?)(-\d{5}-of-(\d{5}))?", path.stem).groups()  # type: ignore[union-attr]
        split = NAMES.get(stem.lower())
        files = _visible(path) if path.is_dir() else [path]
        files = [file for file in files if file.suffix != ".dvc"]
        if split is None or not files:
            others.append(path.name)
            continue
        name = f"{stem}-*-of-{shards}{path.suffix}" if shards else path.name
        found.setdefault(split, {}).setdefault(name, []).extend(files)
    for name, files in chain.from_iterable(of.items() for of in found.values()):
        for file in files:
            if file.suffix not in READERS:
                raise UserError(f"{file} cannot be read; save it as one of {', '.join(READERS)}")
        if (number := re.search(r"-of-(\d{5})", name)) and len(files) != int(number[1]):
            raise UserError(f"{directory} has {len(files)} of the {int(number[1])} files {name}; add the others")
    return found, others


def _visible(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if not path.name.startswith(".")]


def _relative(directory: Path) -> set[Path]:
    candidates = chain.from_iterable(of.values() for of in _listed(directory)[0].values())
    return {path.relative_to(directory) for path in chain.from_iterable(candidates)}


def read_files(files: Sequence[Path], wanted: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Batch]:
    """The rows of a split's files, with the columns `wanted`; of these, `optional` may be absent.

    Raises UserError where a file is not what its ending says, lacks a column, has a ragged row or is not UTF-8.
    """
    for path in files:
        _check_signature(path)
        empty = True
        for batch in READERS[path.suffix](path, wanted, optional):
            empty = False
            yield batch
        if empty:
            raise UserError(f"{path} has no rows; add some, or remove it")


def _check_signature(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip()
    found = next((kind for start, kind in _SIGNATURES.items() if head.startswith(start)), _TEXT)
    expected = {".parquet": "a parquet file", ".json": "JSON", ".jsonl": "JSON"}.get(path.suffix, _TEXT)
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


def _read_csv(path: Path, wanted: Sequence[str], optional: Sequence[str]) -> Iterator[Batch]:
    csv.field_size_limit(_LONGEST_FIELD)
    start = 1
    with _open_text(path) as file:
        rows = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            header = [name.strip() for name in next(filter(None, rows), [])]
            wanted = _present(path, header, wanted, optional)
            at = [header.index(name) for name in wanted]
            while True:
                taken, numbers = [], []
                start = rows.line_num + 1
                for row in rows:
                    if len(row) == len(header):
                        taken.append(row)
                        numbers.append(start)
                    elif row:
                        raise UserError(
                            f"{path} line {start} has {len(row)} fields, the header {len(header)}; put a field with "
                            f"a {'tab' if path.suffix == '.tsv' else 'comma'} or a line break in it into double quotes"
                        )
                    start = rows.line_num + 1
                    if len(taken) == _ROWS:
                        break
                if not taken:
                    return
                columns = list(zip(*taken, strict=True))
                yield Batch(path, "line", numbers, {name: columns[of] for name, of in zip(wanted, at, strict=True)})
        except UnicodeDecodeError:
            raise _not_utf8(path) from None
        except csv.Error as error:
            raise UserError(
                f"{path} line {start}: {error}; where a field has double quotes in it, put it into double quotes and "
                'double those inside: "He said ""yes""."'
            ) from None


def _read_json(path: Path, wanted: Sequence[str], optional: Sequence[str]) -> Iterator[Batch]:
    """A list of objects, which is read whole, or an object on each line."""
    with _open_text(path) as file:
        try:
            unit = "row" if file.read(1000).lstrip().startswith("[") else "line"
            file.seek(0)
            present: list[str] = []
            later = optional  # a column may be missing in all rows of a batch, but not in those of the first
            rows = enumerate(_parsed(f"{path}", file.read())) if unit == "row" else _lines(path, file)
            while taken := list(islice(rows, _ROWS)):
                for number, row in taken:
                    if not isinstance(row, dict):
                        raise UserError(f"{path} {unit} {number} is {shown(row)}; it must be an object of columns")
                known = list(dict.fromkeys(chain.from_iterable(row for _, row in taken)))
                present += _present(path, known, [name for name in wanted if name not in present], later)
                later = wanted
                columns = {name: [row.get(name) for _, row in taken] for name in present}
                yield Batch(path, unit, [number for number, _ in taken], columns)
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


def _lines(path: Path, file: io.TextIOWrapper) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            yield number, _parsed(f"{path} line {number}", line)


def _parsed(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON: {error}; write a list of objects, or an object on each line") from None


def _read_parquet(path: Path, wanted: Sequence[str], optional: Sequence[str]) -> Iterator[Batch]:
    row = 0
    try:
        with pq.ParquetFile(path, buffer_size=1 << 20) as file:
            present = _present(path, file.schema_arrow.names, wanted, optional)
            for batch in file.iter_batches(_ROWS, columns=present):
                numbers = range(row, row := row + len(batch))
                yield Batch(path, "row", numbers, {name: batch.column(name) for name in present})
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a complete parquet file ({error}); write it again") from None


READERS: dict[str, Callable[[Path, Sequence[str], Sequence[str]], Iterator[Batch]]] = {
    ".csv": _read_csv, ".tsv": _read_csv, ".json": _read_json, ".jsonl": _read_json, ".parquet": _read_parquet,
}  # fmt: skip


def _present(path: Path, columns: list[str], wanted: Sequence[str], optional: Sequence[str]) -> list[str]:
    """Which of the columns `wanted` a file has; all, but those of `optional`."""
    for name in wanted:
        if columns.count(name) > 1:
            raise UserError(f"{path} has {columns.count(name)} columns {name}; rename all but one")
        if name not in columns and name not in optional:
            by_lower = {column.lower(): column for column in columns}
            close = difflib.get_close_matches(name.lower(), by_lower, n=1)
            do = "name one of these in params.yaml" + (f': did you mean "{by_lower[close[0]]}"?' if close else "")
            if len(columns) == 1 and path.suffix in (".csv", ".tsv") and (other := re.search(r"[;\t,|]", columns[0])):
                do = f"its fields seem to be separated by {other[0]!r}: a .csv has commas, a .tsv tabs"
            raise UserError(f"{path} has no column {name}, but {listing(columns, 20)}; {do}")
    return [name for name in wanted if name in columns]


def shown(value: object) -> str:
    """A value for a message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
