"""Find the classes in a label column, or the labels of its multi-hot vectors. Report labels that may be mistakes."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from itertools import chain

from pipeline.core.messages import UserError, log
from pipeline.core.text import listing, literal
from pipeline.sources.label_column import LabelColumn, LabelValue
from pipeline.sources.label_values import as_bit, is_code, is_integer, is_minus_one, is_number, is_sortable_number

MAX_INTEGERS = 20  # With more distinct whole numbers, the task is a regression.
_MAX_CLASSES = 1000
_MAX_GROUPS = 5  # how many groups of similar labels a warning lists
# What programs write for a missing value or an error. "none" and "NONE" are not in the list, because they are common
# classes.
PLACEHOLDERS = {
    "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "\\N", "None", "-", ".", "?", "#NAME?", "#VALUE!",
    "#REF!",
}  # fmt: skip
# Editors write curly apostrophes and several dashes, and the invisible U+FE0F only asks for an emoji in color.
_PLAIN_CHARACTERS = str.maketrans("\u2018\u2019\u2010\u2011\u2012\u2013\u2014", "''-----", "\ufe0f")
_SEPARATORS = ",#/+&\u3001\n "  # characters that people write between labels, but that do not separate labels here
_CLEAR_SEPARATORS = ",#\u3001\n"  # the ones that class names rarely contain


def find_classes(column: LabelColumn) -> tuple[list[str], dict[str, int], list[str]]:
    """Return the names of the classes in the order of the model's outputs, the class of each label, and warnings.

    Raises:
        UserError: A label is not in data.id2label, or the labels are probably not classes.
    """
    warnings: list[str] = []
    if column.id2label:
        names, numbers = list(column.id2label.values()), _number_labels(column.id2label)
        if unlisted := next((label for label in column.first_places if label not in numbers), None):
            raise UserError(
                f"{column.describe(unlisted)}, but data.id2label only has the labels {listing(column.id2label)}. "
                "Correct it, or add it to data.id2label."
            )
    elif set(column.schema_names) >= column.first_places.keys():
        names = [name for name in column.schema_names if name in column.first_places]
        numbers = _number_labels(names)
        if unused := sorted({*column.schema_names} - {*names}):
            log.info("column %s: no row has the classes %s of the schema", column.name, listing(unused))
    else:
        names, numbers = _sort_labels(column)
        warnings += _check_minus_one(column, numbers)
        _check_class_count(column, names)
    if not (column.is_multi_label or column.id2label or column.schema_names):
        warnings += _combination_warnings(column) + _placeholder_warnings(column)
    return names, numbers, [*warnings, *_look_alike_warnings(column, numbers)]


def _number_labels(labels: Iterable[str]) -> dict[str, int]:
    return {label: number for number, label in enumerate(labels)}


def _sort_labels(column: LabelColumn) -> tuple[list[str], dict[str, int]]:
    """Return the sorted names of the classes, and the class of each label.

    Numbers are sorted by their values. Equal numbers, such as 1.1 and 1.10, may be versions or sections, so they are
    different classes.
    """
    labels = list(column.first_places)
    numbers = list(filter(is_sortable_number, labels))
    if all(map(is_number, labels)) and any(map(is_code, labels)):
        numbers = []  # If there are codes such as 01, all labels are names.
    if numbers and len(numbers) < len(labels):
        words = [label for label in labels if label not in numbers]
        outlier, description = numbers[0], "a number among labels that are words"
        if len(words) < len(numbers):
            outlier, description = words[0], "a word among labels that are numbers"
        remedy = "Correct it"
        if outlier in PLACEHOLDERS:
            remedy = (
                f"If {literal(outlier)} means that the label is missing, empty these fields and set "
                "data.on_missing=drop. Otherwise, correct it"
            )
        elif any({*column.train_labels}.isdisjoint(group) for group in (words, numbers)):
            remedy = "Write the labels of all splits in the same way"
        raise UserError(f"{column.describe(outlier)}, {description}. {remedy}, or list all labels in data.id2label.")
    names = sorted(labels)
    if numbers:  # As floats, some long numbers would be equal.
        names.sort(key=Decimal)
    return names, _number_labels(names)


def _check_minus_one(column: LabelColumn, numbers: Mapping[str, int]) -> list[str]:
    """Raise UserError if the classes are -1, 0, 1, 2 and so on. Return a warning if they are -1, 0 and 1, or -1 and 0.

    Args:
        numbers: The class of each label.
    """
    label = next(filter(is_minus_one, numbers), None)
    if label is None or not all(map(is_integer, numbers)):
        return []
    values = {int(Decimal(name)) for name in numbers}
    largest = max(values)
    if 0 not in values or min(values) < -1 or len(values) != largest + 2:
        return []
    message = (
        f"{column.first_places[label]}: {column.name} is {label}, and the other labels are the numbers 0 to {largest}. "
        f"If {label} means that the label is unknown, leave these labels empty and set data.on_missing=drop."
    )
    if largest > 1:
        raise UserError(f"{message} If it is a class, list all labels in data.id2label.")
    return [f"{message} Otherwise, nothing needs to change, because it is read as a class."]


def _check_class_count(column: LabelColumn, names: Collection[str]) -> None:
    """Raise UserError if there are so many classes that they are probably not classes."""
    rows = sum(column.labeled_counts.values())
    if len(names) > _MAX_CLASSES or (len(names) > MAX_INTEGERS and rows < 2 * len(names)):
        raise _too_many(column, f"{len(names):,} distinct labels in {rows:,} rows")


def _too_many(column: LabelColumn, content: str) -> UserError:
    return UserError(
        f"data.label_column_name: {column.name} has {content}, which is too many for classes. Name the column that has "
        "the labels. If the labels are numbers, set data.problem_type=regression."
    )


def _combination_warnings(column: LabelColumn) -> list[str]:
    """Return a warning if a label may be several labels, joined by a character that does not separate labels.

    Ordinary names such as "Food & Wine" and "Food & Drink" share a part, too, so for most characters there must be more
    labels than parts.
    """
    labels = column.first_places.keys()
    for separator in _SEPARATORS:
        parts_by_label = {label: {part.strip() for part in label.split(separator)} for label in labels}
        combinations = {label: parts for label, parts in parts_by_label.items() if len(parts) > 1 and "" not in parts}
        counts = Counter(chain.from_iterable(combinations.values()))
        has_fewer_parts = separator != " " and len(set().union(*parts_by_label.values())) < len(labels)
        can_share_parts = separator in _CLEAR_SEPARATORS or has_fewer_parts
        for label, parts in combinations.items():
            if labels >= parts:
                relation = "consists of other labels"
            elif can_share_parts and any(counts[part] > 1 for part in parts):
                relation = "shares parts with other labels"
            else:
                continue
            return [
                f"{column.describe(label)}, which {relation}. It is read as a class of its own. If a row may have "
                'several labels, separate them with ";". Otherwise, nothing needs to change.'
            ]
    return []


def _placeholder_warnings(column: LabelColumn) -> list[str]:
    """Return a warning if some classes have the names that programs write for a missing value."""
    labels = column.first_places
    placeholders = [label for label in labels if label in PLACEHOLDERS and not (label == "-" and "+" in labels)]
    if not placeholders:
        return []
    return [
        f"{column.name} is {' or '.join(map(literal, placeholders))} in {column.describe_occurrences(placeholders)}. "
        "Such a label is read as a class. If it means that the label is missing, leave these fields empty and set "
        "data.on_missing=drop. If it is a class, list all labels in data.id2label."
    ]


def _look_alike_warnings(column: LabelColumn, numbers: Mapping[str, int]) -> list[str]:
    """Return a warning if different labels are almost the same.

    Args:
        numbers: The class of each label.
    """
    groups: dict[Decimal | str, list[str]] = {}
    for label in sorted(column.first_places):
        groups.setdefault(_normalize(label), []).append(label)
    similar = [_quote_similar(group) for group in groups.values() if len({numbers[label] for label in group}) > 1]
    if not similar:
        return []
    more = f" and {len(similar) - _MAX_GROUPS} more" if len(similar) > _MAX_GROUPS else ""
    return [
        f"Column {column.name} has different labels that are almost the same: "
        f"{', '.join(similar[:_MAX_GROUPS])}{more}. Write labels that mean the same in the same way."
    ]


def _normalize(label: str) -> Decimal | str:
    """Return the value of a number, or a text normalized in case, spaces, invisible characters and Unicode form.

    Hyphens and underscores between words become spaces, and a final period is removed.
    """
    if is_sortable_number(label):
        return Decimal(label)
    folded = unicodedata.normalize("NFKC", label.translate(_PLAIN_CHARACTERS).casefold())
    visible = "".join(character for character in folded if unicodedata.category(character) != "Cf")
    words = re.sub(r"(?<=\w)[-_](?=\w)", " ", visible)
    return " ".join(re.sub(r"(?<=\w)\.$", "", words).split())


def _quote_similar(labels: list[str]) -> str:
    # Labels that differ only in their Unicode form or in such characters look the same, unless they are escaped.
    plain = {unicodedata.normalize("NFC", label.translate(_PLAIN_CHARACTERS)) for label in labels}
    look_the_same = len(plain) < len(labels)
    return " and ".join(ascii(label[:40]) if look_the_same else literal(label) for label in labels[:3])


def vector_length(column: LabelColumn) -> int | None:
    """Return the length of multi-hot vectors, or None for lists of labels.

    The lists are vectors if they have the same length, which is at least 2, and if all their items are 0 or 1.

    Raises:
        UserError: A list of zeros and ones has one of them twice, as only vectors do, but not all lists are vectors of
            the same length.
    """
    lists = [value for value in column.values if value.labels or isinstance(value.raw, list)]
    length = max(len(value.items) for value in lists)
    if length > 1 and all(_is_vector(value, length) for value in lists):
        return length
    for value in lists:
        size = len(value.items)
        if _is_vector(value, size) and len({as_bit(item) for item in value.items}) < size:
            mismatch = next(candidate for candidate in lists if not _is_vector(candidate, size))
            raise UserError(
                f"{mismatch.place}: {column.name} is {literal(mismatch.items)}, but in {value.place} it is "
                f"{literal(value.items)}, which contains 0 or 1 twice, as in a vector with 0 or 1 for each label. "
                "Write all labels as vectors of the same length, or write each label only once."
            )
    return None


def _is_vector(value: LabelValue, length: int) -> bool:
    return len(value.items) == length and all(as_bit(item) is not None for item in value.items)


def encode_vectors(column: LabelColumn, length: int) -> tuple[list[str], list[list[int] | None]]:
    """Return the names of the labels, and each value's multi-hot vector in the order of these names."""
    has_columns = len(column.names) > 1
    labels = column.names if has_columns else [str(position) for position in range(length)]
    id2label = column.id2label or dict(zip(labels, labels, strict=True))
    if id2label.keys() != set(labels):
        example = next(value for value in column.values if len(value.items) == length)
        raise UserError(
            f"params.yaml: data.id2label has the labels {listing(id2label)}, but in {example.place} {column.name} "
            f"is {literal(example.items)}, a vector with 0 or 1 for each of {length} labels. Give names to the labels "
            f"{listing(labels)}."
        )
    if length > _MAX_CLASSES:
        raise _too_many(column, f"vectors of {length:,} labels")
    unnamed = "" if column.id2label or has_columns else ". Set data.id2label to name them."
    log.info(
        "the labels in %s are multi-hot vectors, with 0 or 1 for each of %d labels: %s%s",
        column.name, length, listing(id2label.values()), unnamed,
    )  # fmt: skip
    positions = [labels.index(label) for label in id2label]
    encoded = [
        # An empty text is not a vector, although in a list of labels it would mean that the row has none of them.
        [int(bool(as_bit(value.items[position]))) for position in positions] if value.labels else None
        for value in column.values
    ]
    return list(id2label.values()), encoded
