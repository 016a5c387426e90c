"""What kind of task this is: download writes it as `task.json` beside the rows, and every later stage reads it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pipeline.core.messages import UserError
from pipeline.core.output import write_json
from pipeline.core.paths import require

TASK = "task.json"  # in data/raw, data/tokenized and data/predictions
TRAIN = "train"
NO_LABEL = -100  # ignored by the losses of torch, and not counted by the Trainer

# The names of transformers' config.
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The rows and what to predict of them.

    name: that of `data.task`. text_columns: one, or two for pairs. labels: the names of the classes, in the order of
    the model's outputs; of a regression, none. metrics: names in `evaluation.metrics`; the verdicts rest on the first.
    metric_for_best_model: of them, the one that chooses the epoch. predicted: the splits beside train, validation
    first. unlabelled: those of them whose labels are not known, and that are not scored.
    slice_columns: further columns of the rows, by whose values the report scores apart.
    """

    name: str
    problem_type: ProblemType
    text_columns: list[str]
    labels: list[str]
    metrics: list[str]
    metric_for_best_model: str
    predicted: list[str]
    unlabelled: list[str] = field(default_factory=list)
    slice_columns: list[str] = field(default_factory=list)

    @property
    def splits(self) -> list[str]:
        return [TRAIN, *self.predicted]

    @property
    def scored(self) -> list[str]:
        return [split for split in self.predicted if split not in self.unlabelled]

    @property
    def verdict_split(self) -> str:
        """The split on which verdicts rest: test, since validation has chosen the epoch; else validation."""
        return "test" if "test" in self.scored else "validation"

    @property
    def pairs(self) -> bool:
        return len(self.text_columns) == 2

    @property
    def noun(self) -> str:
        """What to call the rows."""
        return "pairs" if self.pairs else "texts"

    @property
    def binary(self) -> bool:
        """Whether there are two classes; the second is the positive one."""
        return self.problem_type == "single_label_classification" and len(self.labels) == 2

    @property
    def baseline(self) -> str:
        """What a model that knows nothing answers: the majority class, of several labels each one's, or the mean."""
        return "mean" if self.problem_type == "regression" else "majority"

    @property
    def outputs(self) -> int:
        """How many numbers the model gives for a row."""
        return len(self.labels) or 1

    def write(self, directory: Path) -> None:
        write_json(directory / TASK, asdict(self))


def read_task(directory: Path, producer: str) -> Task:
    """The task of a directory, an output of the stage `producer`. Raises UserError where it has none."""
    path = require(directory / TASK, producer)
    try:
        content: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8"))
        return Task(**content)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise UserError(f'{path} is not a task ({error}); run "dvc repro -f {producer}"') from None
