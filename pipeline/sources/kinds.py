"""What the labels of the user's own rows are: classes, several labels each, or numbers; and their encoding."""

import dataclasses
import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.messages import UserError, log
from pipeline.core.tables import from_numpy
from pipeline.core.task import TRAIN, ProblemType
from pipeline.params import DataParams
from pipeline.sources.label_values import (
    Notation,
    VectorCheck,
    are_text_lists,
    bit,
    distinct,
    is_minus_one,
    is_quoted_list,
    look_alike_key,
    text_of,
    texts_of,
)  # fmt: skip
from pipeline.tabular.reading import HALF_CHARACTER, Batch, listing, missing, shown

# The scores of each kind of labels. Verdicts rest on the first.
METRICS = {
    "binary": ["accuracy", "f1", "matthews_correlation"],
    "single_label_classification": ["accuracy", "f1_macro", "matthews_correlation"],
    "multi_label_classification": ["f1_micro", "f1_macro", "accuracy"],
    "regression": ["pearson", "spearmanr", "rmse"],
}
_LABEL_TYPES = (str, int, float, Decimal, type(None))
_MOST_INTEGERS = 20  # different whole numbers that are taken for classes
_MOST_CLASSES = 1000
_MOST_PAIRS = 5  # of almost the same labels in a warning
_LARGEST_TARGET = 1e15  # the sum of the squares of millions of such numbers fits into single precision
_KEPT = 20_000  # different labels, beyond which they are not classes
_INTEGER = re.compile(r"[+-]?\d+(\.0*)?")  # 1.0, too: pandas writes whole numbers so where one is missing
_CODE = re.compile(r"[+-]?0\d")  # as 007: a name, whose zeros count
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
# Numbers as people write them: 0,5 or 1.234,5 or 1,234 or 85%; also plain ones.
_WRITTEN_NUMBER = re.compile(r"[+\-\u2212]?\d+(?:[.,'\u2019\s]\d{3})*(?:[.,]\d+)?(?:e[+-]?\d+)?\s*%?", re.IGNORECASE)


@dataclass(frozen=True)
class Labels:
    """The problem type, and how labels become the numbers that a model learns.

    Attributes:
        names: Names of the classes or labels, in the order of the model's outputs; empty for a regression.
        numbers: The number of each class or label, by its text in the files.
        notation: How the files write several labels in one value.
        unlabelled: The splits without labels.
        positions: The number of the label at each position of a multi-hot vector; None if labels are not vectors.
    """

    problem_type: ProblemType
    names: list[str]
    numbers: dict[str, int]
    notation: Notation
    unlabelled: list[str]
    positions: list[int] | None = None

    @property
    def metrics(self) -> list[str]:
        binary = self.problem_type == "single_label_classification" and len(self.names) == 2
        return METRICS["binary" if binary else self.problem_type]

    def encode(self, values: Sequence[Any]) -> tuple[pa.Array, list[int]]:
        """The label column of a batch, and the rows whose label is missing; these have a 0 there."""
        if self.problem_type == "multi_label_classification":
            matrix = np.zeros((len(values), len(self.names)), dtype=np.int64)
            absent = [row for row, value in enumerate(values) if missing(value)]
            for row, value in enumerate(values):
                items = self.notation.items(value)
                if self.positions is None:
                    matrix[row, [self.numbers[text] for text in texts_of(items)]] = 1
                elif texts_of(items):
                    matrix[row, self.positions] = [bool(bit(item)) for item in items]
                elif not missing(value):
                    absent.append(row)  # An empty text is a row with none of the labels, but it is not a vector.
            return pa.FixedSizeListArray.from_arrays(from_numpy(matrix.ravel()), len(self.names)), sorted(absent)
        texts = [text_of(value) for value in values]
        absent = [row for row, text in enumerate(texts) if text is None]
        if self.problem_type == "regression":
            return from_numpy(np.array([float(text or 0) for text in texts])), absent
        return from_numpy(np.array([0 if text is None else self.numbers[text] for text in texts])), absent


class LabelReader:
    """Finds out what the labels are: give it the batches of all splits, train's first."""

    def __init__(self, params: DataParams) -> None:
        self._params = params
        self._column = ", ".join(params.label_columns)
        self._problem_type = params.problem_type
        if len(params.label_columns) > 1:
            self._problem_type = "multi_label_classification"
        self._id2label = _by_label(params)
        self._schema_names: dict[str, None] = {}  # the names of classes in the schemas of Parquet files, in order
        self._first: dict[str, str] = {}  # where each label first stands, in order
        self._spellings: set[str] = set()  # labels as they are written, with the spaces around them
        self._in_train = 0  # how many of these train has
        self._rows: Counter[str] = Counter()  # how many rows of each split have a label
        self._minus_ones: Counter[str] = Counter()  # how many rows of a split have the label -1, if train has none
        self._first_minus_one: dict[str, str] = {}
        self.warnings: list[str] = []
        self._several = ""  # where several labels first stand
        self._vectors = VectorCheck(self._column)
        separators = {None: "[|;]", "multi_label_classification": "[|;,]"}.get(self._problem_type)
        self._notation = Notation(re.compile(separators) if separators else None)

    def add(self, batch: Batch, values: Sequence[Any], split: str) -> None:
        """Note the labels of a batch. Raises UserError if they cannot be labels."""
        self._rows[split] += 0  # also noted if no row has a label
        names = [name.strip() for column in self._params.label_columns for name in batch.class_names.get(column, ())]
        self._schema_names |= dict.fromkeys(names)
        if not self._first and names:
            self._notation = Notation()  # a name is a label, whatever is in it
        elif not self._first:
            self._note_text_lists(batch, values)
        for row, value in enumerate(values):
            if isinstance(value, str) and value in self._spellings:
                self._rows[split] += 1
                continue
            if split != TRAIN and not self._minus_one_is_class and is_minus_one(value):
                self._rows[split] += 1
                self._minus_ones[split] += 1
                self._first_minus_one.setdefault(split, batch.where(row))
                continue
            several = isinstance(value, list) and self._problem_type in (None, "multi_label_classification")
            if not all(isinstance(label, _LABEL_TYPES) for label in (value if several else [value])):
                raise UserError(
                    f"{batch.where(row)}: {self._column} is {shown(value)}; a label is a text or a number, or with "
                    "data.problem_type=multi_label_classification a list"
                )
            items = self._notation.items(value)
            if self._notation.text_lists and text_of(value) and items == [value]:
                raise UserError(
                    f"{batch.where(row)}: {self._column} is {shown(value)}, but the labels before it are lists, as "
                    f"{self._several}; write all labels in the same way"
                )
            if several and any(isinstance(item, (float, Decimal)) and item % 1 for item in items if not missing(item)):
                raise UserError(
                    f"{batch.where(row)}: {self._column} is {shown(value)}; a list must hold labels, or 0 or 1 for "
                    "each label"
                )
            texts = texts_of(items)
            # Also "spam;", which would be another label than "spam" if it stood for one.
            separated = isinstance(value, str) and texts != texts_of([value])
            if not self._several and (several or len(texts) > 1 or separated):
                self._several = f"{shown(value)} in {batch.where(row)}"
            if several or texts:
                self._vectors.add(items, batch, row)
            for text in texts:
                if text not in self._first and HALF_CHARACTER.search(text):
                    raise UserError(
                        f"{batch.where(row)}: {self._column} is {shown(text)}, which is no Unicode; correct it"
                    )
                if len(self._first) < _KEPT:
                    self._first.setdefault(text, batch.where(row))
                elif text not in self._first:
                    if not self._kept_are_numbers:
                        raise self._too_many(f"more than {_KEPT:,} different labels")
                    self._check_target(text, batch.where(row))
            self._rows[split] += bool(texts)
            if texts and isinstance(value, str) and len(self._spellings) < _KEPT:
                self._spellings.add(value)
        if split == TRAIN:
            self._in_train = len(self._first)

    def _note_text_lists(self, batch: Batch, values: Sequence[Any]) -> None:
        """Note whether the first labels are lists that were saved as text."""
        row = next((row for row, value in enumerate(values) if isinstance(value, str) and value.strip()), None)
        if row is None or self._problem_type not in (None, "multi_label_classification"):
            return
        if all(isinstance(value, str) or missing(value) for value in values) and are_text_lists(values):
            self._notation = dataclasses.replace(self._notation, text_lists=True)
            self._several = f"{shown(values[row])} in {batch.where(row)}"
            log.info("%s: the labels are lists that were saved as text, such as %s", self._column, self._several)

    @functools.cached_property
    def _minus_one_is_class(self) -> bool:
        """Whether train has -1 as a class, or data.id2label lists it. Asked only after train."""
        return "-1" in (self._id2label or ()) or any(map(is_minus_one, self._first))

    @functools.cached_property
    def _kept_are_numbers(self) -> bool:
        return all(map(_number, self._first))

    def _check_target(self, text: str, where: str) -> None:
        if not _number(text) and _WRITTEN_NUMBER.fullmatch(text):
            raise self._written_number(text, where)
        if not _number(text) or not math.isfinite(float(text)) or abs(float(text)) > _LARGEST_TARGET:
            raise UserError(
                f"{where}: {self._column} is {shown(text)}; the target of a regression must be a finite number from "
                f"-{_LARGEST_TARGET:g} to {_LARGEST_TARGET:g}: correct it, scale the column down, remove the row, or "
                "for classes set data.problem_type"
            )

    def _check_written_numbers(self, texts: list[str]) -> None:
        """Raise UserError if labels are numbers with a decimal comma, a separator of thousands or a percent sign."""
        written = [text for text in texts if _WRITTEN_NUMBER.fullmatch(text)]
        odd = next((text for text in written if not _number(text)), None)
        if odd and 2 * len(written) > len(texts):
            raise self._written_number(odd, self._first[odd])

    def _written_number(self, text: str, where: str) -> UserError:
        remedy = "a percentage as a plain number (85 or 0.85)" if text.endswith("%") else "numbers with a point (0.5)"
        commas = "; if commas separate labels, set data.problem_type" * ("," in text)
        return UserError(
            f"{where}: {self._column} is {shown(text)}; write {remedy} and without other separators; if it is a class, "
            f"list all labels in data.id2label{commas}"
        )

    def labels(self) -> Labels:
        """What the labels are. Raises UserError where they do not fit data.problem_type, or data.id2label."""
        texts, id2label = list(self._first), self._id2label
        several = self._several or self._problem_type == "multi_label_classification"
        if self._in_train < (1 if several else 2):
            raise self._always(texts)
        kind = self._problem_type or self._inferred(texts[: self._in_train])
        unlabelled = self._unlabelled(kind)
        if kind == "multi_label_classification" and (length := self._vectors.length()):
            return self._vector_labels(length, unlabelled)
        if kind == "regression":
            for text, where in self._first.items():
                self._check_target(text, where)
            if id2label:
                raise UserError(f"data.id2label names classes, but {self._column} has numbers; set it to null")
            names, numbers = list[str](), dict[str, int]()
        elif id2label:
            names = list(id2label.values())
            numbers = {str(label): number for number, label in enumerate(id2label)}
            if other := next((text for text in texts if text not in numbers), None):
                raise UserError(
                    f"{self._first[other]}: {self._column} is {shown(other)}, which is none of data.id2label's "
                    f"{listing(numbers)}; correct it, or list it there"
                )
        elif self._schema_names and self._schema_names.keys() >= self._first.keys():
            names = [name for name in self._schema_names if name in self._first]
            numbers = {name: number for number, name in enumerate(names)}
            if unused := self._schema_names.keys() - names:
                log.info("%s: no row has the classes %s of the schema", self._column, listing(sorted(unused)))
        else:
            names, numbers = self._sorted(texts)
            self._check_minus_one(numbers)
            if len(names) < 2 and not several:  # as of 1 and 1.0
                raise self._always(texts)
            if len(names) > _MOST_CLASSES or (len(names) > _MOST_INTEGERS and self._rows.total() < 2 * len(names)):
                raise self._too_many(f"{len(names):,} different labels in {self._rows.total():,} rows")
        if kind != "regression":
            self._warn_of_look_alikes(numbers)
        return Labels(kind, names, numbers, self._notation, unlabelled)

    def _warn_of_look_alikes(self, numbers: Mapping[str, int]) -> None:
        """Warn of labels that are almost the same, and of lists that were saved as text among other labels."""
        spellings = list(self._first)
        if not self._several:
            stripped = {text_of(value): value for value in self._spellings}
            spellings = sorted(self._spellings) + [text for text in self._first if text not in stripped]
            lists = sorted(filter(is_quoted_list, spellings))
            if lists and len(lists) < len(spellings):
                self.warnings.append(
                    f"{self._column}: some labels look like lists that were saved as text, but not all: "
                    f"{listing(map(shown, lists), 3)}; each of them is read as a class"
                )
        groups: dict[Decimal | str, list[str]] = {}
        for text in spellings:
            plain = text_of(text) or ""
            groups.setdefault(Decimal(plain) if _has_value(plain) else look_alike_key(plain), []).append(text)
        pairs = []
        for group in groups.values():
            classes = len({numbers[text_of(text) or ""] for text in group})
            if len(group) > 1:
                read_as = f"{classes} different labels" if classes > 1 else "one label"
                pairs.append(f"{' and '.join(distinct(group[:3]))} ({read_as})")
        if pairs:
            more = f" and {len(pairs) - _MOST_PAIRS} more" * (len(pairs) > _MOST_PAIRS)
            self.warnings.append(
                f"{self._column}: labels that are almost the same: {', '.join(pairs[:_MOST_PAIRS])}{more}; write those "
                "that mean the same alike"
            )

    def _unlabelled(self, kind: ProblemType) -> list[str]:
        """Return the splits without labels. Raises UserError if labels that train does not have are -1 in some rows."""
        unlabelled = ["test"] if self._rows.get("test") == 0 else []
        for split, count in self._minus_ones.items():
            every = count == self._rows[split]
            # Of a regression, -1 is a number like any other, unless all of train's numbers are greater.
            if kind == "regression" and not (every and all(_number(text) and float(text) > -1 for text in self._first)):
                continue
            if not (every and split == "test"):
                raise UserError(
                    f"{self._first_minus_one[split]}: {self._column} is -1, as in {count:,} of {self._rows[split]:,} "
                    f"rows of {split}, but train has no label -1; if it means that the label is unknown, empty these "
                    "labels and set data.on_missing=drop; if it is a class, list all labels in data.id2label"
                )
            log.info("%s: all labels are -1, and train has no -1: the labels are taken for unknown", split)
            unlabelled.append(split)
        return unlabelled

    def _check_minus_one(self, numbers: Mapping[str, int]) -> None:
        """Raise UserError if -1 is among the class numbers 0, 1, 2 and so on; warn if it is among 0 and 1 alone."""
        label = next(filter(is_minus_one, numbers), None)
        if label is None or not all(map(_INTEGER.fullmatch, numbers)):
            return
        values = {int(Decimal(text)) for text in numbers}
        if min(values) < -1 or 0 not in values or len(values) != max(values) + 2:
            return
        mixture = f"{self._first[label]}: {self._column} is {label} among the numbers 0 to {max(values)}; "
        unknown = "if it means that the label is unknown, empty these labels and set data.on_missing=drop; "
        if max(values) > 1:
            raise UserError(f"{mixture}{unknown}if it is a class, list all labels in data.id2label")
        self.warnings.append(f"{mixture}{unknown}it is read as a class")

    def _vector_labels(self, length: int, unlabelled: list[str]) -> Labels:
        """The labels at the positions of multi-hot vectors: the columns, or numbers from 0; named by data.id2label."""
        columns = self._params.label_columns
        labels = columns if len(columns) > 1 else [str(position) for position in range(length)]
        id2label = self._id2label or dict(zip(labels, labels, strict=True))
        if id2label.keys() != set(labels):
            raise UserError(
                f"params.yaml: data.id2label names the labels {listing(id2label)}, but {self._vectors.example}, a "
                f"vector that holds 0 or 1 for each of {length} labels; name {listing(labels)}"
            )
        if length > _MOST_CLASSES:
            raise self._too_many(f"vectors of {length:,} labels")
        numbers = {label: number for number, label in enumerate(id2label)}
        has_names = self._id2label or len(columns) > 1
        log.info(
            "%s: multi-hot labels, which are 0 or 1 for each of %d labels: %s%s",
            self._column, length, listing(id2label.values()), "" if has_names else "; to name them, set data.id2label",
        )  # fmt: skip
        positions = [numbers[label] for label in labels]
        names = list(id2label.values())
        return Labels("multi_label_classification", names, numbers, self._notation, unlabelled, positions)

    def _inferred(self, texts: list[str]) -> ProblemType:
        if not self._several and not self._id2label and not self._schema_names:
            self._check_written_numbers(texts)
        number = all(_number(text) and not _CODE.match(text) for text in texts)
        whole = all(map(_INTEGER.fullmatch, texts))
        kind: ProblemType = "single_label_classification"
        if self._several:
            kind, why = "multi_label_classification", f"several labels, as {self._several}"
        elif self._id2label:
            why = "the classes of data.id2label"
        elif self._schema_names:
            why = f"the classes that the Parquet file names: {listing(self._schema_names)}"
        elif number and not (whole and len(texts) <= _MOST_INTEGERS):
            kind = "regression"
            why = f"more than {_MOST_INTEGERS} different whole numbers" if whole else "numbers that are not whole"
        else:
            why = f"{len(texts):,} different {'whole numbers' if number else 'texts'}: {listing(texts, 3)}"
        log.info("problem_type: %s, since %s has %s; to say otherwise, set data.problem_type", kind, self._column, why)
        return kind

    def _sorted(self, texts: list[str]) -> tuple[list[str], dict[str, int]]:
        """The names of classes in order, whole numbers by value, and the class of each label: 1.0 is that of 1."""
        codes = any(map(_CODE.match, texts)) and all(map(_number, texts))  # 01 to 12: names, all of them
        numbers = [] if codes else [text for text in texts if _has_value(text)]
        if len(numbers) < len(texts):
            if numbers:
                words = [text for text in texts if not _has_value(text)]
                odd, found = numbers[0], "a number among labels that are words"
                if len(words) < len(numbers):
                    odd, found = words[0], "a word among labels that are numbers"
                raise UserError(
                    f"{self._first[odd]}: {self._column} is {shown(odd)}, {found}; correct it, or list all labels in "
                    "data.id2label"
                )
            names = sorted(texts)
            return names, {text: number for number, text in enumerate(names)}
        names_of: dict[Decimal, str] = {}  # not floats, which are equal for long numbers that differ
        for text in texts:
            names_of.setdefault(Decimal(text), text)
        number_of = {value: number for number, value in enumerate(sorted(names_of))}
        return [names_of[value] for value in number_of], {text: number_of[Decimal(text)] for text in texts}

    def _always(self, texts: list[str]) -> UserError:
        found = f"is always {shown(texts[0]) if self._in_train else 'empty'}"
        return UserError(f"data.label_column_name: in train, {self._column} {found}; name another column")

    def _too_many(self, found: str) -> UserError:
        return UserError(
            f"data.label_column_name: {self._column} has {found}, too many for classes; name the column that has the "
            "labels, or for numbers set data.problem_type=regression"
        )


def _by_label(params: DataParams) -> dict[str, str] | None:
    """Return data.id2label by label. A list names the columns of labels, or the labels 0, 1 and so on."""
    if not isinstance(params.id2label, list):
        return params.id2label
    columns = params.label_columns
    labels = columns if len(columns) > 1 else [str(number) for number in range(len(params.id2label))]
    return dict(zip(labels, params.id2label, strict=True))


def _number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text))


def _has_value(text: str) -> bool:
    """Whether a name of a class is a number, and has its place by value."""
    return _number(text) and not text.lower().endswith("nan")
