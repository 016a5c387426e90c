"""The predictions of a split. No other module reads the Parquet files in `data/predictions` and `data/baseline`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.core.parquet import read_rows, to_numpy
from pipeline.core.task import Task
from pipeline.evaluation.metrics import METRICS, Floats, Ints, Values, is_correct
from pipeline.modeling.outputs import Logits, logits_to_predictions, logits_to_probabilities, value_probabilities


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for the n examples of a split.

    Attributes:
        idx: The ids of the examples in ascending order, shape (n,).
        probability: The probability of each class or label, shape (n, outputs). None for a regression.
        rows: The text columns, the slice columns and the column `core.task.LEAKAGE` of the examples.
    """

    idx: Ints
    labels: Values
    predicted: Values
    logits: Logits
    probability: Floats | None
    rows: pd.DataFrame

    @property
    def is_correct(self) -> NDArray[np.bool_]:
        """Whether each prediction is correct, shape (n,). With several labels per example, all must be correct."""
        return is_correct(self.labels, self.predicted)

    @property
    def is_constant(self) -> bool:
        """Whether all predictions are the same."""
        return bool((self.predicted == self.predicted[0]).all())

    @property
    def confidence(self) -> Floats:
        """The probability of the predicted class, shape (n, 1), or of each predicted 0 or 1, shape (n, labels)."""
        assert self.probability is not None
        return value_probabilities(self.probability, self.predicted)

    def score(self, metric: str) -> float:
        return METRICS[metric].compute(self.labels, self.predicted, self.probability)

    def __len__(self) -> int:
        return len(self.idx)

    def __getitem__(self, positions: Any) -> "Predictions":
        """Return the predictions at these positions, or where a mask is True."""
        arrays = {name: column[positions] for name, column in self._arrays().items()}
        return replace(self, **arrays, rows=self.rows.iloc[positions].reset_index(drop=True))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: column for name, column in vars(self).items() if isinstance(column, np.ndarray)}


def write_predictions(path: Path, task: Task, examples: pa.Table, logits: Logits) -> None:
    """Add the columns `prediction`, `logit_0`, `logit_1` and so on to rows of data/raw, and write them as Parquet."""
    columns = {"prediction": pa.array(list(logits_to_predictions(task.problem_type, logits)))}
    columns |= {f"logit_{output}": pa.array(logits[:, output].astype(np.float64)) for output in range(task.outputs)}
    for name, values in columns.items():
        examples = examples.append_column(name, values)
    pq.write_table(examples, path)


def load_predictions(directory: Path, split: str, task: Task) -> Predictions:
    """Read `directory/split.parquet`, which `write_predictions` wrote."""
    table = read_rows(directory, split)
    outputs = [f"logit_{output}" for output in range(task.outputs)]
    logits = np.column_stack([to_numpy(table[name]) for name in outputs])
    return Predictions(
        idx=to_numpy(table["idx"]),
        labels=to_numpy(table["label"]),
        predicted=to_numpy(table["prediction"]),
        logits=logits,
        probability=logits_to_probabilities(task.problem_type, logits),
        rows=table.drop_columns(["idx", "label", "prediction", *outputs]).to_pandas(),
    )


def pool(parts: Sequence[Predictions]) -> Predictions:
    """Join the predictions for disjoint sets of examples, in the order of their ids."""
    arrays = {name: np.concatenate([part._arrays()[name] for part in parts]) for name in parts[0]._arrays()}
    rows = pd.concat([part.rows for part in parts], ignore_index=True)
    return replace(parts[0], **arrays, rows=rows)[np.argsort(arrays["idx"])]


def label_probability(probability: Floats, labels: Values) -> Floats:
    """Return the probability of each example's label, or of its exact combination of labels, shape (n,)."""
    return np.asarray(value_probabilities(probability, labels).prod(axis=1))


def count_changed(task: Task, a: Sequence[Predictions], b: Sequence[Predictions]) -> int:
    """Count the examples with a label that the runs of one side get right more often than the runs of the other."""
    # Numbers and ranks change for every example.
    if task.is_regression or METRICS[task.metrics[0]].is_ranking:
        return len(a[0])
    correct_a, correct_b = (np.mean([run.labels == run.predicted for run in runs], axis=0) for runs in (a, b))
    return int((correct_a != correct_b).reshape(len(a[0]), -1).any(axis=1).sum())
