"""Read the rows of JSON files: an object on each line, or a single value such as a list or what pandas writes."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError, log
from pipeline.core.text import literal
from pipeline.tabular.opening import OnError, RowError, Rows, data_suffix, decoded_lines, open_text

_LONGEST_ROW = 10_000_000  # characters. A longer first line is taken for the whole document, and not read to its end.


def is_document(path: Path, encoding: str) -> bool:
    """Return whether a file contains a single JSON value instead of an object on each line."""
    with open_text(path, encoding, newline="\n") as lines:
        first = lines.readline(_LONGEST_ROW)
        while first.isspace():
            first = lines.readline(_LONGEST_ROW)
        if first.lstrip().startswith("["):
            return True
        if data_suffix(path) in (".jsonl", ".ndjson"):
            return False
        if len(first) == _LONGEST_ROW:
            return True
        try:
            json.loads(first)
        except (ValueError, RecursionError):  # The value continues on the next line.
            return True
        return all(line.isspace() for line in lines)


def json_lines(path: Path, lines: Iterable[str], encoding: str, on_error: OnError) -> Rows:
    """Yield the object on each line with the number of the line. The lines must come from `open_text`."""
    for number, line in enumerate(decoded_lines(path, lines, encoding), 1):
        if line.isspace():
            continue
        where = f"{path} line {number}"
        try:
            value = json.loads(line, object_pairs_hook=_require_unique_keys)
        except (ValueError, RecursionError) as error:
            why = f"cannot be read as JSON: {error}. Write an object on each line."
            on_error(RowError(where, why, line.rstrip("\r\n")))
        else:
            if _require_object(where, value, on_error):
                yield number, value


def document_rows(path: Path, encoding: str, on_error: OnError) -> Rows:
    """Yield the rows of a file that contains a single value, with their numbers from 0. It is loaded into memory."""
    with open_text(path, encoding, newline="\n") as lines:
        text = "".join(decoded_lines(path, lines, encoding))
    try:
        document = json.loads(text, object_pairs_hook=_require_unique_keys)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read as JSON: {error}. Write a list of objects, or an object on each line."
        ) from None
    for number, row in enumerate(_table(path, document)):
        if _require_object(f"{path} row {number}", row, on_error):
            yield number, row


def _require_object(where: str, value: Any, on_error: OnError) -> bool:
    if not isinstance(value, dict):
        on_error(RowError(where, f"must be a JSON object with the columns as keys, got {literal(value)}.", value))
    return isinstance(value, dict)


def _table(path: Path, document: Any) -> Iterable[Any]:
    """Return the rows of a list, of {"data": [...]}, or of what pandas' `DataFrame.to_json` writes by default."""
    if isinstance(document, list):
        return document
    if isinstance(document, dict) and isinstance(rows := document.get("data"), list):
        for key, value in document.items():
            if key != "data" and isinstance(value, list) and any(isinstance(item, dict) for item in value):
                log.warning(
                    '%s: only the list "data" is read, but the list "%s" also contains objects (%s). If they are rows, '
                    "write all rows into a single list.",
                    path, key, f"{len(value):,}",
                )  # fmt: skip
        return rows
    if document and isinstance(document, dict) and all(isinstance(value, dict) for value in document.values()):
        return _rows_of_columns(path, document)
    return [document]


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


def nested_value(row: dict[str, Any], name: str) -> Any:
    """Return a value by its name. If the row does not have the name, dots lead into objects, as in "review.text"."""
    if name in row:
        return row[name]
    key, _, inner_name = name.partition(".")
    inner = row.get(key)
    return nested_value(inner, inner_name) if inner_name and isinstance(inner, dict) else None


def nested_names(values: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the fields inside the objects, such as "review.text"."""
    names: dict[str, None] = {}
    for value in values:
        for key, inner in value.items():
            if isinstance(inner, dict):
                names |= dict.fromkeys(f"{key}.{name}" for name in [*inner, *nested_names([inner])])
    return list(names)


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a row from the keys and values of an object. Raises ValueError if a key occurs more than once.

    By default, Python's reader keeps only the last value of a key.
    """
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {literal(next(key for key in keys if keys.count(key) > 1))} occurs more than once")
    return row
