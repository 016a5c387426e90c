"""Infer what the labels of custom files are (classes, several labels per row, or numbers), and encode them.

`label_values` reads a single cell, `label_column` the whole column, and `label_classes` finds the classes in it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN, ProblemType
from pipeline.core.text import listing, literal
from pipeline.params import DataParams
from pipeline.sources.label_classes import MAX_INTEGERS, encode_vectors, find_classes, vector_length
from pipeline.sources.label_column import LabelColumn, LabelValue, read_column
from pipeline.sources.label_values import is_code, is_integer, is_number, is_sortable_number, label_text
from pipeline.sources.raw_rows import RawRows
from pipeline.tabular.reading import is_missing

# The metrics of each problem type. Verdicts are based on the first one.
DEFAULT_METRICS = {
    "binary": ["accuracy", "f1", "matthews_correlation"],
    "single_label_classification": ["accuracy", "f1_macro", "matthews_correlation"],
    "multi_label_classification": ["f1_micro", "f1_macro", "accuracy"],
    "regression": ["pearson", "spearmanr", "rmse"],
}
_MIN_LIST_PROPORTION = 0.05  # the proportion of the rows below which lists of labels may be a mistake
_MAX_TARGET = 1e15  # The sum of the squares of millions of such numbers is finite in fp32.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
# Numbers as people write them, such as 0,5 or 1.234,5 or 1,234 or 85%, and plain numbers.
_WRITTEN_NUMBER = re.compile(r"[+\-\u2212]?\d+(?:[.,'\u2019\s]\d{3})*(?:[.,]\d+)?(?:e[+-]?\d+)?\s*%?", re.IGNORECASE)


@dataclass(frozen=True)
class Labels:
    """The encoded labels of all splits.

    Attributes:
        names: The names of the classes or labels, in the order of the model's outputs; empty for a regression.
        splits: For each split with labels, the class, the list of 0 and 1, or the target of each row. It is None if the
            row has no label.
        warnings: What the user should know about the labels.
    """

    problem_type: ProblemType
    names: list[str]
    splits: dict[str, pd.Series]
    warnings: list[str]

    @property
    def metrics(self) -> list[str]:
        binary = self.problem_type == "single_label_classification" and len(self.names) == 2
        return DEFAULT_METRICS["binary" if binary else self.problem_type]


def read_labels(rows: Mapping[str, RawRows], params: DataParams) -> Labels:
    """Infer the problem type and the classes, and encode the labels. If no row of test has a label, test is left out.

    Args:
        rows: The rows of each split that the source has, train first.

    Raises:
        UserError: A value cannot be a label, or the labels do not fit data.problem_type or data.id2label.
    """
    column = read_column(rows, params)
    problem_type = column.problem_type or _infer_problem_type(column)
    warnings: list[str] = []
    names: list[str] = []
    encoded: list[Any]  # the class, the list of 0 and 1, or the target of each value
    if problem_type == "regression":
        encoded = _read_targets(column)
        warnings = _thousands_warnings(column)
    elif problem_type == "multi_label_classification" and (length := vector_length(column)):
        names, encoded = encode_vectors(column, length)
    else:
        names, numbers, warnings = find_classes(column)
        if problem_type == "single_label_classification":
            encoded = [numbers.get(value.labels[0]) if value.labels else None for value in column.values]
        else:
            encoded = [_multi_hot(value, numbers, len(names)) for value in column.values]
            _log_rows_without_labels(column, encoded)
    by_value = pd.Series(encoded, dtype=object)
    splits = {
        split: by_value.iloc[positions.to_numpy()]
        for split, positions in column.positions.items()
        if split != "test" or column.labeled_counts[split]
    }
    return Labels(problem_type, names, splits, [*_class_number_warnings(rows, column), *warnings])


def _class_number_warnings(rows: Mapping[str, RawRows], column: LabelColumn) -> list[str]:
    """Return a warning for each split without a schema whose labels may be names or class numbers.

    If the schema of train has the names 1 to 5, the label 1 may be the name 1, or the class number of the name 2.
    """
    names = rows[TRAIN].class_names
    class_numbers = {str(number) for number in range(len(names))}
    if column.id2label or set(names) == class_numbers or not all(map(is_integer, names)):
        return []
    warnings = []
    for split, part in rows.items():
        labels = part.labels.map(label_text).dropna()
        if len(labels) and not part.class_names and class_numbers.issuperset(labels):
            warnings.append(
                f"{labels.index[0]}: {column.name} is {literal(labels.iloc[0])}, which is read as a class name, "
                f"because the schema of train has the names {listing(names)}. If the labels of {split} are class "
                "numbers, which start at 0, write the names instead."
            )
    return warnings


def _infer_problem_type(column: LabelColumn) -> ProblemType:
    labels = column.train_labels
    has_names = bool(column.id2label or column.schema_names)
    if not column.first_list and not has_names:
        _check_written_numbers(column)
    are_numbers = all(is_sortable_number(label) and not is_code(label) for label in labels)
    are_integers = all(map(is_integer, labels))
    problem_type: ProblemType = "single_label_classification"
    if column.first_list:
        problem_type = "multi_label_classification"
        reason = f"lists of labels, such as {literal(column.first_list.raw)} in {column.first_list.place}"
        _warn_if_few_lists(column)
        distinct_lists = len({frozenset(value.labels) for value in column.values if value.labels})
        if distinct_lists <= len(labels) and not vector_length(column):
            log.warning(
                "%s has %d labels, but only %d distinct lists of labels. If each text has exactly one label, such as "
                '"Books|Fiction", set data.problem_type=single_label_classification (in init, '
                "--problem-type single_label_classification).",
                column.name, len(labels), distinct_lists,
            )  # fmt: skip
    elif column.id2label:
        reason = "the classes in data.id2label"
    elif column.schema_names:
        reason = f"class names in the schema of the data ({listing(column.schema_names)})"
    elif are_numbers and not are_integers:
        fractions = [label for label in labels if not is_integer(label)]
        problem_type = "regression"
        reason = f"numbers that are not whole in {column.describe_occurrences(fractions)}"
    elif are_numbers and len(labels) > MAX_INTEGERS:
        problem_type, reason = "regression", f"more than {MAX_INTEGERS} distinct whole numbers"
    else:
        form = "whole numbers" if are_numbers else "values"
        reason = f"{len(labels):,} distinct {form} ({listing(labels, 3)})"
    log.info(
        "Inferred problem_type %s: column %s has %s. Set data.problem_type to override.",
        problem_type, column.name, reason,
    )  # fmt: skip
    return problem_type


def _warn_if_few_lists(column: LabelColumn) -> None:
    lists, rows = column.list_rows, sum(column.labeled_counts.values())
    if lists < _MIN_LIST_PROPORTION * rows:
        log.warning(
            "%s has a list of labels in only %s of %s rows (%.1f%%). If these are single labels that contain a "
            "separator, set data.problem_type to single_label_classification.",
            column.name, f"{lists:,}", f"{rows:,}", 100 * lists / rows,
        )  # fmt: skip


def _check_written_numbers(column: LabelColumn) -> None:
    """Raise UserError if most labels are numbers, but some have a decimal comma, a separator or a percent sign."""
    written = [label for label in column.train_labels if _WRITTEN_NUMBER.fullmatch(label)]
    invalid_label = next((label for label in written if not is_number(label)), None)
    if invalid_label and 2 * len(written) > len(column.train_labels):
        raise _written_number(column, invalid_label)


def _written_number(column: LabelColumn, label: str) -> UserError:
    form = "percentages as plain numbers (85 or 0.85)" if label.endswith("%") else "numbers with a decimal point (0.5)"
    commas = " If commas separate labels, set data.problem_type=multi_label_classification." if "," in label else ""
    return UserError(
        f"{column.describe(label)}, which is not a plain number. Write {form} and without other separators. If it is a "
        f"class, list all labels in data.id2label.{commas}"
    )


def _read_targets(column: LabelColumn) -> list[float | None]:
    """Return the target of each value. Raises UserError if a label cannot be the target of a regression."""
    if column.id2label:
        raise UserError(
            f"data.id2label names classes, but {column.name} has numbers for a regression. Set data.id2label to null."
        )
    for label in column.first_places:
        if not is_number(label) and _WRITTEN_NUMBER.fullmatch(label):
            raise _written_number(column, label)
        if not is_number(label) or not math.isfinite(float(label)) or abs(float(label)) > _MAX_TARGET:
            raise UserError(
                f"{column.describe(label)}, but a label of a regression must be a finite number from "
                f"-{_MAX_TARGET:g} to {_MAX_TARGET:g}. Correct it, scale the column down, or remove the row. "
                "If the labels are classes, set data.problem_type=single_label_classification."
            )
    return [float(value.labels[0]) if value.labels else None for value in column.values]


def _thousands_warnings(column: LabelColumn) -> list[str]:
    """Return a warning if the points in the numbers may separate thousands, as in 950, 1.250 and 12.400."""
    values = [value for value in column.values if value.labels]
    decimals = [value for value in values if "." in str(value.raw)]
    if not decimals or len(decimals) == len(values):
        return []
    if not all(_THOUSANDS.fullmatch(str(value.raw).strip()) for value in decimals):
        return []
    first = decimals[0]
    text = str(first.raw).strip()
    return [
        f"{first.place}: {column.name} is {literal(text)}, which is read as {float(text):g}. If the point separates "
        f"thousands, write {text.replace('.', '')}."
    ]


def _log_rows_without_labels(column: LabelColumn, encoded: list[list[int] | None]) -> None:
    """Log how many rows have an empty list or field, because the labels of these rows may also be unknown."""
    is_empty = np.array([vector is not None and not any(vector) for vector in encoded])
    splits = [rows for split, rows in column.positions.items() if split != "test" or column.labeled_counts[split]]
    empty_rows = sum(int(np.count_nonzero(is_empty[part])) for part in splits)
    total = sum(map(len, splits))
    if empty_rows:
        log.info(
            "Column %s is empty in %s of %s rows (%.1f%%), which means that they have none of the labels. If their "
            "labels are unknown, remove these rows.",
            column.name, f"{empty_rows:,}", f"{total:,}", 100 * empty_rows / total,
        )  # fmt: skip


def _multi_hot(value: LabelValue, numbers: dict[str, int], size: int) -> list[int] | None:
    """Return 0 or 1 for each class, or None if the label is missing."""
    if is_missing(value.raw):
        return None
    present = {numbers.get(label) for label in value.labels}
    return [int(number in present) for number in range(size)]
