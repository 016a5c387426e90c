"""The data card: what download counted in the data. It opens the log and the report."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.core.output import write_json
from pipeline.core.paths import require

DATA_CARD = "data_card.json"
LEAKAGE = "leakage"  # column of data/raw: 2 if train has the whole row, 1 if train has one of its texts, otherwise 0


@dataclass(frozen=True, kw_only=True)
class SplitCard:
    """The rows of a split.

    Attributes:
        labels: How many rows have each class or label; empty for a regression and without labels.
        numbers: The mean, std, min and max of the targets of a regression.
        repeated: How many rows also occur earlier in the split.
        contradictory: How many of these have another label there.
        identical: How many pairs are a text with itself.
    """

    rows: int
    labels: list[int] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    repeated: int = 0
    contradictory: int = 0
    identical: int = 0


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What two splits share.

    Attributes:
        rows: How many rows of the split `later` are also in the split `earlier`.
        texts: How many rows of `later` have a text that is in `earlier`.
        contradictory: How many of `rows` have another label in `earlier`.
    """

    later: str
    earlier: str
    rows: int
    texts: int
    contradictory: int = 0


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Whether the labels of a split are distributed as those of train.

    Attributes:
        p: The p-value of the hypothesis that they are.
        label: The class or label whose proportion differs most; None for a regression.
    """

    p: float
    label: int | None

    @property
    def significant(self) -> bool:
        return self.p < 0.05


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """What to know about the data before training.

    Attributes:
        warnings: Lines with counts and the first rows.
    """

    splits: dict[str, SplitCard]
    leakage: list[Leak]
    shifts: dict[str, Shift]
    warnings: list[str]

    def write(self, directory: Path) -> None:
        write_json(directory / DATA_CARD, asdict(self))


def read_data_card(directory: Path) -> DataCard:
    """Read the data card in an output of download. Raises UserError if it is missing or damaged."""
    path = require(directory / DATA_CARD, "download")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return DataCard(
            splits={split: SplitCard(**card) for split, card in content["splits"].items()},
            leakage=[Leak(**leak) for leak in content["leakage"]],
            shifts={split: Shift(**shift) for split, shift in content["shifts"].items()},
            warnings=content["warnings"],
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f'{path} is not a data card ({error}); run "dvc repro -f download"') from None
