"""Compute the training loss of a task, and the weights of its classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn import functional

from pipeline.core.messages import UserError
from pipeline.core.task import ProblemType, Task
from pipeline.core.text import require_choice
from pipeline.evaluation.metrics import Values


@dataclass(frozen=True)
class SummedLoss:
    """The sum of the losses of the examples in one forward pass, so that a mean can be taken over the effective batch.

    The loss in a model's output is a mean over one forward pass. A mean of such means is wrong if the passes differ in
    size, as at the end of an epoch, or if classes have weights, because cross-entropy then divides by their sum. So the
    engines divide this sum by the number of labels in the effective batch (`num_items_in_batch` in the Trainer).

    Attributes:
        class_weights: Shape (classes,). With several labels, the weight of a label counts for examples that have it.
        label_scale: Errors of a regression are divided by it, so that gradients do not depend on the labels' units.
    """

    problem_type: ProblemType
    class_weights: torch.Tensor | None
    label_scale: float = 1.0

    @property
    def squared_scale(self) -> float:
        """The factor that converts a loss to the squared units of the labels, for the log. It is 1 for classes."""
        return self.label_scale**2

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
        """Compute the sum for logits of shape (examples, outputs)."""
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)
        if self.problem_type == "single_label_classification":
            return functional.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=label_smoothing)
        if self.problem_type == "multi_label_classification":
            return functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum", pos_weight=weights)
        return (((logits[:, 0] - labels) / self.label_scale) ** 2).sum()


def weigh_classes(setting: Literal["balanced"] | Mapping[str, float], task: Task, labels: Values) -> torch.Tensor:
    """Compute the weight of each class, shape (classes,), from the labels of the training examples.

    "balanced" means n / (number of classes * examples of the class), as in scikit-learn. With several labels, it means
    the number of examples without the label, divided by the number with it. A class that a mapping does not name, and
    one that no example has, gets the weight 1. Raises UserError for a regression, and for an unknown class.
    """
    if task.is_regression:
        raise UserError("params.yaml: train.class_weights must be null for a regression.")
    if setting != "balanced":
        for name in setting:
            require_choice("the classes in train.class_weights", name, task.labels)
        return torch.tensor([float(setting.get(name, 1)) for name in task.labels])
    if task.is_single_label:
        counts = np.bincount(labels, minlength=len(task.labels))
        balanced = len(labels) / (len(counts) * np.maximum(counts, 1))
    else:
        counts = labels.sum(axis=0)
        balanced = (len(labels) - counts) / np.maximum(counts, 1)
    return torch.tensor(np.where((counts > 0) & (balanced > 0), balanced, 1.0), dtype=torch.float32)
