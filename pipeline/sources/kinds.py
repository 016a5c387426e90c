"""What the labels of the user's own rows are: classes, several labels each, or numbers; and their encoding."""

import functools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.messages import UserError, log
from pipeline.core.tables import from_numpy
from pipeline.core.task import ProblemType
from pipeline.params import DataParams
from pipeline.tabular.reading import HALF_CHARACTER, Batch, listing, missing, shown

# The scores of each kind of labels. Verdicts rest on the first.
METRICS = {
    "binary": ["accuracy", "f1", "matthews_correlation"],
    "single_label_classification": ["accuracy", "f1_macro", "matthews_correlation"],
    "multi_label_classification": ["f1_micro", "f1_macro", "accuracy"],
    "regression": ["pearson", "spearmanr", "rmse"],
}
_MOST_INTEGERS = 20  # different whole numbers that are taken for classes
_MOST_CLASSES = 1000
_LARGEST_TARGET = 1e15  # the sum of the squares of millions of such numbers fits into single precision
_KEPT = 20_000  # different labels, beyond which they are not classes
_INTEGER = re.compile(r"[+-]?\d+(\.0*)?")  # 1.0, too: pandas writes whole numbers so where one is missing
_CODE = re.compile(r"[+-]?0\d")  # as 007: a name, whose zeros count
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Labels:
    """problem_type, and of classes or several labels their names in order, and the number of each by its text."""

    problem_type: ProblemType
    names: list[str]
    numbers: dict[str, int]
    separator: re.Pattern[str] | None

    @property
    def metrics(self) -> list[str]:
        binary = self.problem_type == "single_label_classification" and len(self.names) == 2
        return METRICS["binary" if binary else self.problem_type]

    def encode(self, values: Sequence[Any]) -> tuple[pa.Array, list[int]]:
        """The label column of a batch, and the rows whose label is missing; these have a 0 there."""
        if self.problem_type == "multi_label_classification":
            matrix = np.zeros((len(values), len(self.names)), dtype=np.int64)
            for row, value in enumerate(values):
                for item in items(value, self.separator):
                    matrix[row, self.numbers[item]] = 1
            column = pa.FixedSizeListArray.from_arrays(from_numpy(matrix.ravel()), len(self.names))
            return column, [row for row, value in enumerate(values) if missing(value)]
        texts = [text_of(value) for value in values]
        absent = [row for row, text in enumerate(texts) if text is None]
        if self.problem_type == "regression":
            return from_numpy(np.array([float(text or 0) for text in texts])), absent
        return from_numpy(np.array([0 if text is None else self.numbers[text] for text in texts])), absent


def text_of(label: Any) -> str | None:
    """A label as it stands in a file; None where it is missing."""
    text = label.strip() if isinstance(label, str) else "" if missing(label) else str(label)
    return text or None


def items(value: Any, separator: re.Pattern[str] | None) -> list[str]:
    """The texts of several labels."""
    if not isinstance(value, list):
        value = separator.split(value) if separator and isinstance(value, str) else [value]
    return [text for text in map(text_of, value) if text is not None]


class LabelReader:
    """Finds out what the labels are: give it the batches of all splits, train's first."""

    def __init__(self, params: DataParams) -> None:
        self._params = params
        self._column = params.label_column_name
        self._first: dict[str, str] = {}  # where each label first stands, in order
        self._in_train = 0  # how many of these train has
        self._rows = 0
        self._several = ""  # where several labels first stand
        separators = {None: "[|;]", "multi_label_classification": "[|;,]"}.get(params.problem_type)
        self._separator = re.compile(separators) if separators else None

    def add(self, batch: Batch, values: Iterable[Any], of_train: bool) -> int:
        """Note the labels of a batch; returns how many rows have one. Raises UserError where they cannot be labels."""
        labelled = 0
        for row, value in enumerate(values):
            if isinstance(value, str) and value in self._first:
                labelled += 1
                continue
            several = isinstance(value, list) and self._params.problem_type in (None, "multi_label_classification")
            if not all(isinstance(one, (str, int, float, type(None))) for one in (value if several else [value])):
                raise UserError(
                    f"{batch.where(row)}: {self._column} is {shown(value)}; a label is a text or a number, or with "
                    "data.problem_type=multi_label_classification a list"
                )
            texts = items(value, self._separator)
            # Also "spam;", which would be another label than "spam" if it stood for one.
            separated = isinstance(value, str) and texts != items(value, None)
            if not self._several and (several or len(texts) > 1 or separated):
                self._several = f"{shown(value)} in {batch.where(row)}"
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
            labelled += bool(texts)
        self._rows += labelled
        if of_train:
            self._in_train = len(self._first)
        return labelled

    @functools.cached_property
    def _kept_are_numbers(self) -> bool:
        return all(map(_number, self._first))

    def _check_target(self, text: str, where: str) -> None:
        if not _number(text) or not math.isfinite(float(text)) or abs(float(text)) > _LARGEST_TARGET:
            raise UserError(
                f"{where}: {self._column} is {shown(text)}; the target of a regression must be a finite number from "
                f"-{_LARGEST_TARGET:g} to {_LARGEST_TARGET:g}: correct it, scale the column down, remove the row, or "
                "for classes set data.problem_type"
            )

    def labels(self) -> Labels:
        """What the labels are. Raises UserError where they do not fit data.problem_type, or data.id2label."""
        texts, id2label = list(self._first), self._params.id2label
        several = self._several or self._params.problem_type == "multi_label_classification"
        if self._in_train < (1 if several else 2):
            raise self._always(texts)
        kind = self._params.problem_type or self._inferred(texts[: self._in_train])
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
        else:
            names, numbers = self._sorted(texts)
            if len(names) < 2 and not several:  # as of 1 and 1.0
                raise self._always(texts)
            if len(names) > _MOST_CLASSES or (len(names) > _MOST_INTEGERS and self._rows < 2 * len(names)):
                raise self._too_many(f"{len(names):,} different labels in {self._rows:,} rows")
        return Labels(kind, names, numbers, self._separator if kind == "multi_label_classification" else None)

    def _inferred(self, texts: list[str]) -> ProblemType:
        number = all(_number(text) and not _CODE.match(text) for text in texts)
        whole = all(map(_INTEGER.fullmatch, texts))
        kind: ProblemType = "single_label_classification"
        if self._several:
            kind, why = "multi_label_classification", f"several labels, as {self._several}"
        elif self._params.id2label:
            why = "the classes of data.id2label"
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


def _number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text))


def _has_value(text: str) -> bool:
    """Whether a name of a class is a number, and has its place by value."""
    return _number(text) and not text.lower().endswith("nan")
