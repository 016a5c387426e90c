"""The last layer of a regression model: trained on standardized labels, it predicts in the units of the labels."""

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.core.messages import UserError, log


class RegressionHead(torch.nn.Linear):
    """A linear layer with one output, which is scaled and shifted: `mean + scale * (weight @ states + bias)`.

    A plain layer starts with predictions near 0, and a short run ends before it has learned the mean of the labels. The
    weights have the names and shapes of a plain layer, and so have checkpoints. `fold` turns them into the weights of a
    plain layer that predicts the same. The layer computes in fp32 even under autocast: bf16 keeps three digits, and a
    label such as 2026 has four.

    Attributes:
        newly_initialized: Whether the checkpoint had no weights for it.
        mean: Added to the output. It is 0 except in training.
        scale: Multiplied with the output. It is 1 except in training.
    """

    def __init__(self, layer: torch.nn.Linear, newly_initialized: bool) -> None:
        super().__init__(layer.in_features, 1, layer.bias is not None, device="meta")  # draws no random numbers
        self.weight, self.bias = layer.weight, layer.bias
        self.newly_initialized = newly_initialized
        self.mean, self.scale = 0.0, 1.0

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        # Not a matrix product, which autocast would compute in a lower precision.
        output = (states.float() * self.weight.float()).sum(-1, keepdim=True)
        if self.bias is not None:
            output = output + self.bias.float()
        return self.mean + self.scale * output

    def standardize(self, mean: float, scale: float) -> None:
        """Train on labels of this mean and scale. A head that was trained before keeps its predictions."""
        self.mean, self.scale = mean, scale
        if not self.newly_initialized:
            with torch.no_grad():
                self.weight.div_(scale)
                if self.bias is not None:
                    self.bias.sub_(mean).div_(scale)


def replace_head(model: Any, newly_initialized: Collection[str]) -> None:
    """Make the last layer of a regression model a `RegressionHead`, if there is exactly one layer with one output.

    Args:
        model: A sequence classifier of transformers.
        newly_initialized: The names of the weights that its checkpoint does not have.
    """
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module.out_features == 1
    ]
    if len(names) == 1:
        layer = model.get_submodule(names[0])
        model.set_submodule(names[0], RegressionHead(layer, f"{names[0]}.weight" in newly_initialized))


def find_head(model: Any) -> tuple[str, RegressionHead] | None:
    """Return the name and the module of the `RegressionHead` of a model, if it has one."""
    heads = [(name, module) for name, module in model.named_modules() if isinstance(module, RegressionHead)]
    return heads[0] if heads else None


def standardize_labels(model: Any, labels: NDArray[np.floating[Any]]) -> float:
    """Make the head of a regression model train on standardized labels.

    Args:
        labels: Labels of the training examples.

    Returns:
        The scale of the labels.

    Raises:
        UserError: The labels are equal, or too close to each other for fp32.
    """
    mean, scale = float(labels.mean()), float(labels.std())
    if scale <= 1e-6 * abs(mean):
        raise UserError(
            f"the labels of the {len(labels)} training examples do not differ enough to learn from. Their mean is "
            f"{mean:g}, their standard deviation {scale:.2g}. Subtract a constant, use more examples, or check them."
        )
    match = find_head(model)
    if match is None:
        log.warning(
            "the last layer of this architecture (%s) is not known, so labels are not standardized. "
            "Scale them to a mean of 0 and a standard deviation of 1.", model.config.model_type,
        )  # fmt: skip
        return 1.0
    _, head = match
    if head.bias is None:  # There is nothing that the mean could be added to.
        mean, scale = 0.0, float(np.sqrt(np.square(labels).mean()))
    head.standardize(mean, scale)
    return scale


def fold(model: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """Return the weights with mean and scale folded into the head, so that stock transformers predicts the same.

    Args:
        model: The model that the weights belong to.
    """
    match = find_head(model)
    if match is None:
        return weights
    name, layer = match
    folded = {f"{name}.weight": weights[f"{name}.weight"].double() * layer.scale}
    if layer.bias is not None:
        folded[f"{name}.bias"] = layer.mean + weights[f"{name}.bias"].double() * layer.scale
    return {**weights, **{name: weight.float() for name, weight in folded.items()}}
