"""Read the rows of JSON files: an object on each line, or a list of objects."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError
from pipeline.core.text import literal
from pipeline.tabular.opening import Rows, data_suffix, decoded_lines, open_text

_REMEDY = 'Write a list of objects, or one object per line (in pandas, to_json with orient="records", lines=True).'


def is_list(path: Path, encoding: str) -> bool:
    """Return whether a file contains a list instead of an object on each line."""
    with open_text(path, encoding, newline="\n") as file:
        character = file.read(1)
        while character.isspace():
            character = file.read(1)
        return character == "["


def line_rows(path: Path, encoding: str) -> Rows:
    """Yield the object on each line of a file with the number of the line.

    Raises:
        UserError: A line is not a JSON object, or a .json file has only one object, and it contains whole columns, or
            lists of rows.
    """
    count = 0
    with open_text(path, encoding, newline="\n") as lines:
        for number, line in enumerate(decoded_lines(path, lines, encoding), 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line, object_pairs_hook=_require_unique_keys)
            except (ValueError, RecursionError) as error:
                remedy = _REMEDY if data_suffix(path) == ".json" else "Write one object per line."
                raise UserError(f"{path} line {number} cannot be read as JSON: {error}. {remedy}") from None
            _require_object(f"{path} line {number}", row)
            yield number, row
            count += 1
    is_document = count == 1 and data_suffix(path) == ".json"
    if is_document and all(isinstance(value, (dict, list)) for value in row.values()):
        raise UserError(f"{path} contains a single object, and all its values are objects or lists. {_REMEDY}")


def list_rows(path: Path, encoding: str) -> Rows:
    """Yield the rows of a file that contains a list, with their numbers from 0. It is loaded into memory."""
    with open_text(path, encoding, newline="\n") as lines:
        text = "".join(decoded_lines(path, lines, encoding))
    try:
        rows = json.loads(text, object_pairs_hook=_require_unique_keys)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}. {_REMEDY}") from None
    for number, row in enumerate(rows):
        _require_object(f"{path} row {number}", row)
        yield number, row


def _require_object(place: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise UserError(f"{place} must be a JSON object with the columns as keys, got {literal(value)}.")


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
