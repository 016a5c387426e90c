"""Compute the training loss of a task, and the weights of its classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn import functional

from pipeline.core.messages import UserError
from pipeline.core.task import ProblemType, Task
from pipeline.core.text import listing, quoted
from pipeline.evaluation.metrics import Values


@dataclass(frozen=True)
class SummedLoss:
    """The sum of the losses of the examples in one forward pass, so that a mean can be taken over the effective batch.

    The loss in a model's output is a mean over one forward pass. The mean of such means differs from the mean over the
    effective batch if the forward passes differ in size, as at the end of an epoch, or if classes have weights, because
    cross-entropy then divides by the sum of the weights. So this class only adds up losses, and the engines divide the
    sum by the number of labels in the effective batch (`num_items_in_batch` in the Trainer), regardless of weights.

    The loss is cross-entropy, binary cross-entropy for each of several labels, or the squared error.

    Attributes:
        class_weights: Shape (classes,). The cross-entropy of an example is multiplied by the weight of its class. With
            several labels, the cross-entropy of each label that the example has is multiplied by the label's weight.
        label_scale: In a regression, errors are divided by this number, so that the size of the gradients does not
            depend on the units of the labels.
    """

    problem_type: ProblemType
    class_weights: torch.Tensor | None
    label_scale: float = 1.0

    @property
    def squared_scale(self) -> float:
        """The factor that converts a loss to the squared units of the labels, for the log. It is 1 for classes."""
        return self.label_scale**2

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
        """Compute the sum of the losses.

        Args:
            logits: Shape (examples, outputs).
            labels: Shape (examples,), or floats of shape (examples, outputs) for several labels.
        """
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)
        if self.problem_type == "single_label_classification":
            return functional.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=label_smoothing)
        if self.problem_type == "multi_label_classification":
            return functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum", pos_weight=weights)
        return (((logits[:, 0] - labels) / self.label_scale) ** 2).sum()


def class_weights(setting: Literal["balanced"] | Mapping[str, float], task: Task, labels: Values) -> torch.Tensor:
    """Compute the weight of each class.

    "balanced" means n / (number of classes * examples of the class), as in scikit-learn. With several labels, it means
    the number of examples without the label, divided by the number with it. A class that no example has, or a label
    that all examples have, gets the weight 1, and so does a class that a mapping does not name.

    Args:
        labels: The labels of the training examples.

    Returns:
        Weights of shape (classes,).

    Raises:
        UserError: The task is a regression, or a name is not a class of the task.
    """
    if task.problem_type == "regression":
        raise UserError("params.yaml: train.class_weights must be null for a regression.")
    if setting != "balanced":
        if unknown := [name for name in setting if name not in task.labels]:
            raise UserError(
                f"params.yaml: train.class_weights must only name classes of the task, got {quoted(unknown[0])}. The "
                f"classes are {listing(task.labels)}."
            )
        return torch.tensor([float(setting.get(name, 1)) for name in task.labels])
    if task.problem_type == "single_label_classification":
        counts = np.bincount(labels, minlength=len(task.labels))
        balanced = len(labels) / (len(counts) * np.maximum(counts, 1))
    else:
        counts = labels.sum(axis=0)
        balanced = (len(labels) - counts) / np.maximum(counts, 1)
    return torch.tensor(np.where((counts > 0) & (balanced > 0), balanced, 1.0), dtype=torch.float32)
