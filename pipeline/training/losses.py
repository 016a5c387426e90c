"""The training loss of each kind of task, and the weights of its classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn import functional

from pipeline.core.messages import UserError
from pipeline.core.task import ProblemType, Task
from pipeline.evaluation.metrics import Values


@dataclass(frozen=True)
class SummedLoss:
    """The loss of a batch as a sum, so that its mean can be taken over the effective batch.

    Cross-entropy, for several labels binary cross-entropy over each, or squared error. class_weights: shape (classes,),
    or None. Cross-entropy is multiplied by the weight of the label; of several labels, only where the label is 1. The
    mean is that over all labels, whatever their weights: else it would depend on how a batch is cut.
    label_scale: of a regression. Errors are divided by it, so that the size of the gradients does not depend on the
    units of the labels.
    """

    problem_type: ProblemType
    class_weights: torch.Tensor | None
    label_scale: float = 1.0

    @property
    def unit(self) -> float:
        """A loss times this is one in the units of the labels, as it is logged and as validation is scored."""
        return self.label_scale**2

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
        """logits: shape (n, outputs). labels: (n,) or, for several labels, floats of shape (n, outputs)."""
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)
        if self.problem_type == "single_label_classification":
            return functional.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=label_smoothing)
        if self.problem_type == "multi_label_classification":
            return functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum", pos_weight=weights)
        return (((logits[:, 0] - labels) / self.label_scale) ** 2).sum()


def class_weights(setting: Literal["balanced"] | Mapping[str, float], task: Task, labels: Values) -> torch.Tensor:
    """The weight of each class, shape (classes,).

    labels: of the training rows. "balanced": n / (classes * rows of the class), as in scikit-learn; for several labels,
    rows without the label / rows with it. 1 for a class that no row has. Raises UserError for a regression, and for a
    name that is no class.
    """
    if task.problem_type == "regression":
        raise UserError("params.yaml: train.class_weights is set, and the task is a regression; set it to null")
    if setting != "balanced":
        if unknown := [name for name in setting if name not in task.labels]:
            raise UserError(
                f"params.yaml: train.class_weights names {unknown[0]}; the classes are {', '.join(task.labels)}"
            )
        return torch.tensor([float(setting.get(name, 1)) for name in task.labels])
    if task.problem_type == "single_label_classification":
        counts = np.bincount(labels, minlength=len(task.labels))
        balanced = len(labels) / (len(counts) * np.maximum(counts, 1))
    else:
        counts = labels.sum(axis=0)
        balanced = (len(labels) - counts) / np.maximum(counts, 1)
    return torch.tensor(np.where((counts > 0) & (balanced > 0), balanced, 1.0), dtype=torch.float32)
