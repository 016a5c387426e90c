"""Infer what the labels of custom files are (classes, several labels per row, or numbers), and encode them."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pandas as pd

from pipeline.core.messages import UserError, log
from pipeline.core.task import ProblemType
from pipeline.core.text import listing, literal
from pipeline.params import DataParams
from pipeline.sources.label_checks import (
    MOST_CLASSES,
    MOST_INTEGERS,
    check_class_count,
    check_minus_one,
    check_targets,
    check_values,
    check_variety,
    check_written_numbers,
    look_alike_warnings,
    too_many,
)
from pipeline.sources.label_column import LabelColumn, LabelValue, read_column
from pipeline.sources.label_values import as_bit, has_value, is_code, is_integer, is_number
from pipeline.tabular.reading import is_missing

# The metrics of each problem type. Verdicts are based on the first one.
DEFAULT_METRICS = {
    "binary": ["accuracy", "f1", "matthews_correlation"],
    "single_label_classification": ["accuracy", "f1_macro", "matthews_correlation"],
    "multi_label_classification": ["f1_micro", "f1_macro", "accuracy"],
    "regression": ["pearson", "spearmanr", "rmse"],
}


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


def read_labels(splits: Mapping[str, pd.Series], class_names: Mapping[str, list[str]], params: DataParams) -> Labels:
    """Infer the problem type and the classes, and encode the labels. If no row of test has a label, test is left out.

    Args:
        splits: The label column of each split as it is in the files, train first. The index has the file and the line.
        class_names: For each split, the class names in the schemas of its Parquet files.

    Raises:
        UserError: A value cannot be a label, or the labels do not fit data.problem_type or data.id2label.
    """
    column = read_column(splits, class_names, params)
    check_values(column)
    check_variety(column)
    problem_type = column.problem_type or _infer_problem_type(column)
    warnings: list[str] = []
    names: list[str] = []
    encoded: list[Any]  # the class, the list of 0 and 1, or the target of each value
    if problem_type == "regression":
        check_targets(column)
        encoded = [float(value.labels[0]) if value.labels else None for value in column.values]
    elif problem_type == "multi_label_classification" and (length := _vector_length(column)):
        names, encoded = _encode_vectors(column, length)
    else:
        names, classes = _find_classes(column, warnings)
        warnings += look_alike_warnings(column, classes)
        if problem_type == "single_label_classification":
            encoded = [classes.get(value.labels[0]) if value.labels else None for value in column.values]
        else:
            encoded = [_multi_hot(value, classes, len(names)) for value in column.values]
    by_value = pd.Series(encoded, dtype=object)
    rows = {
        split: by_value.iloc[positions.to_numpy()]
        for split, positions in column.positions.items()
        if split != "test" or column.labeled_rows[split]
    }
    return Labels(problem_type, names, rows, warnings)


def _infer_problem_type(column: LabelColumn) -> ProblemType:
    labels = column.train_labels
    has_names = bool(column.id2label or column.schema_names)
    if not column.first_list and not has_names:
        check_written_numbers(column)
    are_numbers = all(is_number(label) and not is_code(label) for label in labels)
    are_integers = all(map(is_integer, labels))
    count = len({Decimal(label) for label in labels} if are_numbers and are_integers else labels)  # 1.0 counts as 1.
    problem_type: ProblemType = "single_label_classification"
    if column.first_list:
        problem_type = "multi_label_classification"
        why = f"lists of labels, such as {literal(column.first_list.raw)} in {column.first_list.where}"
    elif column.id2label:
        why = "the classes in data.id2label"
    elif column.schema_names:
        why = f"class names in the schema of the data ({listing(column.schema_names)})"
    elif are_numbers and not are_integers:
        problem_type, why = "regression", "numbers that are not all whole"
    elif are_numbers and count > MOST_INTEGERS:
        problem_type, why = "regression", f"more than {MOST_INTEGERS} distinct whole numbers"
    else:
        form = "whole numbers" if are_numbers else "values"
        why = f"{count:,} distinct {form} ({listing(labels, 3)})"
    log.info(
        "Inferred problem_type %s: column %s has %s. Set data.problem_type to override.",
        problem_type, column.name, why,
    )  # fmt: skip
    return problem_type


def _find_classes(column: LabelColumn, warnings: list[str]) -> tuple[list[str], dict[str, int]]:
    """Return the names of the classes in the order of the model's outputs, and the class of each label."""
    if column.id2label:
        classes = {label: number for number, label in enumerate(column.id2label)}
        if unlisted := next((label for label in column.first_rows if label not in classes), None):
            raise UserError(
                f"{column.describe(unlisted)}, but data.id2label only has the labels {listing(classes)}. Correct it, "
                "or add it to data.id2label."
            )
        return list(column.id2label.values()), classes
    if set(column.schema_names) >= column.first_rows.keys():
        names = [name for name in column.schema_names if name in column.first_rows]
        if unused := sorted({*column.schema_names} - {*names}):
            log.info("Column %s: no row has the classes %s of the schema", column.name, listing(unused))
        return names, {name: number for number, name in enumerate(names)}
    names, classes = _sort_labels(column)
    check_minus_one(column, classes, warnings)
    check_class_count(column, names)
    return names, classes


def _sort_labels(column: LabelColumn) -> tuple[list[str], dict[str, int]]:
    """Return the sorted names of the classes, and the class of each label.

    Numbers are sorted by their values, and equal numbers such as 1 and 1.0 are the same class.
    """
    labels = list(column.first_rows)
    numbers = list(filter(has_value, labels))
    if all(map(is_number, labels)) and any(map(is_code, labels)):
        numbers = []  # If there are codes such as 01, all labels are names.
    if numbers and len(numbers) < len(labels):
        words = [label for label in labels if label not in numbers]
        odd, description = numbers[0], "a number among labels that are words"
        if len(words) < len(numbers):
            odd, description = words[0], "a word among labels that are numbers"
        raise UserError(f"{column.describe(odd)}, {description}. Correct it, or list all labels in data.id2label.")
    if not numbers:
        names = sorted(labels)
        return names, {name: number for number, name in enumerate(names)}
    by_value: dict[Decimal, str] = {}  # As floats, some long numbers would be equal.
    for label in labels:
        by_value.setdefault(Decimal(label), label)
    values = sorted(by_value)
    ranks = {value: rank for rank, value in enumerate(values)}
    return [by_value[value] for value in values], {label: ranks[Decimal(label)] for label in labels}


def _multi_hot(value: LabelValue, classes: dict[str, int], size: int) -> list[int] | None:
    """Return 0 or 1 for each class, or None if the label is missing."""
    if is_missing(value.raw):
        return None
    numbers = {classes.get(label) for label in value.labels}
    return [int(number in numbers) for number in range(size)]


def _vector_length(column: LabelColumn) -> int | None:
    """Return the length of multi-hot vectors, or None for lists of labels. Raises UserError if there are both.

    A list of labels does not contain a label twice. A list of three or more items that are all 0 or 1 is therefore a
    vector. Shorter lists may contain the labels 0 and 1, unless all lists have two items or a list has an item twice.
    """
    lists = [value for value in column.values if value.labels or isinstance(value.raw, list)]
    vectors = [value for value in lists if value.is_vector]
    odd = next((value for value in lists if not value.is_vector), None)
    lengths = {len(value.items) for value in vectors}
    length = max(lengths, default=0)
    has_repeats = any(len({as_bit(item) for item in value.items}) < len(value.items) for value in vectors)
    are_vectors = length > 2 or (not odd and (has_repeats or lengths == {2}))
    if not are_vectors:
        return None
    odd = odd or next((value for value in vectors if len(value.items) < length), None)
    if odd:
        vector = next(value for value in vectors if len(value.items) == length)
        raise UserError(
            f"{odd.where}: {column.name} is {literal(odd.items)}, but in {vector.where} it is "
            f"{literal(vector.items)}, which has 0 or 1 for each of {length} labels. Write all labels in the same way."
        )
    return length


def _encode_vectors(column: LabelColumn, length: int) -> tuple[list[str], list[list[int] | None]]:
    """Return the names of the labels, and each value's multi-hot vector in the order of these names."""
    has_columns = len(column.names) > 1
    labels = column.names if has_columns else [str(position) for position in range(length)]
    id2label = column.id2label or dict(zip(labels, labels, strict=True))
    if id2label.keys() != set(labels):
        example = next(value for value in column.values if len(value.items) == length)
        raise UserError(
            f"params.yaml: data.id2label has the labels {listing(id2label)}, but in {example.where} {column.name} is "
            f"{literal(example.items)}, a vector with 0 or 1 for each of {length} labels. Give names to the labels "
            f"{listing(labels)}."
        )
    if length > MOST_CLASSES:
        raise too_many(column, f"vectors of {length:,} labels")
    unnamed = "" if column.id2label or has_columns else ". Set data.id2label to name them."
    log.info(
        "The labels in %s are multi-hot vectors, with 0 or 1 for each of %d labels: %s%s",
        column.name, length, listing(id2label.values()), unnamed,
    )  # fmt: skip
    positions = [labels.index(label) for label in id2label]
    encoded = [
        # An empty text is not a vector, although in a list of labels it would mean that the row has none of them.
        [int(bool(as_bit(value.items[position]))) for position in positions] if value.labels else None
        for value in column.values
    ]
    return list(id2label.values()), encoded
