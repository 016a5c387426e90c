"""Check the labels of custom files. Labels that would silently be read as something else are errors or warnings."""

import math
import re
import unicodedata
from collections.abc import Collection, Mapping
from decimal import Decimal

from pipeline.core.messages import UserError
from pipeline.core.text import literal
from pipeline.sources.label_column import LabelColumn
from pipeline.sources.label_values import has_value, is_integer, is_minus_one, is_number, label_text
from pipeline.tabular.opening import LONE_SURROGATE

MOST_INTEGERS = 20  # With more distinct whole numbers, the task is a regression.
MOST_CLASSES = 1000
_MOST_GROUPS = 5  # how many groups of similar labels a warning lists
_LARGEST_TARGET = 1e15  # The sum of the squares of millions of such numbers is finite in fp32.
_LABEL_TYPES = (str, int, float, Decimal, type(None))
# Numbers as people write them, such as 0,5 or 1.234,5 or 1,234 or 85%, and plain numbers.
_WRITTEN_NUMBER = re.compile(r"[+\-\u2212]?\d+(?:[.,'\u2019\s]\d{3})*(?:[.,]\d+)?(?:e[+-]?\d+)?\s*%?", re.IGNORECASE)


def check_values(column: LabelColumn) -> None:
    """Raise UserError if a value cannot be a label or a list of labels."""
    for value in column.values:
        message = f"{value.where}: {column.name} is {literal(value.raw)}"
        is_list = isinstance(value.raw, list) and column.problem_type in (None, "multi_label_classification")
        if not all(isinstance(item, _LABEL_TYPES) for item in (value.raw if is_list else [value.raw])):
            raise UserError(
                f"{message}. A label must be a string or a number. Lists of labels are only allowed if "
                "data.problem_type is null or multi_label_classification."
            )
        if column.has_text_lists and value.labels and value.items == [value.raw]:
            example = next(candidate for candidate in column.values if candidate.items != [candidate.raw])
            raise UserError(
                f"{message}, but most labels are lists, such as {literal(example.raw)} in {example.where}. Write all "
                "labels in the same way. If they are classes, set data.problem_type=single_label_classification."
            )
        if is_list and any(isinstance(item, (float, Decimal)) and item % 1 for item in value.items if item == item):
            raise UserError(f"{message}. A list must contain labels, or 0 or 1 for each label.")
    for label in column.first_rows:
        if LONE_SURROGATE.search(label):
            raise UserError(f"{column.describe(label)}, which is not valid Unicode. Correct it.")


def check_variety(column: LabelColumn) -> None:
    """Raise UserError if train has only one class, or if none of its rows has a label."""
    if len(column.train_labels) < (1 if column.has_several_labels else 2):
        raise _constant(column)


def check_class_count(column: LabelColumn, names: Collection[str]) -> None:
    """Raise UserError if there is only one class, or if there are so many that they are probably not classes."""
    if len(names) < 2 and not column.has_several_labels:  # for example with the labels 1 and 1.0
        raise _constant(column)
    rows = sum(column.labeled_rows.values())
    if len(names) > MOST_CLASSES or (len(names) > MOST_INTEGERS and rows < 2 * len(names)):
        raise too_many(column, f"{len(names):,} distinct labels in {rows:,} rows")


def _constant(column: LabelColumn) -> UserError:
    labels = column.train_labels
    content = f"always {literal(labels[0])}" if labels else "always empty"
    return UserError(f"data.label_column_name: {column.name} is {content} in train. Set it to a different column.")


def too_many(column: LabelColumn, content: str) -> UserError:
    return UserError(
        f"data.label_column_name: {column.name} has {content}, which is too many for classes. Name the column that has "
        "the labels. If the labels are numbers, set data.problem_type=regression."
    )


def check_targets(column: LabelColumn) -> None:
    """Raise UserError if a label cannot be the target of a regression."""
    if column.id2label:
        raise UserError(
            f"data.id2label names classes, but {column.name} has numbers for a regression. Set data.id2label to null."
        )
    for label in column.first_rows:
        if not is_number(label) and _WRITTEN_NUMBER.fullmatch(label):
            raise _written_number(column, label)
        if not is_number(label) or not math.isfinite(float(label)) or abs(float(label)) > _LARGEST_TARGET:
            raise UserError(
                f"{column.describe(label)}, but a label of a regression must be a finite number from "
                f"-{_LARGEST_TARGET:g} to {_LARGEST_TARGET:g}. Correct it, scale the column down, or remove the row. "
                "If the labels are classes, set data.problem_type=single_label_classification."
            )


def check_written_numbers(column: LabelColumn) -> None:
    """Raise UserError if most labels are numbers, but some have a decimal comma, a separator or a percent sign."""
    written = [label for label in column.train_labels if _WRITTEN_NUMBER.fullmatch(label)]
    odd = next((label for label in written if not is_number(label)), None)
    if odd and 2 * len(written) > len(column.train_labels):
        raise _written_number(column, odd)


def _written_number(column: LabelColumn, label: str) -> UserError:
    form = "percentages as plain numbers (85 or 0.85)" if label.endswith("%") else "numbers with a decimal point (0.5)"
    commas = " If commas separate labels, set data.problem_type=multi_label_classification." if "," in label else ""
    return UserError(
        f"{column.describe(label)}, which is not a plain number. Write {form} and without other separators. If it is a "
        f"class, list all labels in data.id2label.{commas}"
    )


def check_minus_one(column: LabelColumn, classes: Mapping[str, int], warnings: list[str]) -> None:
    """Raise UserError if the classes are -1, 0, 1, 2 and so on. Add a warning if they are -1, 0 and 1, or -1 and 0.

    Args:
        classes: The class of each label.
    """
    label = next(filter(is_minus_one, classes), None)
    if label is None or not all(map(is_integer, classes)):
        return
    values = {int(Decimal(number)) for number in classes}
    largest = max(values)
    if 0 not in values or min(values) < -1 or len(values) != largest + 2:
        return
    message = (
        f"{column.first_rows[label]}: {column.name} is {label}, and the other labels are the numbers 0 to {largest}. "
        f"If {label} means that the label is unknown, leave these labels empty and set data.on_missing=drop."
    )
    if largest > 1:
        raise UserError(f"{message} If it is a class, list all labels in data.id2label.")
    warnings.append(f"{message} Otherwise, nothing needs to change, because it is read as a class.")


def look_alike_warnings(column: LabelColumn, classes: Mapping[str, int]) -> list[str]:
    """Return a warning if some labels are almost the same.

    Args:
        classes: The class of each label.
    """
    spellings = set(column.first_rows)
    if not column.first_list:  # The values are single labels, and still have the spaces around them.
        raws = [value.raw for value in column.values if value.labels]
        spellings = {raw if isinstance(raw, str) else str(label_text(raw)) for raw in raws}
    groups: dict[Decimal | str, list[str]] = {}
    for spelling in sorted(spellings):
        groups.setdefault(_fold(spelling.strip()), []).append(spelling)
    similar = [_describe_similar(group, classes) for group in groups.values() if len(group) > 1]
    if not similar:
        return []
    more = f" and {len(similar) - _MOST_GROUPS} more" if len(similar) > _MOST_GROUPS else ""
    return [
        f"Column {column.name} has labels that are almost the same: {', '.join(similar[:_MOST_GROUPS])}{more}. Write "
        "labels that mean the same in the same way."
    ]


def _fold(label: str) -> Decimal | str:
    """Return the value of a number, or a text normalized in case, spaces, invisible characters and Unicode form."""
    if has_value(label):
        return Decimal(label)
    folded = unicodedata.normalize("NFKC", label.casefold())
    return " ".join("".join(character for character in folded if unicodedata.category(character) != "Cf").split())


def _describe_similar(spellings: list[str], classes: Mapping[str, int]) -> str:
    # Labels that differ only in their Unicode form look the same, unless they are escaped.
    look_the_same = len({unicodedata.normalize("NFC", spelling) for spelling in spellings}) < len(spellings)
    quoted = [ascii(spelling[:40]) if look_the_same else literal(spelling) for spelling in spellings[:3]]
    count = len({classes[spelling.strip()] for spelling in spellings})
    return f"{' and '.join(quoted)} (read as {f'{count} different labels' if count > 1 else 'one label'})"
