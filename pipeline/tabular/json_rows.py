"""Read the rows of JSON files: an object on each line, or a single value such as a list or what pandas writes."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError
from pipeline.core.text import literal
from pipeline.tabular.file_format import FileFormat
from pipeline.tabular.opening import LONE_SURROGATE, data_suffix, decoded_lines, explain_bytes, open_text
from pipeline.tabular.row_errors import OnError, RowError

JsonRows = Iterator[tuple[int, dict[str, Any]]]  # the line or number of each row, and its values by column


def is_document(path: Path, encoding: str) -> bool:
    """Return whether a file contains a single JSON value instead of an object on each line."""
    with open_text(path, encoding, newline="\n") as lines:
        remaining = (line for line in lines if not line.isspace())
        first = next(remaining, "")
        if first.lstrip().startswith("["):
            return True
        if data_suffix(path) == ".jsonl":
            return False
        try:
            json.loads(first)
        except (ValueError, RecursionError):  # The value continues on the next line.
            return True
        return next(remaining, None) is None


def json_lines(path: Path, lines: Iterable[str], encoding: str, on_error: OnError) -> JsonRows:
    """Yield the object on each line with the number of the line. The lines must come from `open_text`."""
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        where = f"{path} line {number}"
        if why := explain_bytes(line, encoding):
            on_error(RowError(where, why, LONE_SURROGATE.sub("\ufffd", line.rstrip("\r\n"))))
            continue
        try:
            value = json.loads(line, object_pairs_hook=_require_unique_keys)
        except (ValueError, RecursionError) as error:
            why = f"cannot be read as JSON: {error}. Write an object on each line."
            on_error(RowError(where, why, line.rstrip("\r\n")))
        else:
            if _require_object(where, value, on_error):
                yield number, value


def document_rows(path: Path, file_format: FileFormat, on_error: OnError) -> JsonRows:
    """Yield the rows of a file that contains a single value, with their numbers from 0. It is loaded into memory."""
    with open_text(path, file_format.encoding, newline="\n") as lines:
        text = "".join(decoded_lines(path, lines, file_format.encoding))
    try:
        document = json.loads(text, object_pairs_hook=_require_unique_keys)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read as JSON: {error}. Write a list of objects, or an object on each line."
        ) from None
    for number, row in enumerate(_table(path, document, file_format.header)):
        if _require_object(f"{path} row {number}", row, on_error):
            yield number, row


def _require_object(where: str, value: Any, on_error: OnError) -> bool:
    if not isinstance(value, dict):
        on_error(RowError(where, f"must be a JSON object with the columns as keys, got {literal(value)}.", value))
    return isinstance(value, dict)


def _table(path: Path, document: Any, header: bool) -> Iterable[Any]:
    """Return the rows of a list, of {"data": [...]}, or of an orientation of pandas' `DataFrame.to_json`."""
    if isinstance(document, dict) and isinstance(rows := document.get("data"), list):
        if isinstance(names := document.get("columns"), list):  # orient="split"
            return _named_rows(path, [str(name) for name in names], rows)
        if "schema" in document:  # orient="table", in which the index without a name is called "index"
            return [_without_index(row) for row in rows]
        return _table(path, rows, header)
    if isinstance(document, list):
        if not document or not all(isinstance(row, list) for row in document):
            return document
        if header:  # orient="values"
            raise UserError(
                f"{path} is a list of lists without the names of the columns. Set data.header=false (in a command, "
                "--no-header) to call them column_1, column_2 and so on, or write a list of objects."
            )
        names = [f"column_{number}" for number in range(1, len(document[0]) + 1)]
        return _named_rows(path, names, document)
    if document and isinstance(document, dict) and all(isinstance(value, dict) for value in document.values()):
        if _has_rows_outside(document):
            return document.values()  # orient="index"
        return _rows_of_columns(path, document)  # orient="columns"
    return [document]


def _named_rows(path: Path, names: list[str], rows: list[Any]) -> Iterator[dict[str, Any]]:
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f'{path} has {names.count(repeated)} columns named "{repeated}". Rename all but one.')
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise UserError(
                f"{path} row {number} must be a list of {len(names)} values, one for each column, got {literal(row)}."
            )
        yield dict(zip(names, row, strict=True))


def _without_index(row: Any) -> Any:
    return {name: value for name, value in row.items() if name != "index"} if isinstance(row, dict) else row


def _has_rows_outside(document: dict[str, dict[str, Any]]) -> bool:
    """Return whether the outer keys are the index and the inner keys are the columns.

    The index usually consists of numbers. If it does not, a table has more rows than columns.
    """
    outer, inner = list(document), list(next(iter(document.values())))
    outer_is_number, inner_is_number = (all(name.isdigit() for name in names) for names in (outer, inner))
    if outer_is_number != inner_is_number:
        return outer_is_number
    return len(outer) > len(inner) and not outer_is_number


def _rows_of_columns(path: Path, columns: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    first_name, first = next(iter(columns.items()))
    for name, column in columns.items():
        if column.keys() != first.keys():
            raise UserError(
                f'{path}: the columns "{first_name}" and "{name}" do not have the same keys. Write a list of objects, '
                "one for each row."
            )
    for key in first:
        yield {name: column[key] for name, column in columns.items()}


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a row from the keys and values of an object. Raises ValueError if a key occurs more than once.

    By default, Python's reader keeps only the last value of a key.
    """
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {literal(next(key for key in keys if keys.count(key) > 1))} occurs more than once")
    return row
