"""Read the labels of a user's own files as Python values: a label, a list of labels, or a vector of 0 and 1."""

import ast
import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pipeline.core.messages import UserError
from pipeline.tabular.reading import Batch, missing, shown

_BITS = {0: False, 1: True, "0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
_MOST_VALUES = 20_000  # different vectors that are remembered, so that they are checked once

# A list that Python, JSON or NumPy has written: numbers and quoted texts, between commas or spaces.
_SCALAR = re.compile(r"np\.\w+\(([^()]*)\)")  # as in [np.int64(1), np.str_('a')]
_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:e[-+]?\d++)?"
_ITEM = rf"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|{_NUMBER}|True|False|None|true|false|null|nan|NaN"""
_ITEMS = re.compile(_ITEM)
_LIST = re.compile(rf"(?:(?:{_ITEM})(?:\s*,\s*|\s+|$))*")
_BARE_VECTOR = re.compile(r"[01](?:[\s,]+[01]){2,}")
_EMPTY = ("None", "null", "nan", "NaN")


def label_values(batch: Batch, columns: Sequence[str]) -> list[Any] | None:
    """Return the label of each row, or None if the file has no labels.

    With several columns, a label is a list of true and false, or None if one of the cells is empty.
    """
    absent = [name for name in columns if name not in batch.columns]
    if len(absent) == len(columns):
        return None
    if absent:
        raise UserError(
            f"{batch.path} has no column {absent[0]}, but another one of data.label_column_name; add the column, or "
            "remove all of them"
        )
    cells = [python_values(batch.columns[name]) for name in columns]
    if len(columns) == 1:
        names = batch.class_names.get(columns[0])
        return _named(batch, columns[0], cells[0], names) if names else cells[0]
    return [_row_vector(batch, row, columns, values) for row, values in enumerate(zip(*cells, strict=True))]


def python_values(column: Sequence[Any] | pa.Array) -> list[Any]:
    """Return a column as a list of Python values."""
    return list(column.to_pylist() if isinstance(column, pa.Array) else column)


def _named(batch: Batch, column: str, values: list[Any], names: list[str]) -> list[Any]:
    """Return the names of classes for their numbers; None for -1, by which the package `datasets` means no label."""
    found: list[Any] = []
    for row, value in enumerate(values):
        numbers = value if isinstance(value, list) else [value]
        if odd := [number for number in numbers if number is not None and not -1 <= number < len(names)]:
            raise UserError(
                f"{batch.where(row)}: {column} is {odd[0]}, but the file's schema names only the classes 0 to "
                f"{len(names) - 1}; correct the label, or add its name to the schema"
            )
        texts = [None if number in (None, -1) else names[number] for number in numbers]
        found.append(texts if isinstance(value, list) else texts[0])
    return found


def _row_vector(batch: Batch, row: int, columns: Sequence[str], cells: tuple[Any, ...]) -> list[Any] | None:
    if any(text_of(cell) is None for cell in cells):
        return None
    if all(map(is_minus_one, cells)):
        return list(cells)
    for name, cell in zip(columns, cells, strict=True):
        if bit(cell) is None:
            raise UserError(
                f"{batch.where(row)}: {name} is {shown(cell)}; a column of data.label_column_name must hold 0 or 1, "
                "if it names several"
            )
    return [bit(cell) for cell in cells]


def text_of(label: Any) -> str | None:
    """Return a label as it is written in a file; None if it is missing."""
    if isinstance(label, Decimal) and label.is_finite():
        return format(label.normalize(), "f")  # a decimal128 of Parquet: 1 for 1.000
    text = label.strip() if isinstance(label, str) else "" if missing(label) else str(label)
    return text or None


def texts_of(labels: Sequence[Any]) -> list[str]:
    """Return labels as they are written in a file, without the missing ones."""
    return [text for text in map(text_of, labels) if text is not None]


def bit(value: Any) -> bool | None:
    """Return true for 1, false for 0, and None for anything else."""
    if isinstance(value, (list, dict)):
        return None
    return _BITS.get(value.strip().lower() if isinstance(value, str) else value)


def is_minus_one(value: Any) -> bool:
    """Return whether a label, or each number of a vector, is -1, which often means that the label is not known."""
    if isinstance(value, list):
        return bool(value) and all(map(is_minus_one, value))
    return value.strip() in ("-1", "-1.0") if isinstance(value, str) else bool(value == -1)


@dataclass(frozen=True)
class Notation:
    """How the files write several labels in one value.

    Attributes:
        separator: What separates labels in a text; None if nothing does.
        text_lists: Whether the labels are lists that were saved as text, such as "['a', 'b']".
    """

    separator: re.Pattern[str] | None = None
    text_lists: bool = False

    def items(self, value: Any) -> list[Any]:
        """Return the items of a list, or of a text that lists them; for any other value, that value alone."""
        if isinstance(value, list):
            return value
        if self.text_lists and isinstance(value, str):
            listed = items_of_text(value)
            return [value] if listed is None else list(listed)
        if self.separator and isinstance(value, str):
            return [*self.separator.split(value)]
        return [value]


@functools.lru_cache(_MOST_VALUES)
def items_of_text(text: str) -> tuple[str | None, ...] | None:
    """Return the items of a list that was saved as text; None if the text is not a list.

    Besides the notations of Python, JSON and NumPy, this reads items without quotes, as in "[a, b]", and vectors of 0
    and 1 without brackets. Tuples and sets count as lists if their items have quotes: "(0, 18)" may be a range.
    """
    text = text.strip()
    if _BARE_VECTOR.fullmatch(text):
        return tuple(_ITEMS.findall(text))
    if text[:1] + text[-1:] not in ("[]", "()", "{}"):
        return None
    inner = _SCALAR.sub(r"\1", text[1:-1]).strip()
    if text[0] != "[" and inner and not re.search("['\"]", inner) and not _BARE_VECTOR.fullmatch(inner):
        return None
    if _LIST.fullmatch(inner):
        return tuple(None if item in _EMPTY else _unquoted(item) for item in _ITEMS.findall(inner))
    return None if re.search("[][{}'\"]", inner) else tuple(item.strip() for item in inner.split(","))


def _unquoted(item: str) -> str:
    if item[0] not in "'\"":
        return item.removesuffix(".")  # NumPy writes 1. for 1.0
    try:
        return str(ast.literal_eval(item))
    except (ValueError, SyntaxError):  # a line break, or an escape that only JSON knows
        return item[1:-1]


def are_text_lists(labels: Sequence[Any]) -> bool:
    """Return whether all labels are lists that were saved as text. A name can have brackets, too, such as "[A]"."""
    texts = {label for label in labels if not missing(label) and label != ""}
    lists = [items_of_text(text) for text in texts]
    return None not in lists and (any(map(is_quoted_list, texts)) or any(len(items or ()) > 1 for items in lists))


def is_quoted_list(text: str) -> bool:
    """Return whether a text is a list of quoted texts or of numbers, which is hardly the name of a class."""
    return re.match("\\s*[\\[({]\\s*['\"\\d]", text) is not None and items_of_text(text) is not None


def distinct(texts: Sequence[str]) -> list[str]:
    """Return texts for a message, with escapes if they differ only in their Unicode form, which nobody can see."""
    same = len({unicodedata.normalize("NFC", text) for text in texts}) < len(texts)
    return [ascii(text[:40]) if same else shown(text) for text in texts]


def look_alike_key(text: str) -> str:
    """Return a text without differences of case, spaces, invisible characters and Unicode form."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join("".join(character for character in folded if unicodedata.category(character) != "Cf").split())


class VectorCheck:
    """Tells multi-hot vectors, which hold 0 or 1 for each label, from lists of labels."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._checked: set[tuple[Any, ...]] = set()
        self._first: dict[int, str] = {}  # by length, the first list that holds only 0 and 1
        self._other = ""  # the first list that holds anything else
        self._repeats = False  # whether a list holds 0 or 1 more than once

    def add(self, items: list[Any], batch: Batch, row: int) -> None:
        """Note the list of a row."""
        key = tuple(items)
        if key in self._checked:
            return
        if len(self._checked) < _MOST_VALUES:
            self._checked.add(key)
        bits = [bit(item) for item in items]
        known = self._other if None in bits else self._first.get(len(bits))
        if not known:
            example = f"{batch.where(row)}: {self._column} is {shown(items)}"
            if None in bits:
                self._other = example
            else:
                self._first[len(bits)] = example
        if None not in bits:
            self._repeats = self._repeats or len(set(bits)) < len(bits)

    def length(self) -> int | None:
        """Return the length of the vectors, or None if there are lists of labels. Raises UserError if there are both.

        A list of labels has no label twice, so that a list of three or more, each 0 or 1, is a vector.
        """
        vectors = any(length > 2 for length in self._first)
        if not vectors and not self._other:
            vectors = self._repeats or set(self._first) == {2}
        if not vectors:
            return None
        length, *others = sorted(self._first, reverse=True)
        odd = self._other or (self._first[others[0]] if others else "")
        if odd:
            raise UserError(
                f"{odd}, but {self._first[length]}, which holds 0 or 1 for each of {length} labels; write all labels "
                "in the same way"
            )
        return length

    @property
    def example(self) -> str:
        return next(iter(self._first.values()))
