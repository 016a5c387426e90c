"""The inputs and the result of a training run, for both engines."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from pipeline.core.dataset_files import load_split
from pipeline.core.messages import UserError, log
from pipeline.core.task import Task
from pipeline.core.timing import Stopwatch
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_classifier, load_tokenizer
from pipeline.modeling.regression_head import find_head
from pipeline.params import TrainParams
from pipeline.training.history import History
from pipeline.training.losses import SummedLoss, class_weights

MEMORY_REMEDY = (
    "lower train.batch_size and raise train.gradient_accumulation_steps as much, set train.gradient_checkpointing, "
    "lower tokenize.max_length, or use a smaller model"
)


@dataclass(frozen=True)
class TrainInputs:
    """Everything that an engine trains with.

    Attributes:
        training: Tokenized examples, with their `length` and `labels`, as is `validation`.
        model: The base model with the head to train.
    """

    task: Task
    training: Dataset
    validation: Dataset
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    loss: SummedLoss
    device: Device


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run.

    Attributes:
        weights: The whole model, even if each rank held a part of it.
        train_loss: The mean over all steps.
        watch: It timed the training in this process.
        first_step: The optimizer steps that were done before the run was resumed, or 0.
    """

    weights: dict[str, Any]
    history: History
    train_loss: float
    watch: Stopwatch
    first_step: int


def load_inputs(task: Task, tokenized: Path, pretrained: Path, params: TrainParams, device: Device) -> TrainInputs:
    """Open the tokenized examples and read the base model. Raises UserError if one of them does not load."""
    training, validation = (load_split(tokenized, split, "tokenize") for split in ("train", "validation"))
    if params.max_train_samples is not None:
        training = training.select(range(min(params.max_train_samples, len(training))))
    weights = None
    if params.class_weights is not None:
        weights = class_weights(params.class_weights, task, _labels(training))
    tokenizer = load_tokenizer(pretrained)
    set_seed(params.seed)  # before the model, whose head is newly initialized
    if task.labels:
        config: dict[str, Any] = {
            "id2label": dict(enumerate(task.labels)),
            "label2id": {name: number for number, name in enumerate(task.labels)},
        }
    else:
        config = {"num_labels": 1}
    model = load_classifier(
        pretrained,
        device.type,
        problem_type=task.problem_type,
        pad_token_id=tokenizer.pad_token_id,  # GPT-2, Llama and others find the last token of a text by it
        **config,
    )
    scale = _standardize(model, _labels(training)) if task.problem_type == "regression" else 1.0
    loss = SummedLoss(task.problem_type, weights, scale)
    return TrainInputs(task, training, validation, model, tokenizer, loss, device)


def _labels(examples: Dataset) -> NDArray[Any]:
    """Return the labels as an array of shape (examples,) or (examples, labels)."""
    return np.asarray(examples.with_format("numpy")["labels"][:])


def _standardize(model: PreTrainedModel, labels: NDArray[np.float64]) -> float:
    """Make the head of a regression train on standardized labels.

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
