"""The data card: counts and warnings about the data. Download writes and logs them, and the report shows them."""

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.core.paths import read_record
from pipeline.core.task import Task
from pipeline.core.text import format_number, literal

DATA_CARD = "data_card.json"
STATISTICS = ("mean", "std", "min", "max")  # of the labels of a regression; "std" is the one that pandas computes
_SOME_LABELS = 20  # With more than twice as many, the label table has the most frequent and the rarest of them.


@dataclass(frozen=True, kw_only=True)
class SplitCard:
    """Counts of the rows of a split."""

    rows: int
    longest: int = 0  # the length of the longest text, in characters
    labels: list[int] = field(default_factory=list)  # the rows of each class or label, if the split has labels
    numbers: dict[str, float] = field(default_factory=dict)  # the `STATISTICS` of a regression
    half_empty: int = 0  # pairs with an empty text
    repeated: int = 0  # rows that also occur earlier in the split
    contradictory: int = 0  # repeated rows that also occur earlier with a different label


@dataclass(frozen=True, kw_only=True)
class Leak:
    """The overlap between two splits."""

    later: str
    earlier: str
    rows: int  # rows of `later` that are also in `earlier`
    texts: int  # rows of `later` with a text that is in `earlier`
    contradictory: int = 0  # rows of `rows` that have a different label in `earlier`


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """Counts and warnings that a user should see before training."""

    splits: dict[str, SplitCard]
    leakage: list[Leak]
    warnings: list[str]  # one line for each problem, with the number of rows and the first of them


def read_data_card(directory: Path) -> DataCard:
    """Read the data card in an output of download. Raises UserError if it is missing or damaged."""
    return read_record(directory / DATA_CARD, DataCard)


def label_table(task: Task, card: DataCard) -> list[list[str]]:
    """Return the label table, with a column for each split. The most frequent labels of train come first."""
    splits = [card.splits[split] for split in task.splits]
    table = [["", *task.splits], ["rows", *(f"{split.rows:,}" for split in splits)]]
    table.append(["longest text", *(f"{split.longest:,}" for split in splits)])
    for name in STATISTICS if splits[0].numbers else ():
        table.append([name, *(format_number(split.numbers[name]) if split.numbers else "?" for split in splits)])
    labels = []
    for n in sorted(range(len(task.labels)), key=lambda number: -splits[0].labels[number]):
        counts = (
            f"{split.labels[n]:,} ({split.labels[n] / split.rows:.1%})" if split.labels else "?" for split in splits
        )
        labels.append([literal(task.labels[n]), *counts])
    if len(labels) > 2 * _SOME_LABELS:  # The rarest labels stay, because they may be mistakes.
        more = f"... {len(labels) - 2 * _SOME_LABELS:,} more labels"
        labels[_SOME_LABELS:-_SOME_LABELS] = [[more, *[""] * len(splits)]]
    return table + labels
