"""Reuse the classification head of a base model that was fine-tuned before."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from torch.nn import Linear

from pipeline.core.messages import log


class InheritedHead(NamedTuple):
    """The head in a checkpoint, as its config.json describes it.

    Attributes:
        layer: The name of the module that computes the logits.
        labels: The names of its outputs.
        regression: Whether it has a single output, which is a number.
    """

    layer: str
    labels: list[str]
    regression: bool

    def rows_for(self, labels: list[str]) -> list[int] | None:
        """Return the rows of `layer` in the order of a task's labels, or None if the head is for another task.

        A classification head with the default names of transformers (LABEL_0, LABEL_1, ...) counts as one for another
        task, because these names do not say what the outputs mean.

        Args:
            labels: The labels of the task. A regression has none.
        """
        if not labels:
            return [0] if self.regression else None
        unnamed = self.labels == [f"LABEL_{number}" for number in range(len(self.labels))]
        if unnamed or len(labels) != len(self.labels) or set(labels) != set(self.labels):
            return None
        return [self.labels.index(name) for name in labels]


def inherited_head(model: Any, stored: Collection[str]) -> InheritedHead | None:
    """Return the head of a checkpoint, or None if the checkpoint has no weights for a head.

    Args:
        model: The sequence classifier that the checkpoint's config.json describes.
        stored: The names of the tensors in the checkpoint.
    """
    layer = final_layer(model)
    if layer is None or f"{layer}.weight" not in stored:
        return None
    labels = [str(model.config.id2label.get(number)) for number in range(model.config.num_labels)]
    return InheritedHead(layer, labels, model.config.problem_type == "regression" and len(labels) == 1)


def adapt_head(model: Any, head: InheritedHead, rows: list[int] | None, labels: list[str], directory: Path) -> None:
    """Reorder the rows of an inherited head to match the labels, and log whether the head is kept.

    Args:
        rows: The result of `rows_for`. None means that the head is newly initialized.
        directory: The directory of the checkpoint, for the log.
    """
    inherited = "a regression head" if head.regression else f"a head for {', '.join(head.labels)}"
    if rows is None:
        task = f"the labels are {', '.join(labels)}" if labels else "the labels are numbers"
        log.info("%s has %s, but %s, so its head is newly initialized", directory, inherited, task)
    elif rows == sorted(rows):
        log.info("%s has %s, which matches the labels, so its head is kept", directory, inherited)
    else:
        for parameter in model.get_submodule(head.layer).parameters():
            parameter.data = parameter.data[rows]
        log.info(
            "%s has %s, but the order of the labels is %s, so the rows of its head are reordered",
            directory, inherited, ", ".join(labels),
        )  # fmt: skip


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
