"""Train a regression model on standardized labels, while it predicts in the units of the labels."""

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.core.messages import UserError, log


class RegressionHead(torch.nn.Module):
    """A linear layer whose single output is scaled and shifted: `mean + scale * (weight @ states + bias)`.

    A plain layer starts with predictions near 0, and a short run ends before it has learned the mean of the labels. In
    training, `mean` and `scale` are those of the labels, and `fold_standardization` turns the weights into a plain
    layer's. It computes in fp32 even under autocast, because bf16 keeps only three digits of a label such as 2026.
    """

    def __init__(self, layer: torch.nn.Linear, newly_initialized: bool) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.newly_initialized = newly_initialized
        self.mean, self.scale = 0.0, 1.0

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        # Autocast would compute a matrix product in a lower precision, so multiply and add instead.
        output = (states.float() * self.weight.float()).sum(-1, keepdim=True)
        if self.bias is not None:
            output = output + self.bias.float()
        return self.mean + self.scale * output


def replace_head(model: Any, newly_initialized: Collection[str]) -> None:
    """Turn the last layer of a regression model into a `RegressionHead`, if it is a linear one."""
    if name := final_layer(model):
        head = RegressionHead(model.get_submodule(name), f"{name}.weight" in newly_initialized)
        model.set_submodule(name, head)


def standardize_labels(model: Any, labels: NDArray[np.floating[Any]]) -> float:
    """Prepare the head of a regression model for training on standardized labels, and return their scale.

    A head that was trained before keeps its predictions. Raises UserError if fp32 cannot tell the labels apart.
    """
    labels = labels.astype(np.float64)  # Squares of large or tiny labels may not fit into fp32.
    mean, scale = float(labels.mean()), float(labels.std())
    if scale <= 1e-6 * abs(mean):
        raise UserError(f"the labels of train do not differ enough to learn from: {mean:g} ± {scale:.2g}. Check them.")
    _, head = _find_head(model)
    if head is None:
        log.warning("the labels are not standardized, because the last layer of %s is unknown", model.config.model_type)
        return 1.0
    if head.bias is None:  # Without a bias, `fold_standardization` has nothing to add the mean to.
        mean, scale = 0.0, float(np.sqrt(np.square(labels).mean()))
    head.mean, head.scale = mean, scale
    if not head.newly_initialized:
        with torch.no_grad():
            head.weight.div_(scale)
            if head.bias is not None:
                head.bias.sub_(mean).div_(scale)
    return scale


def fold_standardization(model: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """Return the weights with mean and scale folded into the head, so that a plain layer predicts the same."""
    name, head = _find_head(model)
    if head is None:
        return weights
    folded = {f"{name}.weight": weights[f"{name}.weight"].double() * head.scale}
    if head.bias is not None:
        folded[f"{name}.bias"] = head.mean + weights[f"{name}.bias"].double() * head.scale
    return {**weights, **{name: weight.float() for name, weight in folded.items()}}


def final_layer(model: Any) -> str | None:
    """Return the name of the last layer of the head, which has one row for each output, or None if there is none."""
    last = None
    for name, module in model.named_modules():
        is_in_body = name.startswith(f"{model.base_model_prefix}.")
        if isinstance(module, torch.nn.Linear) and not is_in_body and module.out_features == model.config.num_labels:
            last = name
    return last


def _find_head(model: Any) -> tuple[str, RegressionHead | None]:
    heads = ((name, module) for name, module in model.named_modules() if isinstance(module, RegressionHead))
    return next(heads, ("", None))
