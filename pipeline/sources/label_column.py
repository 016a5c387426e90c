"""Read the label column of custom files: its distinct values, and the labels that each value contains."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN, ProblemType
from pipeline.core.text import listing, literal
from pipeline.params import DataParams
from pipeline.sources.label_values import (
    is_minus_one,
    is_object,
    is_sortable_number,
    is_unsupported_list,
    label_columns,
    label_texts,
    list_from_text,
    without_point_zero,
)
from pipeline.sources.raw_rows import RawRows
from pipeline.tabular.opening import LONE_SURROGATE

_LABEL_TYPES = (str, int, float, Decimal, type(None))


class LabelValue(NamedTuple):
    """A distinct value of the label column.

    Attributes:
        raw: The value as it is in the file.
        place: The file and the line of the first row that has the value.
        items: The items of a list, or of a text that lists labels. For any other value, only the value itself.
        labels: The items as texts, without the missing ones.
    """

    raw: Any
    place: str
    items: list[Any]
    labels: list[str]

    @property
    def is_list(self) -> bool:
        """Whether the value is a list, or a text that lists labels, even a single label as in "spam;"."""
        is_separated = isinstance(self.raw, str) and self.labels != label_texts([self.raw])
        return isinstance(self.raw, list) or len(self.labels) > 1 or is_separated


@dataclass(frozen=True)
class LabelColumn:
    """The label column of all splits, and what the user and the files say about it.

    Attributes:
        names: The name of the column, or the names of several columns, one for each label.
        problem_type: data.problem_type. For several columns, it is always multi-label classification.
        id2label: data.id2label as a dictionary whose keys are the labels in the files.
        schema_names: The class names in the schemas of Parquet files.
        values: The distinct values. The values of train come first. Those that mean "not known" are missing values.
        positions: For each split, the position of each row's value in `values`. The index has the file and the line.
        train_labels: The distinct labels of train.
    """

    names: list[str]
    problem_type: ProblemType | None
    id2label: dict[str, str] | None
    schema_names: list[str]
    values: list[LabelValue]
    positions: dict[str, pd.Series]
    train_labels: list[str]

    @property
    def name(self) -> str:
        """The name of the column, or of each column, in quotes for messages."""
        return _quoted(self.names)

    @cached_property
    def first_list(self) -> LabelValue | None:
        """The first value that is a list, if any."""
        return next((value for value in self.values if value.is_list), None)

    @property
    def is_multi_label(self) -> bool:
        """Whether a row may have several labels."""
        return self.first_list is not None or self.problem_type == "multi_label_classification"

    @cached_property
    def first_places(self) -> dict[str, str]:
        """The file and the line on which each label occurs first."""
        first_places: dict[str, str] = {}
        for value in self.values:
            for label in value.labels:
                first_places.setdefault(label, value.place)
        return first_places

    @cached_property
    def labeled_counts(self) -> dict[str, int]:
        """The number of rows with a label or a list of labels, even an empty list, by split."""
        has_label = np.array([bool(value.labels) or value.is_list for value in self.values])
        return {split: int(np.count_nonzero(has_label[rows])) for split, rows in self.positions.items()}

    @property
    def list_rows(self) -> int:
        """The number of rows with a list of labels."""
        return self._count_rows([value.is_list for value in self.values])

    def count_rows(self, labels: Collection[str]) -> int:
        """Return the number of rows that have any of the labels."""
        wanted = set(labels)
        return self._count_rows([not wanted.isdisjoint(value.labels) for value in self.values])

    def describe_occurrences(self, labels: Sequence[str]) -> str:
        """Format the number and the percentage of the labeled rows with any of the labels, and the first place."""
        count, total = self.count_rows(labels), sum(self.labeled_counts.values())
        return f"{count:,} of {total:,} rows ({count / total:.1%}), first in {self.first_places[labels[0]]}"

    def _count_rows(self, flags: list[bool]) -> int:
        """Return the number of rows whose value is flagged."""
        flagged = np.array(flags)
        return sum(int(np.count_nonzero(flagged[rows])) for rows in self.positions.values())

    def describe(self, label: str) -> str:
        return f"{self.first_places[label]}: {self.name} is {literal(label)}"


def read_column(rows: Mapping[str, RawRows], params: DataParams) -> LabelColumn:
    """Read the labels in each distinct value once. There are few distinct values, unless the task is a regression.

    Args:
        rows: The rows of each split that the source has, train first.

    Raises:
        UserError: A value cannot be a label, or train has only one class or no labels.
    """
    names = label_columns(params)
    problem_type: ProblemType | None = "multi_label_classification" if len(names) > 1 else params.problem_type
    id2label = _id2label(params)

    column = pd.concat({split: part.labels for split, part in rows.items()})
    # Number the distinct values in the order of their first rows. Train comes first, so its values have the smallest
    # numbers. `repr` keeps 1, 1.0 and "1" apart.
    codes, _ = pd.factorize(column.map(repr))
    positions = pd.Series(codes, column.index)
    first_occurrences = column[~positions.duplicated()].droplevel(0)
    train_count = positions.loc[TRAIN].max() + 1

    # A class name in a schema is always a single label, even if it contains separators.
    may_list_labels = problem_type in (None, "multi_label_classification") and not rows[TRAIN].class_names
    separator = "[|;,]" if problem_type == "multi_label_classification" else "[|;]"
    values = []
    for place, value in first_occurrences.items():
        if isinstance(value, list) and value and all(item is None for item in value):
            value = None  # In a list of classes, `datasets` writes -1 for a label that is not known.
        if problem_type == "single_label_classification":
            labels = list_from_text(value) if isinstance(value, str) else value
            if isinstance(labels, list) and len(labels) <= 1:
                # Annotation tools such as Doccano write a list even if each text has one label.
                value = labels[0] if labels else None
        items = value if isinstance(value, list) else [value]
        if may_list_labels and isinstance(value, str):
            items = _split_text(value, separator, place, _quoted(names))
        values.append(LabelValue(value, place, items, label_texts(items)))

    train_labels = list(dict.fromkeys(label for value in values[:train_count] for label in value.labels))
    if not any(is_sortable_number(label) and float(label) < 0 for label in [*train_labels, *(id2label or ())]):
        values = _without_minus_ones(_quoted(names), values)
    label_column = LabelColumn(
        names=names,
        problem_type=problem_type,
        id2label=id2label,
        schema_names=list(dict.fromkeys(label_texts(name for part in rows.values() for name in part.class_names))),
        values=values,
        positions={split: positions.loc[split] for split in rows},
        train_labels=train_labels,
    )
    _check_values(label_column)
    if may_list_labels:
        _require_same_form(label_column)
    if len(train_labels) < (1 if label_column.is_multi_label else 2):
        value = literal(train_labels[0]) if train_labels else "empty"
        raise UserError(
            f"data.label_column_name: {label_column.name} is always {value} in train. Set it to a different column."
        )
    return label_column


def _without_minus_ones(name: str, values: list[LabelValue]) -> list[LabelValue]:
    """Replace -1, or a vector of -1, with a missing label, and log where it occurs."""
    first = next((value for value in values if is_minus_one(value.items)), None)
    if first is None:
        return values
    log.info(
        "%s: %s is %s, and train has no negative label, so such labels are missing labels. If -1 is a class, list all "
        "labels in data.id2label.",
        first.place, name, literal(first.raw),
    )  # fmt: skip
    missing = LabelValue(None, first.place, [None], [])
    return [missing if is_minus_one(value.items) else value for value in values]


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _id2label(params: DataParams) -> dict[str, str] | None:
    """Return data.id2label as a dictionary. A list names the label columns, or the labels 0, 1 and so on.

    Raises:
        UserError: A label occurs twice, such as 1 and 1.0.
    """
    if params.id2label is None:
        return None
    columns = label_columns(params)
    if len(columns) > 1:
        names = params.id2label
        return names if isinstance(names, dict) else dict(zip(columns, names, strict=True))
    if isinstance(params.id2label, list):
        return {str(number): name for number, name in enumerate(params.id2label)}
    id2label = {without_point_zero(label): name for label, name in params.id2label.items()}
    if len(id2label) < len(params.id2label):
        raise UserError(
            "params.yaml: data.id2label has a label twice, because 1 and 1.0 are the same label, got "
            f"{listing(params.id2label)}. Keep only one of the two."
        )
    return id2label


def _split_text(text: str, separator: str, place: str, name: str) -> list[Any]:
    """Return the items of a text that may list labels."""
    items = list_from_text(text)
    if items is not None:
        return items
    if is_unsupported_list(text):
        form = "looks like a list, but is neither a JSON nor a Python list"
        hint = ""
        if is_object(text):
            form = "is a JSON object"
            hint = " If it describes the column, as in exports from Qualtrics, remove the row."
        raise UserError(
            f"{place}: {name} is {literal(text)}, which {form}. Write a JSON list, such as "
            f'["a", "b"] or [0, 1, 0]. If it is a class, set data.problem_type=single_label_classification.{hint}'
        )
    return list(re.split(separator, text))


def _require_same_form(column: LabelColumn) -> None:
    """Raise UserError if some labels are lists that were saved as text, and others are plain text."""
    texts = [value for value in column.values if isinstance(value.raw, str) and value.labels]
    are_lists = [list_from_text(value.raw) is not None for value in texts]
    if any(are_lists) and not all(are_lists):
        plain_label = texts[are_lists.index(False)]
        list_label = texts[are_lists.index(True)]
        raise UserError(
            f"{plain_label.place}: {column.name} is {literal(plain_label.raw)}, but in {list_label.place} it is "
            f"the list {literal(list_label.raw)}. Write all labels in the same way. If they are classes, set "
            "data.problem_type=single_label_classification."
        )


def _check_values(column: LabelColumn) -> None:
    """Raise UserError if a value cannot be a label or a list of labels."""
    may_list_labels = column.problem_type in (None, "multi_label_classification")
    for value in column.values:
        if not all(isinstance(item, _LABEL_TYPES) for item in (value.items if may_list_labels else [value.raw])):
            remedy = "Lists of labels are only allowed if data.problem_type is null or multi_label_classification."
            if any(isinstance(item, dict) for item in value.items):
                remedy = "Export the data in a flat format such as CSV, with only the label in this column."
            raise UserError(
                f"{value.place}: {column.name} is {literal(value.raw)}. A label must be a string or a number. {remedy}"
            )
        numbers = [item for item in value.items if isinstance(item, (float, Decimal)) and item == item]  # without NaN
        if value.is_list and any(number % 1 for number in numbers):
            raise UserError(
                f"{value.place}: {column.name} is {literal(value.raw)}. A list must contain labels, or 0 or 1 for "
                "each label."
            )
    for label in column.first_places:
        if LONE_SURROGATE.search(label):
            raise UserError(f"{column.describe(label)}, which is not valid Unicode. Correct it.")
        if len(label) > 1 and label[0] == label[-1] == '"':
            raise UserError(
                f"{column.describe(label)}, which is in quotes. Remove the quotes. In a CSV, also remove the space "
                "before the first quote."
            )
