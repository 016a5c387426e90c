"""The task: download writes it as task.json next to the rows, and every later stage reads it."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pipeline.core.output import write_json
from pipeline.core.paths import read_record

TASK = "task.json"  # in data/raw, data/tokenized, data/predictions, data/baseline/linear and data/baseline/frozen
TRAIN = "train"
# A column of validation and test: 2 if the whole row is also in train, 1 if only one of its texts is, and otherwise 0.
LEAKAGE = "leakage"
MAX_TRUNCATED = 0.05  # a proportion: there is a warning if more examples are truncated

# The values of `problem_type` in the config of a transformers model.
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The columns of the examples, and what to predict for them.

    Attributes:
        name: The value of `data.task`.
        text_columns: One column with texts, or two columns for pairs of texts.
        labels: The names of the classes, in the order of the model's outputs. Empty for a regression.
        metrics: Keys of `evaluation.metrics.METRICS`. Verdicts are based on the first one.
        metric_for_best_model: The metric, or "loss", by which the best epoch is chosen.
        predicted_splits: All splits except train, validation first.
        unlabeled_splits: The splits without known labels. They have no scores.
        slice_columns: Additional columns. The report has scores for each of their values.
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
    def is_single_label(self) -> bool:
        return self.problem_type == "single_label_classification"

    @property
    def is_multi_label(self) -> bool:
        return self.problem_type == "multi_label_classification"

    @property
    def is_regression(self) -> bool:
        return self.problem_type == "regression"

    @property
    def splits(self) -> list[str]:
        return [TRAIN, *self.predicted_splits]

    @property
    def scored_splits(self) -> list[str]:
        return [split for split in self.predicted_splits if split not in self.unlabeled_splits]

    @property
    def verdict_split(self) -> str:
        """The split that verdicts are based on: test if it has labels, because the epoch was chosen on validation."""
        return "test" if "test" in self.scored_splits else "validation"

    @property
    def verdict_split_first(self) -> list[str]:
        """The splits with scores, starting with the one that verdicts are based on."""
        return sorted(self.scored_splits, key=lambda split: split != self.verdict_split)

    @property
    def has_pairs(self) -> bool:
        return len(self.text_columns) == 2

    @property
    def noun(self) -> str:
        """The word for the examples in messages, in the plural."""
        return f"{self.singular_noun}s"

    @property
    def singular_noun(self) -> str:
        return "pair" if self.has_pairs else "text"

    @property
    def is_binary(self) -> bool:
        """Whether the task has exactly two classes. The second one is the positive class."""
        return self.is_single_label and len(self.labels) == 2

    @property
    def constant_baseline(self) -> str:
        """What the constant baseline predicts. With several labels, it is the more frequent of 0 and 1 for each."""
        return "mean" if self.is_regression else "majority"

    @property
    def outputs(self) -> int:
        return len(self.labels) or 1

    def format_label(self, label: Any, separator: str, if_empty: str) -> str:
        """Return a number, the name of a class, or the names of several labels (`if_empty` if it has none)."""
        if self.is_regression:
            return f"{label:.7g}"  # what fp32 can tell apart
        if self.is_single_label:
            return self.labels[int(label)]
        return separator.join(name for name, present in zip(self.labels, label, strict=True) if present) or if_empty

    def write(self, directory: Path) -> None:
        write_json(directory / TASK, asdict(self))


def read_task(directory: Path) -> Task:
    """Read the task in an output of a stage. Raises UserError if it is missing or damaged."""
    return read_record(directory / TASK, Task)
