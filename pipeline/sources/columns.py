"""Show the columns of a table, and choose the texts and the labels among them if the choice is clear."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN
from pipeline.core.text import aligned, listing, shortened
from pipeline.sources.files import SPLIT_ALIASES, SPLITS
from pipeline.sources.tables import Table

_WIDTH = 80  # of a terminal
_MAX_LABELS = 100
# Names that columns often have, in lowercase, without spaces and punctuation.
_LABEL_NAMES = ("label", "labels", "target", "class", "category", "sentiment", "stars", "rating", "score")
_TEXT_NAMES = ("text", "sentence", "review", "reviewtext", "content", "comment", "tweet", "message", "document", "body")
_PAIR_NAMES = (
    ("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"), ("text1", "text2"),
    ("texta", "textb"), ("question", "answer"), ("question", "sentence"), ("query", "passage"), ("claim", "evidence"),
)  # fmt: skip
_SPLIT_NAMES = ("split", "fold", "set", "isvalid", "istest")


class Column(NamedTuple):
    """A column as a user should see it."""

    name: str
    values: pd.Series  # the distinct values as texts, in the order of the rows, without empty ones
    rows: int
    empty: int  # the number of rows whose value is missing, or has only spaces

    @property
    def simple_name(self) -> str:
        return re.sub(r"[\W_]+", "", self.name.lower())

    @property
    def has_long_texts(self) -> bool:
        """Whether a text has three words or more on average, and not every row has the same text."""
        return len(self.values) > 1 and bool(self.values.str.count(r"\S+").mean() >= 3)


def read_columns(table: Table) -> list[Column]:
    """Return the columns of a table."""
    columns = []
    for name in table.rows:
        texts = pd.Series(["" if value is None else str(value).strip() for value in table.rows[name]], dtype=object)
        is_empty = texts == ""
        columns.append(Column(name, texts[~is_empty].drop_duplicates(), len(texts), int(is_empty.sum())))
    return columns


def describe_columns(columns: Sequence[Column]) -> list[str]:
    """Return a table for a terminal, with a row for each column."""
    cells, examples = [["column", "distinct", "empty", "longest"]], ["examples"]
    for column in columns:
        longest = max(column.values.str.len(), default=0)
        numbers = [f"{len(column.values):,}", f"{column.empty / column.rows:.1%}", f"{longest:,}"]
        cells.append([shortened(column.name, 30), *numbers])
        examples.append(", ".join(repr(value[:_WIDTH]) for value in column.values.iloc[:3]))
    lines = [f"{line}  " for line in aligned(cells, "right")]
    return [line + shortened(text, _WIDTH - len(lines[0])) for line, text in zip(lines, examples, strict=True)]


def choose_labels(columns: Sequence[Column]) -> list[str]:
    """Return the label column. Raises UserError if the choice is not clear."""
    by_name = [[column.name] for column in columns if column.simple_name in _LABEL_NAMES]
    few = [[c.name] for c in columns if 2 <= len(c.values) <= min(_MAX_LABELS, (c.rows - c.empty) / 2)]
    remedy = "Name it: --label NAME. If each label has a column of 0 and 1, name all of them."
    return _choose("labels", columns, by_name or few, remedy)


def choose_texts(columns: Sequence[Column]) -> list[str]:
    """Return the text column, or the two columns of pairs. Raises UserError if the choice is not clear."""
    names = {column.simple_name: column.name for column in columns}
    pairs = [[names[first], names[second]] for first, second in _PAIR_NAMES if first in names and second in names]
    in_pairs = {name for pair in pairs for name in pair}
    texts = [[c.name] for c in columns if c.simple_name in _TEXT_NAMES and c.name not in in_pairs]
    long = [[column.name] for column in columns if column.has_long_texts]
    return _choose("texts", columns, pairs + texts or long, "Name it: --text NAME. For pairs, name two.")


def _choose(content: str, columns: Sequence[Column], candidates: list[list[str]], remedy: str) -> list[str]:
    if len(candidates) == 1:
        return candidates[0]
    names = [" and ".join(candidate) for candidate in candidates] or [column.name for column in columns]
    raise UserError(f"it is not clear which column has the {content}: {listing(names)}. {remedy}")


def choose_split(columns: Sequence[Column]) -> tuple[str | None, list[str]]:
    """Return the column with words for the split of each row, and the other columns that are named like a split."""
    by_name = [column for column in columns if column.simple_name in _SPLIT_NAMES]
    used = next((column.name for column in by_name if _has_splits(column)), None)
    return used, [column.name for column in by_name if column.name != used]


def _has_splits(column: Column) -> bool:
    splits = {SPLIT_ALIASES.get(value.lower()) for value in column.values}
    return not column.empty and {TRAIN, "validation"} <= splits <= {*SPLITS}
