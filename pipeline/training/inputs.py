"""What a training run is given and what it gives back, whichever engine runs it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from pipeline.core.tables import read_split
from pipeline.core.task import Task, read_task
from pipeline.core.timing import Stopwatch
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_classifier, load_tokenizer
from pipeline.params import TrainParams
from pipeline.training.history import History


@dataclass(frozen=True)
class TrainInputs:
    """The task, tokenized train and validation rows, the model with a new head, its tokenizer, and the device."""

    task: Task
    training: pa.Table
    validation: pa.Table
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: Device


@dataclass(frozen=True)
class TrainResult:
    """What a run gives back.

    weights: of the whole model, also where each rank held a part of it. train_loss: mean over all steps.
    """

    weights: dict[str, Any]
    history: History
    train_loss: float
    watch: Stopwatch


def load_inputs(tokenized: Path, pretrained: Path, params: TrainParams, device: Device) -> TrainInputs:
    """Read the tokenized pairs and the pretrained model. Raises UserError where one of them does not load."""
    training, validation = (
        read_split(tokenized, split, "tokenize").drop_columns("idx") for split in ("train", "validation")
    )
    if params.max_train_samples is not None:
        training = training.slice(0, params.max_train_samples)
    task = read_task(tokenized, "tokenize")
    set_seed(params.seed)  # before the model: its new head is drawn at random
    model = load_classifier(
        pretrained,
        device.kind,
        id2label=dict(enumerate(task.labels)),
        label2id={name: label for label, name in enumerate(task.labels)},
    )
    return TrainInputs(task, training, validation, model, load_tokenizer(pretrained), device)
