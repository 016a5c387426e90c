"""The predictions of a split: the only reader of `data/predictions`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.paths import SWAPPED
from pipeline.evaluation.metrics import Floats, Ints


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for the n pairs of a split.

    idx: the pairs' ids in the corpus. labels, predicted: classes. probability: of class 1. swapped: the classes
    predicted with the sentences swapped, None where predict has not scored them so. Each has shape (n,).
    logits: shape (n, 2). classes: the name of each class.
    """

    idx: Ints
    labels: Ints
    predicted: Ints
    probability: Floats
    logits: Floats
    swapped: Ints | None
    classes: list[str]

    @property
    def confidence(self) -> Floats:
        """Probability of the predicted class, shape (n,)."""
        return np.where(self.predicted == 1, self.probability, 1 - self.probability)

    @property
    def majority(self) -> int:
        """The more frequent class of the labels; 1 where both are equally frequent."""
        return int(np.mean(self.labels) >= 0.5)

    def sorted_by_idx(self) -> "Predictions":
        """The same pairs in the order of `idx`."""
        order = np.argsort(self.idx, kind="stable")
        columns: dict[str, Any] = {name: of[order] for name, of in vars(self).items() if isinstance(of, np.ndarray)}
        return replace(self, **columns)


def load_predictions(directory: Path, split: str) -> Predictions:
    """Read `directory/split.parquet`, and `directory/split_swapped.parquet` where there is one.

    Raises UserError where the first is missing and where one is not a parquet file.
    """
    from pipeline.core.tables import class_names, read_split, to_numpy

    table = read_split(directory, split, "predict")
    columns = {name: to_numpy(table[name]) for name in table.column_names}
    swapped = None
    if (directory / f"{split}{SWAPPED}.parquet").exists():
        swapped = to_numpy(read_split(directory, split + SWAPPED, "predict")["prediction"])
    return Predictions(
        idx=columns["idx"],
        labels=columns["label"],
        predicted=columns["prediction"],
        probability=columns["probability"],
        logits=np.column_stack([columns["logit_0"], columns["logit_1"]]),
        swapped=swapped,
        classes=class_names(table.schema, "label"),
    )
