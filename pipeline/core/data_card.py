"""What download found in the data: `data/raw/data_card.json`, at the top of the log and of the report."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.core.output import write_json
from pipeline.core.paths import require

DATA_CARD = "data_card.json"
LEAKAGE = "leakage"  # column of data/raw: 0: no text of the row is in train; 1: one is; 2: the whole row is


@dataclass(frozen=True, kw_only=True)
class SplitCard:
    """A split.

    labels: rows with each class or label, in the task's order; of a regression, and without labels, none.
    numbers: of a regression mean, std, min and max. repeated: rows that occur earlier in the split too.
    contradictory: those of them with another label there. identical: pairs of a text with itself.
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
        rows: how many rows of the split `later` are also in the split `earlier`.
        texts: how many rows of `later` have a text that is in `earlier`.
        contradictory: how many of `rows` have another label in `earlier`.
    """

    later: str
    earlier: str
    rows: int
    texts: int
    contradictory: int = 0


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Whether a split's labels are distributed as train's.

    p: of the hypothesis that they are. label: the class or label whose share differs most; None for a regression.
    """

    p: float
    label: int | None

    @property
    def significant(self) -> bool:
        return self.p < 0.05


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """The splits, what they share, and what to know before training, a line each: counts, and the first rows."""

    splits: dict[str, SplitCard]
    leakage: list[Leak]
    shifts: dict[str, Shift]
    warnings: list[str]

    def write(self, directory: Path) -> None:
        content = asdict(self)
        for leak in content["leakage"]:
            if not leak["contradictory"]:  # most corpora have none, and their cards do not mention it
                del leak["contradictory"]
        write_json(directory / DATA_CARD, content)


def read_data_card(directory: Path) -> DataCard:
    """Of a directory that download has written. Raises UserError where it has none."""
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
