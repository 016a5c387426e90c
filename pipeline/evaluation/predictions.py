"""The predictions of a split: the only reader of `data/predictions`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.paths import SWAPPED
from pipeline.core.task import Task
from pipeline.evaluation.metrics import Floats, Ints, Values, probabilities


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for the n rows of a split.

    idx: the rows' ids, shape (n,). labels, predicted: as `metrics.Values`. logits: shape (n, outputs). probability: of
    each class or label, of that shape; of a regression None. swapped: what is predicted for pairs with their texts
    swapped, None where predict has not scored them so.
    """

    idx: Ints
    labels: Values
    predicted: Values
    logits: Floats
    probability: Floats | None
    swapped: Values | None

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each prediction is the label, of several labels all of them. Shape (n,)."""
        same: NDArray[np.bool_] = (self.labels == self.predicted).reshape(len(self.labels), -1).all(axis=1)
        return same

    @property
    def confidence(self) -> Floats:
        """Probability of the predicted class, shape (n,); of several labels, that of each 0 or 1, shape (n, labels)."""
        assert self.probability is not None
        if self.predicted.ndim == 2:
            return np.where(self.predicted == 1, self.probability, 1 - self.probability)
        return np.take_along_axis(self.probability, self.predicted[:, None], axis=1)[:, 0]

    def sorted_by_idx(self) -> "Predictions":
        """The same rows in the order of `idx`."""
        order = np.argsort(self.idx, kind="stable")
        columns: dict[str, Any] = {name: of[order] for name, of in vars(self).items() if isinstance(of, np.ndarray)}
        return replace(self, **columns)


def load_predictions(directory: Path, split: str, task: Task) -> Predictions:
    """Read `directory/split.parquet`, and `directory/split_swapped.parquet` where there is one.

    Raises UserError where the first is missing and where one is not a parquet file.
    """
    from pipeline.core.tables import read_split, to_numpy

    table = read_split(directory, split, "predict")
    logits = np.empty((len(table), task.outputs))
    for output in range(task.outputs):
        logits[:, output] = to_numpy(table[f"logit_{output}"])
    swapped = None
    if (directory / f"{split}{SWAPPED}.parquet").exists():
        swapped = to_numpy(read_split(directory, split + SWAPPED, "predict")["prediction"])
    return Predictions(
        idx=to_numpy(table["idx"]),
        labels=to_numpy(table["label"]),
        predicted=to_numpy(table["prediction"]),
        logits=logits,
        probability=None if task.problem_type == "regression" else probabilities(task.problem_type, logits),
        swapped=swapped,
    )
