"""The data card: counts and warnings about the data. Download writes and logs them, and the report shows them."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from pipeline.core.output import write_json
from pipeline.core.paths import read_output

DATA_CARD = "data_card.json"
# A column of validation and test: 2 if the whole row is also in train, 1 if only one of its texts is, and otherwise 0.
LEAKAGE = "leakage"
GROUP = "sample_group"  # a column of train: rows with the same number share a text or a value in data.split.column
MAX_TRUNCATED = 0.05  # a proportion: there is a warning if more examples are truncated


@dataclass(frozen=True, kw_only=True)
class SplitCard:
    """Counts of the rows of a split."""

    rows: int
    labels: list[int] = field(default_factory=list)  # the rows of each class or label, if the split has labels
    numbers: dict[str, float] = field(default_factory=dict)  # mean, std, min and max of the labels of a regression
    repeated: int = 0  # rows that also occur earlier in the split
    contradictory: int = 0  # repeated rows that also occur earlier with a different label
    identical: int = 0  # pairs of the same text twice


@dataclass(frozen=True, kw_only=True)
class Leak:
    """The overlap between two splits."""

    later: str
    earlier: str
    rows: int  # rows of `later` that are also in `earlier`
    texts: int  # rows of `later` with a text that is in `earlier`
    contradictory: int = 0  # rows of `rows` that have a different label in `earlier`


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A test of whether the labels of a split have the same distribution as the labels of train."""

    p: float
    label: int | None  # the class or label whose proportion differs most; None for a regression

    @property
    def significant(self) -> bool:
        return self.p < 0.05


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """Counts and warnings that a user should see before training."""

    splits: dict[str, SplitCard]
    leakage: list[Leak]
    shifts: dict[str, Shift]
    warnings: list[str]  # one line for each problem, with the number of rows and the first of them

    def write(self, directory: Path) -> None:
        write_json(directory / DATA_CARD, asdict(self))


def read_data_card(directory: Path) -> DataCard:
    """Read the data card in an output of download. Raises UserError if it is missing or damaged."""
    card = TypeAdapter(DataCard)
    return read_output(directory / DATA_CARD, "download", lambda path: card.validate_json(path.read_bytes()))
