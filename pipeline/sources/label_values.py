"""Read the labels of custom files as Python values: a label, a list of labels, or a vector of 0 and 1."""

import ast
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from pipeline.core.messages import UserError
from pipeline.core.text import literal
from pipeline.params import DataParams
from pipeline.tabular.reading import Batch, is_missing

_BITS = {0: False, 1: True, "0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}

_INTEGER = re.compile(r"[+-]?\d+(\.0*)?")
_WHOLE_FLOAT = re.compile(r"([+-]?(?:0|[1-9]\d*))\.0*")
_CODE = re.compile(r"[+-]?0\d")  # such as 007, which is a name: its zeros matter
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)

# A list that is neither a JSON nor a Python list: a vector as NumPy or torch print it, quoted labels in parentheses, an
# array of PostgreSQL, or zeros and ones without brackets. An object starts like such an array.
_UNSUPPORTED_LIST = re.compile(
    r"""tensor\(|array\(|\{|[\[(]\s*['"]|\[np\.|\[[^\s,]*[\s,].*\]\Z|\(?[01](?:[\s,]+[01]){2,}\)?\Z""", re.DOTALL
)
_JOINED_TEXTS = re.compile(r"""['"]\s+['"]""")  # NumPy writes no commas between texts, so Python would join them.


def label_columns(params: DataParams) -> list[str]:
    """Return the column with the labels, or several columns that contain 0 or 1, one for each label."""
    return [params.label_column_name] if isinstance(params.label_column_name, str) else params.label_column_name


def label_values(batch: Batch, columns: Sequence[str]) -> list[Any]:
    """Return the label of each row, or None if it is missing.

    With several columns, a label is a list of booleans. It is None if a cell is empty, and the list of the cells if all
    of them are -1.
    """
    absent = [name for name in columns if name not in batch.columns]
    if len(absent) == len(columns):
        return [None] * len(batch.numbers)
    if absent:
        raise UserError(
            f'{batch.path} has no column "{absent[0]}", although it has other columns of data.label_column_name. Add '
            "the missing column, or remove all of these columns."
        )
    cells = [batch.columns[name] for name in columns]
    if len(columns) > 1:
        return [_row_vector(batch, row, columns, values) for row, values in enumerate(zip(*cells, strict=True))]
    if names := batch.class_names.get(columns[0]):
        return [_class_name(batch, row, columns[0], value, names) for row, value in enumerate(cells[0])]
    return cells[0]


def _class_name(batch: Batch, row: int, column: str, value: Any, names: list[str]) -> Any:
    """Return the name of a class number, or the names for a list of numbers.

    The name is None for -1, which the package `datasets` writes if a row has no label.
    """
    if isinstance(value, list):
        return [_class_name(batch, row, column, number, names) for number in value]
    if value in (None, -1):
        return None
    if not 0 <= value < len(names):
        raise UserError(
            f'{batch.place(row)}: "{column}" is {value}, but the schema of the file names only the classes 0 to '
            f"{len(names) - 1}. Correct the label, or add its name to the schema."
        )
    return names[value]


def _row_vector(batch: Batch, row: int, columns: Sequence[str], cells: tuple[Any, ...]) -> list[Any] | None:
    if any(label_text(cell) is None for cell in cells):
        return None
    if all(map(is_minus_one, cells)):
        return list(cells)
    for name, cell in zip(columns, cells, strict=True):
        if as_bit(cell) is None:
            raise UserError(
                f'{batch.place(row)}: "{name}" must be 0 or 1, because data.label_column_name lists several columns, '
                f"got {literal(cell)}. Correct it."
            )
    return [as_bit(cell) for cell in cells]


def label_text(label: Any) -> str | None:
    """Return a label as text, with the same spelling for 1 and 1.0, or None if it is missing."""
    if isinstance(label, Decimal) and label.is_finite():
        return format(label.normalize(), "f")  # A decimal of Parquet: 1.000 becomes "1".
    if is_missing(label):
        return None
    return without_point_zero(str(label).strip()) or None


def without_point_zero(text: str) -> str:
    """Return 1 for 1.0, because pandas writes 1 as 1.0 if another value is missing. Other texts stay as they are."""
    whole = _WHOLE_FLOAT.fullmatch(text)
    return whole[1] if whole else text


def label_texts(labels: Iterable[Any]) -> list[str]:
    """Return labels as texts, without the missing ones."""
    return [text for text in map(label_text, labels) if text is not None]


def as_bit(value: Any) -> bool | None:
    """Return True for 1, False for 0, and None for anything else."""
    if isinstance(value, (list, dict)):
        return None
    return _BITS.get(value.strip().lower() if isinstance(value, str) else value)


def is_minus_one(value: Any) -> bool:
    """Return whether a label, or each number of a vector, is -1. It often means that the label is not known."""
    if isinstance(value, list):
        return bool(value) and all(map(is_minus_one, value))
    return value.strip() in ("-1", "-1.0") if isinstance(value, str) else bool(value == -1)


def is_integer(label: str) -> bool:
    return bool(_INTEGER.fullmatch(label))


def is_number(label: str) -> bool:
    return bool(_NUMBER.fullmatch(label))


def is_code(label: str) -> bool:
    """Return whether a label starts with a zero and another digit, such as 007, so that it is probably a name."""
    return bool(_CODE.match(label))


def is_sortable_number(label: str) -> bool:
    """Return whether a label is a number that can be sorted by its value, and not NaN."""
    return is_number(label) and not label.lower().endswith("nan")


def list_from_text(text: str) -> list[Any] | None:
    """Return the items of a text that is a JSON or a Python list, or None if it is neither."""
    if not text.strip().startswith("["):
        return None
    value: Any = None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if not _JOINED_TEXTS.search(text):
            with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                value = ast.literal_eval(text.strip())
    return value if isinstance(value, list) else None


def is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    with suppress(ValueError, RecursionError):
        return isinstance(json.loads(text), dict)
    return False


def is_unsupported_list(text: str) -> bool:
    """Return whether a text is probably a list of labels, but not in a form that `list_from_text` reads."""
    return _UNSUPPORTED_LIST.match(text.strip()) is not None
