"""Describe the columns of a table, and find the texts and the labels among them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN
from pipeline.core.text import closest_match, listing, literal
from pipeline.sources.files import SPLIT_ALIASES
from pipeline.sources.label_values import as_bit
from pipeline.sources.splits import read_dates
from pipeline.tabular.reading import is_missing

_MAX_LABELS = 100  # A column with more distinct values is only a label if its name or the user says so.
_EXAMPLES = 3
# Names that columns often have, normalized. If a table has names of several groups, the first group wins.
LABEL_NAMES = (
    ("label", "labels"),
    ("target", "class", "category", "sentiment", "intent", "topic", "is_spam", "spam", "toxic"),
    ("stars", "rating", "score", "y"),
)
_MEASUREMENTS = {"time", "timestamp", "duration", "confidence", "probability"}  # words in the names of other numbers
PAIR_NAMES = (
    ("premise", "hypothesis"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("question1", "question2"),
    ("text1", "text2"), ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("query", "passage"),
    ("question", "answer"), ("question", "sentence"), ("question", "passage"), ("claim", "evidence"),
)  # fmt: skip
TEXT_NAMES = (
    ("text", "sentence", "review", "content", "comment", "tweet", "message", "document"),
    ("body", "review_text", "reviewtext", "comment_text", "description", "question", "utterance", "query"),
    ("title", "headline", "subject"),  # Another column may have the text that belongs to it.
)


@dataclass(frozen=True)
class ColumnProfile:
    """What the values of a column look like.

    Attributes:
        type: "text", "number", "date", "yes/no", "split" (train and the names of other splits), "list" or "empty".
        distinct: The number of distinct values.
        missing: The number of rows without a value.
        length: The mean number of characters of a value.
        has_words: Whether most values contain a space or a character outside ASCII. Most URLs contain neither.
        has_fractions: Whether the values are numbers that are not all whole.
        examples: The first distinct values, formatted for people.
    """

    name: str
    type: str
    rows: int
    distinct: int
    missing: int
    length: float
    has_words: bool
    has_fractions: bool
    examples: list[str]


class Choice(NamedTuple):
    """The columns that contain the texts, or the labels.

    Attributes:
        columns: The names of the columns.
        reason: Why they were chosen. It completes "because".
    """

    columns: list[str]
    reason: str


def profile(name: str, column: pd.Series) -> ColumnProfile:
    """Describe a column as a file has it: texts of a CSV file, or values of JSON and Parquet files."""
    values = column[[not is_missing(value) and str(value).strip() != "" for value in column]]
    texts = values.map(str)
    distinct = texts.drop_duplicates()
    numbers = pd.to_numeric(distinct, errors="coerce")
    column_type = _type(values, distinct, numbers)
    return ColumnProfile(
        name=name,
        type=column_type,
        rows=len(column),
        distinct=len(distinct),
        missing=len(column) - len(values),
        length=float(texts.str.len().mean()) if len(texts) else 0.0,
        has_words=bool(distinct.str.contains(r"\s|[^\x00-\x7f]").mean() > 0.5),
        has_fractions=bool((numbers % 1 > 0).any()),
        examples=[literal(text) if column_type == "text" else text[:40] for text in distinct.iloc[:_EXAMPLES]],
    )


def _type(values: pd.Series, distinct: pd.Series, numbers: pd.Series) -> str:
    if values.empty:
        return "empty"
    if any(isinstance(value, list) for value in values):
        return "list"
    lowercase = {text.strip().lower() for text in distinct}
    splits = {SPLIT_ALIASES.get(text) for text in lowercase}
    if TRAIN in splits and len(splits) > 1 and None not in splits:
        return "split"
    if len(distinct) == 2 and lowercase in ({"yes", "no"}, {"true", "false"}, {"0", "1"}):
        return "yes/no"
    if numbers.notna().all():
        return "number"
    return "date" if read_dates(distinct.str.strip()).notna().all() else "text"


def choose_columns(
    columns: Sequence[ColumnProfile], texts: Sequence[str], labels: Sequence[str]
) -> tuple[Choice, Choice]:
    """Return the text columns and the label columns.

    Args:
        texts, labels: The columns that the user named, if any.

    Raises:
        UserError: The user named a column that does not exist, or a choice is not clear.
    """
    names = [column.name for column in columns]
    for name, option in [*((name, "--text") for name in texts), *((name, "--label") for name in labels)]:
        if name not in names:
            match = closest_match(name, names)
            hint = f' Did you mean "{match}"?' if match else ""
            raise UserError(f'{option} names the column "{name}", but the columns are: {listing(names, 20)}.{hint}')
    label = Choice(list(labels), "you chose it") if labels else _choose_label(columns, texts)
    text = Choice(list(texts), "you chose it") if texts else _choose_texts(columns, label.columns)
    return text, label


def _choose_label(columns: Sequence[ColumnProfile], texts: Sequence[str]) -> Choice:
    """Find the label column by its name, or else by its few distinct values.

    Args:
        texts: The text columns that the user named.

    Raises:
        UserError: No column qualifies, or several do.
    """
    candidates = [column for column in columns if column.name not in texts and column.type not in ("empty", "split")]
    if chosen := _by_name(candidates, LABEL_NAMES, "label"):
        return chosen
    candidates = [
        column
        for column in candidates
        if column.type != "number" or _MEASUREMENTS.isdisjoint(normalize_name(column.name).split("_"))
    ]
    few = [column for column in candidates if _has_few_values(column)]
    reason = "it is the only column with few distinct values"
    if not few:  # The labels of a regression may all differ. An index has no fractions.
        few = [column for column in candidates if column.type == "number" and column.has_fractions]
        reason = "it is the only column of numbers with fractions"
    if not few:
        names = listing(column.name for column in columns)
        has_objects = any(example.startswith("[{") for column in columns for example in column.examples)
        hint = " If the labels are inside objects, export the data in a flat format such as CSV." if has_objects else ""
        raise UserError(f"none of these columns looks like labels: {names}. Name the label column: --label NAME.{hint}")
    if len(few) > 1:
        raise _ambiguous("label", [column.name for column in few])
    return Choice([few[0].name], reason)


def binary_columns(columns: Sequence[ColumnProfile]) -> list[str]:
    """Return the columns of 0 and 1, or of false and true."""
    return [column.name for column in columns if column.type == "yes/no" and as_bit(column.examples[0]) is not None]


def _has_few_values(column: ColumnProfile) -> bool:
    """Return whether the values of a column look like classes: each occurs several times."""
    known = column.rows - column.missing
    return column.type != "date" and 2 <= column.distinct <= min(_MAX_LABELS, known / 2)


def _choose_texts(columns: Sequence[ColumnProfile], labels: Sequence[str]) -> Choice:
    """Find the text column, or the two columns of pairs, by their names, or else the column with the longest texts.

    Args:
        labels: The label columns.

    Raises:
        UserError: No column qualifies, or several do.
    """
    candidates = [
        column for column in columns if column.name not in labels and column.type == "text" and column.distinct > 1
    ]
    by_name = {normalize_name(column.name): column.name for column in candidates}
    for pair in PAIR_NAMES:
        if set(pair) <= by_name.keys():
            return Choice([by_name[name] for name in pair], "these are common names for the texts of pairs")
    if chosen := _by_name(candidates, TEXT_NAMES[:-1], "text"):
        return chosen
    if not candidates:
        names = listing(column.name for column in columns)
        raise UserError(f"none of these columns looks like texts: {names}. Name the text column: --text NAME.")
    candidates = [column for column in candidates if column.has_words] or candidates
    longest, *others = sorted(candidates, key=lambda column: -column.length)
    similar = [column for column in others if column.length > longest.length / 2]
    if chosen := _by_name([longest, *similar], TEXT_NAMES[-1:], "text"):
        return chosen
    if similar:
        raise _ambiguous("text", [column.name for column in (longest, *similar)])
    return Choice([longest.name], "it has the longest texts" if others else "it is the only column of texts")


def _by_name(candidates: Sequence[ColumnProfile], groups: Sequence[Sequence[str]], purpose: str) -> Choice | None:
    for group in groups:
        matches = [column.name for column in candidates if normalize_name(column.name) in group]
        if len(matches) > 1:
            raise _ambiguous(purpose, matches)
        if matches:
            return Choice(matches, f"this is a common name for a {purpose} column")
    return None


def normalize_name(name: str) -> str:
    """Return a name of a column in lowercase, with underscores instead of spaces and punctuation."""
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")


def _ambiguous(purpose: str, names: Sequence[str]) -> UserError:
    remedies = {
        "text": "For pairs of texts, name two columns",
        "label": "For several labels per text, name each column of 0 and 1",
    }
    return UserError(
        f"several columns could be the {purpose}: {listing(names)}. Choose with --{purpose} NAME. {remedies[purpose]}: "
        f"--{purpose} NAME --{purpose} NAME."
    )
