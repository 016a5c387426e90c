"""The task: download writes it as task.json next to the rows, and every later stage reads it."""

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
NO_LABEL = -100  # ignored by the losses of torch and by the Trainer

# The names of transformers' config.
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the examples are, and what to predict for them.

    Attributes:
        name: The value of `data.task`.
        text_columns: One column, or two for pairs.
        labels: The names of the classes, in the order of the model's outputs; empty for a regression.
        metrics: Names in `evaluation.metrics`. Verdicts rest on the first one.
        metric_for_best_model: The metric that chooses the epoch.
        predicted_splits: All splits except train, validation first.
        unlabeled_splits: The splits whose labels are not known, so that they have no scores.
        slice_columns: Further columns. The report has scores for each of their values.
    """

    name: str
    problem_type: ProblemType
    text_columns: list[str]
    labels: list[str]
    metrics: list[str]
    metric_for_best_model: str
    predicted_splits: list[str]
    unlabeled_splits: list[str] = field(default_factory=list)
    slice_columns: list[str] = field(default_factory=list)

    @property
    def splits(self) -> list[str]:
        return [TRAIN, *self.predicted_splits]

    @property
    def scored_splits(self) -> list[str]:
        return [split for split in self.predicted_splits if split not in self.unlabeled_splits]

    @property
    def verdict_split(self) -> str:
        """The split on which verdicts rest: test if it has labels, because validation has chosen the epoch."""
        return "test" if "test" in self.scored_splits else "validation"

    @property
    def pairs(self) -> bool:
        return len(self.text_columns) == 2

    @property
    def noun(self) -> str:
        """What messages call the examples."""
        return "pairs" if self.pairs else "texts"

    @property
    def binary(self) -> bool:
        """Whether there are two classes; the second is the positive one."""
        return self.problem_type == "single_label_classification" and len(self.labels) == 2

    @property
    def baseline(self) -> str:
        """What a model that ignores its input predicts: the majority, of the classes or for each label, or the mean."""
        return "mean" if self.problem_type == "regression" else "majority"

    @property
    def outputs(self) -> int:
        """How many numbers the model returns for an example."""
        return len(self.labels) or 1

    def write(self, directory: Path) -> None:
        write_json(directory / TASK, asdict(self))


def read_task(directory: Path, producer: str) -> Task:
    """Read the task in an output of the stage `producer`. Raises UserError if it is missing or damaged."""
    path = require(directory / TASK, producer)
    try:
        content: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8"))
        return Task(**content)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise UserError(f'{path} is not a task ({error}); run "dvc repro -f {producer}"') from None
