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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
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
_MAX_TARGET = 1e15  # The sum of the squares of millions of such numbers is finite in fp32.
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
    labels = {split: _read_column(table, columns, params.label_separator) for split, table in tables.items()}
    train = [label for label in labels[TRAIN] if label is not None]
    schema = [_label(name) for name in tables[TRAIN].classes.get(columns[0], [])]
    if "test" in labels and _are_unknown(labels["test"], [*train, *id2label]):
        log.info("test has no labels: each one is empty or -1")
        del labels["test"]
    problem_type = params.problem_type or _infer(train, columns, named=bool(id2label or schema))
    if problem_type == "regression":
        if id2label:
            raise UserError("data.id2label names classes, but the problem is a regression. Set one of them to null.")
        return Labels(problem_type, [], {split: _encode(column, _target) for split, column in labels.items()})
    several = problem_type == "multi_label_classification"
    # The labels that the numbers in a list of 0 and 1 stand for. Empty if the labels have another form.
    vector_labels = columns if len(columns) > 1 else []
    if several and not vector_labels:
        vector_labels = [str(position) for position in range(_vector_length(train))]
    if vector_labels:
        labels = {split: _encode(column, partial(_ones, names=vector_labels)) for split, column in labels.items()}
    names = _names(labels[TRAIN].dropna(), schema, columns[0], vector_labels, id2label)
    numbers = {label: number for number, label in enumerate(names)}
    encode = partial(_class_number, numbers=numbers, several=several)
    encoded = {split: _encode(column, encode) for split, column in labels.items()}
    if several and (empty := sum(label == [] for label in labels[TRAIN])):
        log.info("%s of %s rows of train have none of the labels", f"{empty:,}", f"{len(labels[TRAIN]):,}")
    return Labels(problem_type, list(names.values()), encoded)


def _read_column(table: Table, columns: Sequence[str], separator: str | None) -> pd.Series:
    """Return the label of each row: a text, a list of texts, or None if it is missing."""
    index = table.rows.index
    if columns[0] not in table.rows:  # Only test may lack labels.
        return pd.Series([None] * len(index), index, dtype=object)
    if len(columns) == 1:
        cells = table.rows[columns[0]]
        if separator is not None:
            cells = [[item for item in text.split(separator) if item.strip()] for text in table.texts(columns[0])]
        return pd.Series([_label(cell) for cell in cells], index, dtype=object)
    rows = [[_label(cell) for cell in row] for row in zip(*(table.rows[name] for name in columns), strict=True)]
    return pd.Series([None if None in row else row for row in rows], index, dtype=object)


def _label(value: Any) -> Any:
    """Return a label as text, a list of labels, or None if it is missing."""
    if not isinstance(value, list):
        return _spelling(value)
    labels = [label for label in map(_spelling, value) if label is not None]
    return labels if labels or not value else None  # `datasets` writes a list of -1 if the classes are unknown.


def _spelling(value: Any) -> str | None:
    """Return a label as text, with the same spelling for 1 and 1.0, or None if it is missing."""
    text = f"{value:f}" if isinstance(value, Decimal) else "" if value is None else str(value).strip()
    whole = _WHOLE_FLOAT.fullmatch(text)  # pandas writes 1 as 1.0 if another value is missing.
    return (whole[1] if whole else text) or None


def _are_unknown(test: pd.Series, known: Iterable[Any]) -> bool:
    """Return whether each label of test is missing, -1, or a list with nothing else, and -1 is not a known label."""
    unknown = all(label in (None, "-1") or (isinstance(label, list) and {*label} <= {"-1"}) for label in test)
    return unknown and "-1" not in known


def _infer(train: Sequence[Any], columns: Sequence[str], named: bool) -> ProblemType:
    name = ", ".join(f'"{column}"' for column in columns)
    problem_type: ProblemType = "single_label_classification"
    if any(isinstance(label, list) for label in train):
        problem_type, reason = "multi_label_classification", "several labels per row"
    else:
        distinct = dict.fromkeys(train)
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


def _names(
    train: Sequence[Any], schema: Sequence[str], column: str, vector_labels: Sequence[str], id2label: dict[str, str]
) -> dict[str, str]:
    """Return the name of each class or label, in the order of the model's outputs."""
    if vector_labels and id2label and id2label.keys() != {*vector_labels}:
        raise UserError(f"data.id2label must name the labels {listing(vector_labels)}, got {listing(id2label)}.")
    if vector_labels or id2label:
        return id2label or dict(zip(vector_labels, vector_labels, strict=True))
    counts = Counter(item for label in train for item in (label if isinstance(label, list) else [label]))
    key = f'data.label_column_name: "{column}"'
    if len(counts) < (1 if any(isinstance(label, list) for label in train) else 2):
        raise UserError(f"{key} is always {literal(next(iter(counts), ''))} in train. Name another column.")
    if len(counts) > _MAX_CLASSES or (len(counts) > _MAX_INTEGERS and len(train) < 2 * len(counts)):
        raise UserError(
            f"{key} has {len(counts):,} different labels in {len(train):,} rows ({listing(counts, 3)}), which are "
            "too many for classes. Name the column that has the labels, or set data.problem_type to regression."
        )
    if schema:
        return {label: label for label in schema if label in counts}
    are_numbers = all(map(_NUMBER.fullmatch, counts))
    return {label: label for label in sorted(sorted(counts), key=float if are_numbers else str)}  # 1.1 before 1.10


def _id2label(params: DataParams) -> dict[str, str]:
    """Return data.id2label as a dictionary. A list names the label columns, or the labels 0, 1 and so on."""
    names = params.id2label or {}
    if isinstance(names, list):
        columns = label_columns(params)
        return dict(zip(columns if len(columns) > 1 else map(str, range(len(names))), names, strict=True))
    id2label = {_label(label): name for label, name in names.items()}
    if len(id2label) < len(names):
        raise UserError(
            f"data.id2label must not name a label twice, such as 1 and 1.0, got {listing(map(literal, names))}."
        )
    return id2label


def _vector_length(train: Iterable[Any]) -> int:
    """Return the length of lists that have the same length, at least 2, and only contain 0 and 1, or else 0."""
    lists = [label for label in train if isinstance(label, list)]
    length = len(lists[0]) if lists else 0
    are_vectors = all(len(label) == length and all(item.lower() in _BITS for item in label) for label in lists)
    return length if are_vectors and length > 1 else 0


def _encode(labels: pd.Series, encode: Callable[[Any], Any]) -> pd.Series:
    """Encode each label that is not missing. A ValueError becomes a UserError with the place of the label."""
    encoded = []
    for place, label in labels.items():
        try:
            encoded.append(None if label is None else encode(label))
        except ValueError as error:
            raise UserError(f"{place}: the label is {literal(label)}. {error}") from None
    return pd.Series(encoded, labels.index, dtype=object)


def _target(label: Any) -> float:
    if not isinstance(label, str) or not _NUMBER.fullmatch(label) or abs(float(label)) > _MAX_TARGET:
        raise ValueError(
            f"The labels of a regression must be numbers from -{_MAX_TARGET:g} to {_MAX_TARGET:g}. Correct it, or set "
            "data.problem_type=single_label_classification."
        )
    return float(label)


def _ones(label: Any, names: Sequence[str]) -> Any:
    """Return the names of the positions at which a list has 1 and not 0. A label that is not a list stays."""
    if not isinstance(label, list):
        return label
    bits = [_BITS.get(item.lower()) for item in label]
    if None in bits or len(bits) != len(names):
        raise ValueError(f"It must have 0 or 1 for each of {listing(names)}. Correct it.")
    return [name for name, bit in zip(names, bits, strict=True) if bit]


def _class_number(label: Any, numbers: Mapping[str, int], several: bool) -> Any:
    """Return the number of a class, or for a list of labels, 0 or 1 for each label."""
    if isinstance(label, list) != several:
        form = "a list of labels" if several else "a single label"
        raise ValueError(f"It must be {form}, as data.problem_type or the labels of train say. Correct it.")
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
