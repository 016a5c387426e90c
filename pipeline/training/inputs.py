"""What a training run is given and what it gives back, whichever engine runs it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from pipeline.core.tables import open_arrow, to_numpy
from pipeline.core.task import Task
from pipeline.core.timing import Stopwatch
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_classifier, load_tokenizer
from pipeline.params import TrainParams
from pipeline.training.history import History
from pipeline.training.losses import SummedLoss, class_weights


@dataclass(frozen=True)
class TrainInputs:
    """The task, tokenized train and validation rows, the model with a new head, its tokenizer, loss, and the device."""

    task: Task
    training: pa.Table
    validation: pa.Table
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    loss: SummedLoss
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


def load_inputs(task: Task, tokenized: Path, pretrained: Path, params: TrainParams, device: Device) -> TrainInputs:
    """Open the tokenized rows and read the pretrained model. Raises UserError where one of them does not load."""
    training, validation = (open_arrow(tokenized, split, "tokenize") for split in ("train", "validation"))
    if params.max_train_samples is not None:
        training = training.slice(0, params.max_train_samples)
    weights = None
    if params.class_weights is not None:
        weights = class_weights(params.class_weights, task, to_numpy(training["labels"]))
    tokenizer = load_tokenizer(pretrained)
    set_seed(params.seed)  # before the model, whose head is newly initialized
    names = {"id2label": dict(enumerate(task.labels)), "label2id": {name: at for at, name in enumerate(task.labels)}}
    model = load_classifier(
        pretrained,
        device.kind,
        problem_type=task.problem_type,
        pad_token_id=tokenizer.pad_token_id,  # GPT-2, Llama and others find the last token of a text by it
        **names if task.labels else {"num_labels": 1},
    )
    loss = SummedLoss(task.problem_type, weights)
    return TrainInputs(task, training, validation, model, tokenizer, loss, device)
