"""Train a regression model on standardized labels, while it predicts in the units of the labels."""

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.core.messages import UserError, log


class RegressionHead(torch.nn.Linear):
    """A linear layer with one output that is scaled and shifted: `mean + scale * (weight @ states + bias)`.

    A plain linear layer starts with predictions near 0, and a short run ends before it has learned the mean of the
    labels. The weights of this layer have the same names and shapes as those of a plain layer, but they predict
    standardized labels. `fold_standardization` converts them into the weights of a plain layer. This layer
    computes in fp32 even under autocast, because bf16 keeps only about three digits, and a label such as 2026 has four.

    Attributes:
        newly_initialized: Whether the checkpoint had no weights for this layer.
        mean: A number that is added to the output. It is 0 except during training.
        scale: A number that the output is multiplied by. It is 1 except during training.
    """

    def __init__(self, layer: torch.nn.Linear, newly_initialized: bool) -> None:
        super().__init__(layer.in_features, 1, layer.bias is not None, device="meta")  # "meta" draws no random numbers.
        self.weight, self.bias = layer.weight, layer.bias
        self.newly_initialized = newly_initialized
        self.mean, self.scale = 0.0, 1.0

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        # Autocast would compute a matrix product in a lower precision, so multiply and add instead.
        output = (states.float() * self.weight.float()).sum(-1, keepdim=True)
        if self.bias is not None:
            output = output + self.bias.float()
        return self.mean + self.scale * output

    def standardize(self, mean: float, scale: float) -> None:
        """Set the mean and the scale of the labels. A head that was trained before keeps its predictions."""
        self.mean, self.scale = mean, scale
        if not self.newly_initialized:
            with torch.no_grad():
                self.weight.div_(scale)
                if self.bias is not None:
                    self.bias.sub_(mean).div_(scale)


def replace_head(model: Any, newly_initialized: Collection[str]) -> None:
    """Replace the last layer of a regression model with a `RegressionHead`, if it is a linear one.

    Args:
        model: A sequence classifier of transformers.
        newly_initialized: The names of the weights that are missing from its checkpoint.
    """
    if name := final_layer(model):
        model.set_submodule(name, RegressionHead(model.get_submodule(name), f"{name}.weight" in newly_initialized))


def find_head(model: Any) -> tuple[str, RegressionHead] | None:
    """Return the name and the module of a model's `RegressionHead`, or None if it has none."""
    heads = [(name, module) for name, module in model.named_modules() if isinstance(module, RegressionHead)]
    return heads[0] if heads else None


def standardize_labels(model: Any, labels: NDArray[np.floating[Any]]) -> float:
    """Prepare the head of a regression model for training on standardized labels.

    Args:
        labels: The labels of the training examples.

    Returns:
        The scale of the labels, or 1 if the labels are not standardized.

    Raises:
        UserError: The labels are all equal, or too close to each other for fp32.
    """
    labels = labels.astype(np.float64)  # Squares of large or tiny labels may not fit into fp32.
    mean, scale = float(labels.mean()), float(labels.std())
    if scale <= 1e-6 * abs(mean):
        raise UserError(
            f"the labels of train do not differ enough to learn from: their mean is {mean:g}, and their standard "
            f"deviation is {scale:.2g} ({len(labels):,} examples). Check them, subtract a constant, or use more "
            "examples."
        )
    match = find_head(model)
    if match is None:
        log.warning(
            "the labels are not standardized, because the last layer of this architecture (%s) is not known. "
            "Scale them to a mean of 0 and a standard deviation of 1.", model.config.model_type,
        )  # fmt: skip
        return 1.0
    _, head = match
    if head.bias is None:  # Without a bias, `fold_standardization` has nothing to add the mean to.
        mean, scale = 0.0, float(np.sqrt(np.square(labels).mean()))
    head.standardize(mean, scale)
    return scale


def fold_standardization(model: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """Return the weights with mean and scale folded into the head, so that a plain layer predicts the same.

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


def final_layer(model: Any) -> str | None:
    """Return the name of the last layer of the head, which has one row for each output, or None if there is none."""
    layers = [
        name
        for name, module in model.named_modules()
        if not name.startswith(f"{model.base_model_prefix}.")
        and isinstance(module, torch.nn.Linear)
        and module.out_features == model.config.num_labels
    ]
    return layers[-1] if layers else None
