"""Read the labels of custom files and Hub datasets. A cell has one label, or several in one of these forms:

1. A list, in JSON, Parquet or a Hub dataset.
2. A text with `data.label_separator` between the labels.
3. A list of 0 and 1, with one number for each label. All lists have the same length.
4. Several columns that contain 0 or 1, one column for each label.

The labels of train decide what the task is. A label that train does not have is an error, unless `data.id2label` lists
it.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any

import pandas as pd

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN, ProblemType
from pipeline.core.text import listing, literal
from pipeline.params import DataParams
from pipeline.sources.tables import LONE_SURROGATE, Table

# The metrics of each problem type. Verdicts are based on the first one.
DEFAULT_METRICS = {
    "binary": ["accuracy", "f1", "matthews_correlation"],
    "single_label_classification": ["accuracy", "f1_macro", "matthews_correlation"],
    "multi_label_classification": ["f1_micro", "f1_macro", "accuracy"],
    "regression": ["pearson", "spearmanr", "rmse"],
}
_MAX_INTEGERS = 20
_MAX_CLASSES = 1000
MAX_TARGET = 1e15  # The sum of the squares of millions of such numbers is finite in fp32.
_NUMBER = re.compile(r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)  # 007 is a name.
_WHOLE_FLOAT = re.compile(r"([+-]?(?:0|[1-9]\d*))\.0*")
_BITS = {"0": 0, "1": 1, "false": 0, "true": 1}


@dataclass(frozen=True)
class Labels:
    """The encoded labels.

    Attributes:
        names: The names of the classes or labels, in the order of the model's outputs; empty for a regression.
        splits: For each split with labels, the class, the list of 0 and 1, or the target of each row, or None.
    """

    problem_type: ProblemType
    names: list[str]
    splits: dict[str, pd.Series]

    @property
    def metrics(self) -> list[str]:
        binary = self.problem_type == "single_label_classification" and len(self.names) == 2
        return DEFAULT_METRICS["binary" if binary else self.problem_type]

    @property
    def similar(self) -> list[str]:
        """The names that differ from another name only in case or spaces."""
        by_spelling: dict[str, list[str]] = {}
        for name in self.names:
            by_spelling.setdefault("".join(name.split()).casefold(), []).append(name)
        return [name for names in by_spelling.values() if len(names) > 1 for name in names]


def label_columns(params: DataParams) -> list[str]:
    """Return the column with the labels, or several columns that contain 0 or 1, one for each label."""
    return [params.label_column_name] if isinstance(params.label_column_name, str) else params.label_column_name


def read_labels(tables: Mapping[str, Table], params: DataParams) -> Labels:
    """Infer the form of the labels from train, and encode them. If no row of test has a label, test is left out.

    Raises:
        UserError: A label has another form, is not a label of train, or does not fit data.id2label.
    """
    columns, id2label = label_columns(params), _id2label(params)
    cells = {split: _read_cells(table, columns, params.label_separator) for split, table in tables.items()}
    unknown = {"-1"} - {*chain.from_iterable(map(_items, cells[TRAIN])), *id2label}
    if "test" in cells and {*chain.from_iterable(map(_items, cells["test"]))} <= unknown:
        log.info("test has no labels: each one is empty or -1")
        del cells["test"]
    schema = _items(tables[TRAIN].classes.get(columns[0], []))
    problem_type = params.problem_type or _infer(cells[TRAIN], columns, named=bool(id2label or schema))
    several = problem_type == "multi_label_classification"
    labels = _encode(cells, partial(_label, several=several))
    if problem_type == "regression":
        if id2label:
            raise UserError("data.id2label names classes, but the problem is a regression. Set one of them to null.")
        return Labels(problem_type, [], _encode(labels, _target))
    # The labels that the numbers in a list of 0 and 1 stand for. Empty if the labels have another form.
    vector_labels = columns if len(columns) > 1 else []
    if several and not vector_labels:
        vector_labels = [str(position) for position in range(_vector_length(labels[TRAIN].dropna()))]
    if vector_labels:
        if id2label and id2label.keys() != {*vector_labels}:
            raise UserError(f"data.id2label must name the labels {listing(vector_labels)}, got {listing(id2label)}.")
        labels = _encode(labels, partial(_ones, names=vector_labels))
    train = labels[TRAIN].dropna()
    names = id2label or {name: name for name in vector_labels or _names(train, several, schema, columns[0])}
    numbers = {label: number for number, label in enumerate(names)}
    encoded = _encode(labels, partial(_class_number, numbers=numbers, several=several))
    if several and (empty := sum(label == [] for label in labels[TRAIN])):
        log.info("%s of %s rows of train have none of the labels", f"{empty:,}", f"{len(labels[TRAIN]):,}")
    return Labels(problem_type, list(names.values()), encoded)


def _read_cells(table: Table, columns: Sequence[str], separator: str | None) -> pd.Series:
    """Return the cell of each row. It is a list if there may be several labels."""
    index = table.rows.index
    if columns[0] not in table.rows:  # Only test may lack labels.
        return pd.Series("", index, dtype=object)
    if len(columns) > 1:
        rows = zip(*(table.rows[name] for name in columns), strict=True)
        return pd.Series([None if "" in map(_spelling, row) else list(row) for row in rows], index, dtype=object)
    if separator is None:
        return table.rows[columns[0]]
    return table.texts(columns[0]).map(lambda text: [item for item in text.split(separator) if item.strip()])


def _items(cell: Any) -> list[str]:
    """Return the labels in a cell as texts, without missing ones."""
    values = cell if isinstance(cell, list) else [cell]
    return [item for item in map(_spelling, values) if item]


def _spelling(value: Any) -> str:
    """Return a label as text, with the same spelling for 1 and 1.0. The text is empty if the label is missing."""
    text = f"{value:f}" if isinstance(value, Decimal) else "" if value is None else str(value).strip()
    whole = _WHOLE_FLOAT.fullmatch(text)  # pandas writes 1 as 1.0 if another value is missing.
    return whole[1] if whole else text


def _label(cell: Any, several: bool) -> str | list[str] | None:
    """Return the label in a cell, or the list of its labels if there are several. None means that it is missing."""
    items = _items(cell)
    if not items and cell != []:  # `datasets` writes a list of -1 if the classes are unknown.
        return None
    if isinstance(cell, list) != several:
        form = "a list of labels" if several else "a single label"
        raise ValueError(f"It must be {form}, as data.problem_type or the labels of train say. Correct it.")
    return items if several else items[0]


def _infer(train: pd.Series, columns: Sequence[str], named: bool) -> ProblemType:
    name = ", ".join(f'"{column}"' for column in columns)
    problem_type: ProblemType = "single_label_classification"
    if any(isinstance(cell, list) for cell in train):
        problem_type, reason = "multi_label_classification", "several labels per row"
    else:
        distinct = dict.fromkeys(chain.from_iterable(map(_items, train)))
        values = f"{len(distinct):,} distinct values ({listing(map(literal, distinct), 3)})"
        reason = values
        if not named and all(map(_NUMBER.fullmatch, distinct)):
            if not all(float(label).is_integer() for label in distinct):
                problem_type, reason = "regression", "numbers that are not whole"
            elif len(distinct) > _MAX_INTEGERS:
                raise UserError(
                    f"data.label_column_name: {name} has {values}. Set data.problem_type (in init, --problem-type) to "
                    "regression, or to single_label_classification if each number is a class."
                )
    log.info("Inferred problem_type %s: %s has %s. Set data.problem_type to override.", problem_type, name, reason)
    return problem_type


def _names(train: pd.Series, several: bool, schema: Sequence[str], column: str) -> list[str]:
    """Return the classes or labels of train, in the order of the model's outputs."""
    counts = Counter(chain.from_iterable(train) if several else train)
    key = f'data.label_column_name: "{column}"'
    if len(counts) < (1 if several else 2):
        raise UserError(f"{key} is always {literal(next(iter(counts), ''))} in train. Name another column.")
    if len(counts) > _MAX_CLASSES or (len(counts) > _MAX_INTEGERS and len(train) < 2 * len(counts)):
        raise UserError(
            f"{key} has {len(counts):,} different labels in {len(train):,} rows ({listing(counts, 3)}), which are "
            "too many for classes. Name the column that has the labels, or set data.problem_type to regression."
        )
    if schema:
        return [label for label in schema if label in counts]
    are_numbers = all(map(_NUMBER.fullmatch, counts))
    return sorted(sorted(counts), key=float if are_numbers else str)  # 1.1 before 1.10


def _id2label(params: DataParams) -> dict[str, str]:
    """Return data.id2label, with each label spelled as in the data. It is empty if there are no names."""
    names = params.id2label or {}
    id2label = {_spelling(label): name for label, name in names.items()}
    if len(id2label) < len(names):
        raise UserError(
            f"data.id2label must not name a label twice, such as 1 and 1.0, got {listing(map(literal, names))}."
        )
    return id2label


def _vector_length(lists: pd.Series) -> int:
    """Return the length of lists that have the same length, at least 2, and only contain 0 and 1, or else 0."""
    length = len(lists.iloc[0]) if len(lists) else 0
    are_vectors = all(len(label) == length and all(item.lower() in _BITS for item in label) for label in lists)
    return length if are_vectors and length > 1 else 0


def _encode(splits: Mapping[str, pd.Series], encode: Callable[[Any], Any]) -> dict[str, pd.Series]:
    """Encode each label of each split that is not missing."""
    return {split: _encode_column(labels, encode) for split, labels in splits.items()}


def _encode_column(labels: pd.Series, encode: Callable[[Any], Any]) -> pd.Series:
    """Encode each label that is not missing. A ValueError becomes a UserError with the place of the label."""
    encoded = []
    for place, label in labels.items():
        try:
            encoded.append(None if label is None else encode(label))
        except ValueError as error:
            raise UserError(f"{place}: the label is {literal(label)}. {error}") from None
    return pd.Series(encoded, labels.index, dtype=object)


def _target(label: str) -> float:
    if not _NUMBER.fullmatch(label) or abs(float(label)) > MAX_TARGET:
        raise ValueError(
            f"The labels of a regression must be numbers from -{MAX_TARGET:g} to {MAX_TARGET:g}. Correct it, or set "
            "data.problem_type=single_label_classification."
        )
    return float(label)


def _ones(label: list[str], names: Sequence[str]) -> list[str]:
    """Return the names of the positions at which a list has 1 and not 0."""
    bits = [_BITS.get(item.lower()) for item in label]
    if None in bits or len(bits) != len(names):
        raise ValueError(f"It must have 0 or 1 for each of {listing(names)}. Correct it.")
    return [name for name, bit in zip(names, bits, strict=True) if bit]


def _class_number(label: Any, numbers: Mapping[str, int], several: bool) -> Any:
    """Return the number of a class, or for a list of labels, 0 or 1 for each label."""
    items = label if several else [label]
    if any(map(LONE_SURROGATE.search, items)):
        raise ValueError("It has half of a surrogate pair, which is not text. Correct it.")
    if unknown := next((item for item in items if item not in numbers), None):
        raise ValueError(
            f"{literal(unknown)} is not a label of train or data.id2label ({listing(numbers)}). Correct it, or list "
            "all labels in data.id2label."
        )
    if len(set(items)) < len(items):
        raise ValueError("A label must not be in the list twice. Lists of 0 and 1 must have the same length.")
    return [int(name in items) for name in numbers] if several else numbers[label]
