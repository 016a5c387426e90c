"""Find out what the labels of custom files are (classes, several labels each, or numbers), and encode them."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN, ProblemType
from pipeline.params import DataParams
from pipeline.sources.label_values import (
    are_text_lists,
    bit,
    is_minus_one,
    is_quoted_list,
    items_of_text,
    look_alike_key,
    text_of,
    texts_of,
)
from pipeline.tabular.reading import LONE_SURROGATE, is_missing, listing, quote

# The metrics of each problem type. Verdicts rest on the first one.
DEFAULT_METRICS = {
    "binary": ["accuracy", "f1", "matthews_correlation"],
    "single_label_classification": ["accuracy", "f1_macro", "matthews_correlation"],
    "multi_label_classification": ["f1_micro", "f1_macro", "accuracy"],
    "regression": ["pearson", "spearmanr", "rmse"],
}
_MOST_INTEGERS = 20  # With more different whole numbers, the task is a regression.
_MOST_CLASSES = 1000
_MOST_PAIRS = 5  # how many pairs of similar labels a warning lists
_LARGEST_TARGET = 1e15  # the sum of the squares of millions of such numbers fits into single precision
_LABEL_TYPES = (str, int, float, Decimal, type(None))
_INTEGER = re.compile(r"[+-]?\d+(\.0*)?")  # 1.0, too: pandas writes whole numbers like this if one is missing
_CODE = re.compile(r"[+-]?0\d")  # such as 007: a name whose zeros count
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
# Numbers as people write them: 0,5 or 1.234,5 or 1,234 or 85%; also plain ones.
_WRITTEN_NUMBER = re.compile(r"[+\-\u2212]?\d+(?:[.,'\u2019\s]\d{3})*(?:[.,]\d+)?(?:e[+-]?\d+)?\s*%?", re.IGNORECASE)


@dataclass(frozen=True)
class Labels:
    """What the labels are.

    Attributes:
        problem_type: The problem type.
        names: The names of the classes or labels, in the order of the model's outputs; empty for a regression.
        splits: For each split with labels the class, the list of 0 and 1 or the target of each row; None if missing.
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


class _Value(NamedTuple):
    """A value of the label column, once for all rows that have it.

    Attributes:
        raw: The value as it is in the file.
        where: The file and the line of the first row that has it.
        items: The items of a list, or of a text that lists labels; for any other value, that value alone.
        labels: The items as texts, without the missing ones.
    """

    raw: Any
    where: str
    items: list[Any]
    labels: list[str]

    @property
    def lists_labels(self) -> bool:
        """Also true of "spam;", which would otherwise be another label than "spam"."""
        is_separated = isinstance(self.raw, str) and self.labels != texts_of([self.raw])
        return isinstance(self.raw, list) or len(self.labels) > 1 or is_separated

    @property
    def is_vector(self) -> bool:
        return all(bit(item) is not None for item in self.items)


class LabelReader:
    """Reads the label column of all splits.

    Args:
        columns: The labels of each split as they are in the files, train's first; the index has file and line.
        class_names: The names of classes that the Parquet files of each split have in their schema.
        params: The section `data` of params.yaml.
    """

    def __init__(
        self, columns: Mapping[str, pd.Series], class_names: Mapping[str, list[str]], params: DataParams
    ) -> None:
        self._label_columns = params.label_columns
        self._name = ", ".join(params.label_columns)
        self._problem_type: ProblemType | None = (
            "multi_label_classification" if len(self._label_columns) > 1 else params.problem_type
        )
        self._id2label = _id2label(params)
        self._schema_names = list(dict.fromkeys(name.strip() for names in class_names.values() for name in names))
        self._warnings: list[str] = []

        # Few labels differ, so each is read once: a row has the position of its label in `_values`.
        column = pd.concat(columns)
        codes, _ = pd.factorize(column.map(repr))  # 1, 1.0 and "1" differ
        rows = pd.Series(codes, column.index)
        self._codes = {split: rows.loc[split] for split in columns}
        distinct = column[~rows.duplicated()].droplevel(0)
        in_train = self._codes[TRAIN].max() + 1  # train's rows come first, so its labels do, too

        # A name of a class in a schema is a label, whatever is in it.
        has_schema_names = bool(class_names.get(TRAIN))
        self._text_lists = not has_schema_names and self._has_text_lists(distinct.iloc[:in_train])
        separator = {None: "[|;]", "multi_label_classification": "[|;,]"}.get(self._problem_type)
        separator = None if has_schema_names else separator
        self._values: list[_Value] = []
        for (file, line), raw in distinct.items():
            items = self._split(raw, separator)
            self._values.append(_Value(raw, f"{file} {line}", items, texts_of(items)))

        self._train_labels = list(dict.fromkeys(label for value in self._values[:in_train] for label in value.labels))
        minus_one_is_class = "-1" in (self._id2label or ()) or any(map(is_minus_one, self._train_labels))
        self._is_unknown = np.array([not minus_one_is_class and is_minus_one(value.raw) for value in self._values])
        self._known = [value for value, unknown in zip(self._values, self._is_unknown, strict=True) if not unknown]
        self._first: dict[str, str] = {}  # where each label first occurs
        for value in self._known:
            for label in value.labels:
                self._first.setdefault(label, value.where)

    def _has_text_lists(self, values: pd.Series) -> bool:
        texts = {raw: where for where, raw in values.items() if isinstance(raw, str) and raw.strip()}
        if self._problem_type not in (None, "multi_label_classification") or not are_text_lists(texts):
            return False
        text, (file, line) = next(iter(texts.items()))
        log.info(
            "%s: the labels are lists that were saved as text, such as %s in %s %s", self._name, quote(text), file, line
        )
        return True

    def _split(self, raw: Any, separator: str | None) -> list[Any]:
        if isinstance(raw, list):
            return raw
        if self._text_lists and isinstance(raw, str):
            items = items_of_text(raw)
            return [raw] if items is None else list(items)
        if separator and isinstance(raw, str):
            return list(re.split(separator, raw))
        return [raw]

    def read(self) -> Labels:
        """Infer the problem type, the classes and the splits without labels, and encode the labels.

        Raises:
            UserError: A label cannot be one, or the labels do not fit data.problem_type or data.id2label.
        """
        for value in self._known:
            self._check_value(value)
        several = next((value for value in self._known if value.lists_labels), None)
        is_multi_label = several is not None or self._problem_type == "multi_label_classification"
        if len(self._train_labels) < (1 if is_multi_label else 2):
            raise self._constant()
        problem_type = self._problem_type or self._infer(several)
        unlabelled = self._unlabelled(problem_type)
        names: list[str] = []
        encoded: list[Any]
        if problem_type == "regression":
            self._check_targets()
            encoded = [float(value.labels[0]) if value.labels else None for value in self._values]
        elif problem_type == "multi_label_classification" and (length := self._vector_length()):
            names, encoded = self._encode_vectors(length)
        else:
            names, encoded = self._encode_classes(problem_type, several)
        column = pd.Series(encoded, dtype=object)
        splits = {
            split: column.iloc[codes.to_numpy()] for split, codes in self._codes.items() if split not in unlabelled
        }
        return Labels(problem_type, names, splits, self._warnings)

    def _message(self, where: str, label: object) -> str:
        return f"{where}: {self._name} is {quote(label)}"

    def _check_value(self, value: _Value) -> None:
        message = self._message(value.where, value.raw)
        is_list = isinstance(value.raw, list) and self._problem_type in (None, "multi_label_classification")
        if not all(isinstance(item, _LABEL_TYPES) for item in (value.raw if is_list else [value.raw])):
            raise UserError(
                f"{message}; a label is a text or a number, or with data.problem_type=multi_label_classification a list"
            )
        if self._text_lists and value.labels and value.items == [value.raw]:
            example = next(known for known in self._known if known.items != [known.raw])
            raise UserError(
                f"{message}, but most labels are lists, such as {quote(example.raw)} in {example.where}; write all "
                "labels in the same way, or for classes set data.problem_type=single_label_classification"
            )
        if is_list and any(isinstance(item, (float, Decimal)) and item % 1 for item in value.items if item == item):
            raise UserError(f"{message}; a list must hold labels, or 0 or 1 for each label")
        for label in value.labels:
            if LONE_SURROGATE.search(label):
                raise UserError(f"{self._message(value.where, label)}, which is not valid Unicode; correct it")

    def _infer(self, several: _Value | None) -> ProblemType:
        labels = self._train_labels
        if several is None and not self._id2label and not self._schema_names:
            self._check_written_numbers(labels)
        are_numbers = all(_is_number(label) and not _CODE.match(label) for label in labels)
        are_integers = all(map(_INTEGER.fullmatch, labels))
        problem_type: ProblemType = "single_label_classification"
        if several is not None:
            problem_type = "multi_label_classification"
            why = f"several labels, such as {quote(several.raw)} in {several.where}"
        elif self._id2label:
            why = "the classes of data.id2label"
        elif self._schema_names:
            why = f"the classes that the Parquet file names: {listing(self._schema_names)}"
        elif are_numbers and len(labels) > _MOST_INTEGERS and are_integers:
            problem_type, why = "regression", f"more than {_MOST_INTEGERS} different whole numbers"
        elif are_numbers and not are_integers:
            problem_type, why = "regression", "numbers that are not whole"
        else:
            form = "whole numbers" if are_numbers else "texts"
            why = f"{len(labels):,} different {form}: {listing(labels, 3)}"
        log.info(
            "Inferred problem_type %s: %s has %s. To override, set data.problem_type.", problem_type, self._name, why
        )
        return problem_type

    def _labelled_rows(self) -> dict[str, int]:
        """Return how many rows of each split have a label."""
        has_label = np.array([bool(value.labels) for value in self._values])
        return {split: int(np.count_nonzero(has_label[codes])) for split, codes in self._codes.items()}

    def _unlabelled(self, problem_type: ProblemType) -> list[str]:
        """Return the splits without labels. Raises UserError if only some labels that train does not have are -1."""
        unlabelled = []
        for split, rows in self._labelled_rows().items():
            is_unknown = self._is_unknown[self._codes[split]]
            count = np.count_nonzero(is_unknown)
            if split == "test" and not rows:
                unlabelled.append(split)
            # In a regression, -1 is a number like any other, unless all other numbers are greater.
            is_target = problem_type == "regression" and not (
                count == rows and all(_is_number(label) and float(label) > -1 for label in self._first)
            )
            if not count or is_target:
                continue
            if count < rows or split != "test":
                file, line = self._codes[split].index[is_unknown.argmax()]
                raise UserError(
                    f"{file} {line}: {self._name} is -1, as in {count:,} of {rows:,} rows of {split}, but train has no "
                    "label -1. If it means that the label is unknown, empty these labels and set data.on_missing=drop; "
                    "if it is a class, list all labels in data.id2label"
                )
            log.info("%s: all labels are -1, and train has no -1: the labels are taken for unknown", split)
            unlabelled.append(split)
        return unlabelled

    def _classes(self, problem_type: ProblemType) -> tuple[list[str], dict[str, int]]:
        """Return the names of the classes in the order of the model's outputs, and the class of each label."""
        if self._id2label:
            numbers = {label: number for number, label in enumerate(self._id2label)}
            if unlisted := next((label for label in self._first if label not in numbers), None):
                raise UserError(
                    f"{self._message(self._first[unlisted], unlisted)}, which is not one of data.id2label's "
                    f"{listing(numbers)}; correct it, or list it there"
                )
            return list(self._id2label.values()), numbers
        if set(self._schema_names) >= self._first.keys():
            names = [name for name in self._schema_names if name in self._first]
            if unused := sorted({*self._schema_names} - {*names}):
                log.info("%s: no row has the classes %s of the schema", self._name, listing(unused))
            return names, {name: number for number, name in enumerate(names)}
        names, numbers = self._sort(list(self._first))
        self._check_minus_one(numbers)
        if len(names) < 2 and problem_type == "single_label_classification":  # as with 1 and 1.0
            raise self._constant()
        rows = sum(self._labelled_rows().values())
        if len(names) > _MOST_CLASSES or (len(names) > _MOST_INTEGERS and rows < 2 * len(names)):
            raise self._too_many(f"{len(names):,} different labels in {rows:,} rows")
        return names, numbers

    def _sort(self, labels: list[str]) -> tuple[list[str], dict[str, int]]:
        """Return the names of the classes, numbers by value, and the class of each label: 1.0 is that of 1."""
        are_codes = any(map(_CODE.match, labels)) and all(map(_is_number, labels))  # 01 to 12: names, all of them
        numbers = [] if are_codes else [label for label in labels if _has_value(label)]
        if numbers and len(numbers) < len(labels):
            words = [label for label in labels if not _has_value(label)]
            odd, description = numbers[0], "a number among labels that are words"
            if len(words) < len(numbers):
                odd, description = words[0], "a word among labels that are numbers"
            raise UserError(
                f"{self._message(self._first[odd], odd)}, {description}; correct it, or list all labels in "
                "data.id2label"
            )
        if not numbers:
            return sorted(labels), {label: number for number, label in enumerate(sorted(labels))}
        by_value: dict[Decimal, str] = {}  # not floats, which are equal for long numbers that differ
        for label in labels:
            by_value.setdefault(Decimal(label), label)
        ranks = {value: number for number, value in enumerate(sorted(by_value))}
        return [by_value[value] for value in ranks], {label: ranks[Decimal(label)] for label in labels}

    def _encode_classes(self, problem_type: ProblemType, several: _Value | None) -> tuple[list[str], list[Any]]:
        """Return the names of the classes, and for each value its class, or a 0 or 1 for each class."""
        names, numbers = self._classes(problem_type)
        self._warn_about_look_alikes(numbers, with_spaces=several is None)
        if problem_type == "single_label_classification":
            return names, [numbers.get(value.labels[0]) if value.labels else None for value in self._values]
        encoded: list[list[int] | None] = []
        for value in self._values:
            classes = {numbers.get(label) for label in value.labels}
            has_class = [int(number in classes) for number in range(len(names))]
            encoded.append(None if is_missing(value.raw) else has_class)
        return names, encoded

    def _vector_length(self) -> int | None:
        """Return the length of multi-hot vectors, or None for lists of labels. Raises UserError if there are both.

        A list of labels has no label twice, so a list of three or more items, each 0 or 1, is a vector.
        """
        lists = [value for value in self._known if value.labels or isinstance(value.raw, list)]
        vectors = [value for value in lists if value.is_vector]
        odd = next((value for value in lists if not value.is_vector), None)
        lengths = {len(value.items) for value in vectors}
        if max(lengths, default=0) <= 2:
            # Short lists may be lists of the labels 0 and 1, unless all have two items, or one has an item twice.
            has_repeats = any(len({bit(item) for item in value.items}) < len(value.items) for value in vectors)
            if odd or not (has_repeats or lengths == {2}):
                return None
        length = max(lengths)
        odd = odd or next((value for value in vectors if len(value.items) < length), None)
        if odd:
            vector = next(value for value in vectors if len(value.items) == length)
            raise UserError(
                f"{self._message(odd.where, odd.items)}, but {self._message(vector.where, vector.items)}, which holds "
                f"0 or 1 for each of {length} labels; write all labels in the same way"
            )
        return length

    def _encode_vectors(self, length: int) -> tuple[list[str], list[list[int] | None]]:
        """Return the names of the labels at the positions of multi-hot vectors, and the vectors in their order."""
        columns = self._label_columns
        labels = columns if len(columns) > 1 else [str(position) for position in range(length)]
        id2label = self._id2label or dict(zip(labels, labels, strict=True))
        if id2label.keys() != set(labels):
            example = next(value for value in self._known if len(value.items) == length)
            raise UserError(
                f"params.yaml: data.id2label names the labels {listing(id2label)}, but "
                f"{self._message(example.where, example.items)}, a vector that holds 0 or 1 for each of {length} "
                f"labels; name {listing(labels)}"
            )
        if length > _MOST_CLASSES:
            raise self._too_many(f"vectors of {length:,} labels")
        unnamed = "; to name them, set data.id2label" if not self._id2label and len(columns) == 1 else ""
        log.info(
            "%s: multi-hot labels, which are 0 or 1 for each of %d labels: %s%s",
            self._name, length, listing(id2label.values()), unnamed,
        )  # fmt: skip
        positions = [labels.index(label) for label in id2label]
        encoded = [
            # In a list of labels an empty text means that a row has none of them, but it is not a vector.
            [int(bool(bit(value.items[position]))) for position in positions] if value.labels else None
            for value in self._values
        ]
        return list(id2label.values()), encoded

    def _check_targets(self) -> None:
        if self._id2label:
            raise UserError(f"data.id2label names classes, but {self._name} has numbers; set it to null")
        for label, where in self._first.items():
            if not _is_number(label) and _WRITTEN_NUMBER.fullmatch(label):
                raise self._written_number(label)
            if not _is_number(label) or not math.isfinite(float(label)) or abs(float(label)) > _LARGEST_TARGET:
                raise UserError(
                    f"{self._message(where, label)}; the target of a regression must be a finite number from "
                    f"-{_LARGEST_TARGET:g} to {_LARGEST_TARGET:g}: correct it, scale the column down, remove the row, "
                    "or for classes set data.problem_type"
                )

    def _check_written_numbers(self, labels: Sequence[str]) -> None:
        """Raise UserError if labels are numbers with a decimal comma, a separator of thousands or a percent sign."""
        written = [label for label in labels if _WRITTEN_NUMBER.fullmatch(label)]
        odd = next((label for label in written if not _is_number(label)), None)
        if odd and 2 * len(written) > len(labels):
            raise self._written_number(odd)

    def _written_number(self, label: str) -> UserError:
        remedy = "a percentage as a plain number (85 or 0.85)" if label.endswith("%") else "numbers with a point (0.5)"
        commas = "; if commas separate labels, set data.problem_type" * ("," in label)
        return UserError(
            f"{self._message(self._first[label], label)}; write {remedy} and without other separators; if it is a "
            f"class, list all labels in data.id2label{commas}"
        )

    def _check_minus_one(self, numbers: Mapping[str, int]) -> None:
        """Raise UserError if -1 is among the class numbers 0, 1, 2 and so on; warn if it is among 0 and 1 alone."""
        label = next(filter(is_minus_one, numbers), None)
        if label is None or not all(map(_INTEGER.fullmatch, numbers)):
            return
        values = {int(Decimal(number)) for number in numbers}
        if min(values) < -1 or 0 not in values or len(values) != max(values) + 2:
            return
        message = (
            f"{self._first[label]}: {self._name} is {label} among the numbers 0 to {max(values)}; if it means that the "
            "label is unknown, empty these labels and set data.on_missing=drop; "
        )
        if max(values) > 1:
            raise UserError(f"{message}if it is a class, list all labels in data.id2label")
        self._warnings.append(f"{message}it is read as a class")

    def _warn_about_look_alikes(self, numbers: Mapping[str, int], with_spaces: bool) -> None:
        """Warn about labels that are almost the same, and about lists that were saved as text among other labels."""
        spellings = sorted(self._first)
        if with_spaces:  # around a label, which is in no list
            raws = [value.raw for value in self._known if value.labels]
            spellings = sorted({raw if isinstance(raw, str) else str(text_of(raw)) for raw in raws})
            lists = [spelling for spelling in spellings if is_quoted_list(spelling)]
            if lists and len(lists) < len(spellings):
                self._warnings.append(
                    f"{self._name}: some labels look like lists that were saved as text, but not all: "
                    f"{listing(map(quote, lists), 3)}; each of them is read as a class"
                )
        groups: dict[Decimal | str, list[str]] = {}
        for spelling in spellings:
            label = spelling.strip()
            groups.setdefault(Decimal(label) if _has_value(label) else look_alike_key(label), []).append(spelling)
        pairs = []
        for group in groups.values():
            classes = len({numbers[spelling.strip()] for spelling in group})
            if len(group) > 1:
                read_as = f"{classes} different labels" if classes > 1 else "one label"
                pairs.append(f"{' and '.join(_quote_differences(group[:3]))} ({read_as})")
        if pairs:
            more = f" and {len(pairs) - _MOST_PAIRS} more" * (len(pairs) > _MOST_PAIRS)
            self._warnings.append(
                f"{self._name}: labels that are almost the same: {', '.join(pairs[:_MOST_PAIRS])}{more}; write "
                "labels that mean the same in the same way"
            )

    def _constant(self) -> UserError:
        content = f"always {quote(self._train_labels[0])}" if self._train_labels else "always empty"
        return UserError(f"data.label_column_name: in train, {self._name} is {content}; name another column")

    def _too_many(self, content: str) -> UserError:
        return UserError(
            f"data.label_column_name: {self._name} has {content}, too many for classes; name the column that has the "
            "labels, or for numbers set data.problem_type=regression"
        )


def _id2label(params: DataParams) -> dict[str, str] | None:
    """Return data.id2label by label. A list names the columns of labels, or the labels 0, 1 and so on."""
    if params.id2label is None or isinstance(params.id2label, dict):
        return params.id2label
    columns = params.label_columns
    labels = columns if len(columns) > 1 else [str(number) for number in range(len(params.id2label))]
    return dict(zip(labels, params.id2label, strict=True))


def _is_number(label: str) -> bool:
    return bool(_NUMBER.fullmatch(label))


def _has_value(label: str) -> bool:
    """Return whether the name of a class is a number that has a place among others."""
    return _is_number(label) and not label.lower().endswith("nan")


def _quote_differences(labels: Sequence[str]) -> list[str]:
    """Return labels for a message, with escapes if they differ only in their Unicode form, which nobody can see."""
    same = len({unicodedata.normalize("NFC", label) for label in labels}) < len(labels)
    return [ascii(label[:40]) if same else quote(label) for label in labels]
