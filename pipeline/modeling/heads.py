"""The classification head that a base model brings along if it was fine-tuned before."""

from collections.abc import Collection
from typing import Any, NamedTuple


class InheritedHead(NamedTuple):
    """A head whose weights a checkpoint holds, as its config.json describes it.

    layer: name of the module that gives the logits. labels: the names of its outputs. regression: it has one output,
    a number.
    """

    layer: str
    labels: list[str]
    regression: bool

    def rows_for(self, labels: list[str]) -> list[int] | None:
        """The rows of `layer` in the order of a task's labels, or None if the head answers something else.

        A regression has no labels. The default names of transformers (LABEL_0, LABEL_1, ...) say nothing about them.
        """
        if not labels:
            return [0] if self.regression else None
        unnamed = self.labels == [f"LABEL_{number}" for number in range(len(self.labels))]
        if unnamed or len(labels) != len(self.labels) or set(labels) != set(self.labels):
            return None
        return [self.labels.index(name) for name in labels]


def inherited_head(model: Any, stored: Collection[str]) -> InheritedHead | None:
    """Find the head that a checkpoint holds.

    Args:
        model: The sequence classifier that the checkpoint's config.json describes.
        stored: The names of the checkpoint's tensors.
    """
    layer = final_layer(model)
    if layer is None or f"{layer}.weight" not in stored:
        return None
    labels = [str(model.config.id2label.get(number)) for number in range(model.config.num_labels)]
    return InheritedHead(layer, labels, model.config.problem_type == "regression" and len(labels) == 1)


def head_modules(model: Any) -> list[str]:
    """The modules of a sequence classifier outside its base model, which a checkpoint without a head lacks."""
    return [name for name, _ in model.named_children() if name != model.base_model_prefix]


def final_layer(model: Any) -> str | None:
    """The name of the last layer of the head, whose rows belong to the labels."""
    from torch.nn import Linear

    layers = [
        name
        for name, module in model.named_modules()
        if name.split(".")[0] in head_modules(model)
        and isinstance(module, Linear)
        and module.out_features == model.config.num_labels
    ]
    return layers[-1] if layers else None
