"""Define the inputs and the result of a training run for both engines, and load the inputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from pipeline.core.dataset_files import load_split
from pipeline.core.task import Task
from pipeline.core.timing import Stopwatch
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_classifier, load_tokenizer
from pipeline.modeling.regression_head import standardize_labels
from pipeline.params import TrainParams
from pipeline.training.history import History
from pipeline.training.losses import SummedLoss, class_weights

MEMORY_REMEDY = (
    "Lower train.batch_size and raise train.gradient_accumulation_steps by the same factor, set "
    "train.gradient_checkpointing, lower tokenize.max_length, or use a smaller model."
)


@dataclass(frozen=True)
class TrainInputs:
    """Everything that an engine trains with.

    Attributes:
        training, validation: The tokenized examples, with their `length` and `labels`.
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
        weights: The weights of the whole model, even if each process trained a shard of it.
        watch: The stopwatch that timed the training in this process.
        first_step: The number of optimizer steps that were done before the run was resumed, or 0.
    """

    weights: dict[str, Any]
    history: History
    watch: Stopwatch
    first_step: int


def load_inputs(task: Task, tokenized: Path, pretrained: Path, params: TrainParams, device: Device) -> TrainInputs:
    """Load the tokenized examples and the base model. Raises UserError if one of them cannot be loaded."""
    training = load_split(tokenized, "train", "tokenize")
    validation = load_split(tokenized, "validation", "tokenize")
    if params.max_train_samples is not None:
        training = training.select(range(min(params.max_train_samples, len(training))))
    labels = np.asarray(training.with_format("numpy")["labels"][:])
    weights = None if params.class_weights is None else class_weights(params.class_weights, task, labels)
    tokenizer = load_tokenizer(pretrained)
    set_seed(params.seed)  # Before the model is loaded, because its head may be newly initialized.
    names: dict[str, Any] = {"num_labels": 1}
    if task.labels:
        names = {
            "id2label": dict(enumerate(task.labels)),
            "label2id": {name: number for number, name in enumerate(task.labels)},
        }
    model = load_classifier(
        pretrained,
        device.type,
        problem_type=task.problem_type,
        pad_token_id=tokenizer.pad_token_id,  # GPT-2, Llama and others use it to find the last token of a text.
        **names,
    )
    scale = standardize_labels(model, labels) if task.problem_type == "regression" else 1.0
    loss = SummedLoss(task.problem_type, weights, scale)
    return TrainInputs(task, training, validation, model, tokenizer, loss, device)
