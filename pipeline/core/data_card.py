"""The data card: counts and warnings about the data. Download writes and logs them, and the report shows them."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from pipeline.core.output import write_json
from pipeline.core.paths import read_output

DATA_CARD = "data_card.json"
# A column of validation and test: 2 if the whole row is also in train, 1 if only one of its texts is, and otherwise 0.
LEAKAGE = "leakage"
# A column of train: rows with the same number share a text, or have the same value in data.split.column.
GROUP = "sample_group"
MAX_TRUNCATED = 0.05  # a proportion: there is a warning if more examples are truncated


@dataclass(frozen=True, kw_only=True)
class SplitCard:
    """Counts of the rows of a split.

    Attributes:
        labels: How many rows have each class or label. Empty for a regression, and if the split has no labels.
        numbers: The mean, std, min and max of the labels of a regression. Otherwise empty.
        repeated: How many rows also occur earlier in the split.
        contradictory: How many of the repeated rows also occur earlier with a different label.
        identical: How many pairs consist of the same text twice.
    """

    rows: int
    labels: list[int] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    repeated: int = 0
    contradictory: int = 0
    identical: int = 0


@dataclass(frozen=True, kw_only=True)
class Leak:
    """The overlap between two splits.

    Attributes:
        rows: How many rows of the split `later` are also in the split `earlier`.
        texts: How many rows of `later` have a text that is in `earlier`.
        contradictory: How many of `rows` have a different label in `earlier`.
    """

    later: str
    earlier: str
    rows: int
    texts: int
    contradictory: int = 0


@dataclass(frozen=True, kw_only=True)
class Shift:
    """The result of a test of whether the labels of a split have the same distribution as the labels of train.

    Attributes:
        p: The p-value. If it is small, the distributions differ.
        label: The class or label whose proportion differs most. None for a regression.
    """

    p: float
    label: int | None

    @property
    def significant(self) -> bool:
        return self.p < 0.05


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """Counts and warnings that a user should see before training.

    Attributes:
        warnings: One line for each problem, with the number of rows and the first of them.
    """

    splits: dict[str, SplitCard]
    leakage: list[Leak]
    shifts: dict[str, Shift]
    warnings: list[str]

    def write(self, directory: Path) -> None:
        write_json(directory / DATA_CARD, asdict(self))


def read_data_card(directory: Path) -> DataCard:
    """Read the data card in an output of download. Raises UserError if it is missing or damaged."""
    card = TypeAdapter(DataCard)
    return read_output(directory / DATA_CARD, "download", lambda path: card.validate_json(path.read_bytes()))
