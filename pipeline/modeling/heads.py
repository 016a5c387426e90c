"""Reuse the classification head of a base model that was fine-tuned before."""

from pathlib import Path
from typing import Any

import torch
from torch.nn import Linear

from pipeline.core.messages import log


def with_matching_head(
    weights: dict[str, torch.Tensor], model: Any, labels: list[str], directory: Path
) -> dict[str, torch.Tensor]:
    """Return the weights of a base model, with the rows of its head in the order of the labels, or without its head.

    A head for another task is left out, so that it is newly initialized. A classification head with the default names
    of transformers (LABEL_0, LABEL_1, ...) counts as one for another task, because these names do not say what the
    outputs mean.

    Args:
        model: The sequence classifier that the config.json of the base model describes.
        labels: The labels of the task. A regression has none.
        directory: The directory of the base model, for the log.
    """
    layer = final_layer(model)
    if layer is None or f"{layer}.weight" not in weights:
        return weights
    outputs = [str(model.config.id2label.get(number)) for number in range(model.config.num_labels)]
    is_regression = model.config.problem_type == "regression" and len(outputs) == 1
    rows = _matching_rows(outputs, is_regression, labels)
    log.info(
        "%s has a head for %s, and the labels are %s, so its head is %s",
        directory, "numbers" if is_regression else ", ".join(outputs), ", ".join(labels) or "numbers",
        "replaced" if rows is None else "kept",
    )  # fmt: skip
    if rows is None:
        return {name: tensor for name, tensor in weights.items() if name.split(".")[0] not in head_modules(model)}
    return weights | {name: weights[name][rows] for name in (f"{layer}.weight", f"{layer}.bias") if name in weights}


def _matching_rows(outputs: list[str], is_regression: bool, labels: list[str]) -> list[int] | None:
    """Return the row of the head for each label, or None if the head is for another task."""
    if is_regression:
        return None if labels else [0]
    if outputs == [f"LABEL_{number}" for number in range(len(outputs))] or sorted(outputs) != sorted(labels):
        return None
    return [outputs.index(name) for name in labels]


def head_modules(model: Any) -> list[str]:
    """Return the names of a sequence classifier's modules outside `base_model_prefix`, which form its head."""
    return [name for name, _ in model.named_children() if name != model.base_model_prefix]


def final_layer(model: Any) -> str | None:
    """Return the name of the last layer of the head, which has a row for each label, or None if there is none."""
    head = head_modules(model)
    layers = [
        name
        for name, module in model.named_modules()
        if name.split(".")[0] in head and isinstance(module, Linear) and module.out_features == model.config.num_labels
    ]
    return layers[-1] if layers else None
