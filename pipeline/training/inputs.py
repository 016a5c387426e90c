"""Load the inputs of a training run, which are the same for both engines."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from pipeline.core.dataset_files import load_examples, read_column
from pipeline.core.task import Task
from pipeline.modeling import distributed
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_base_model
from pipeline.modeling.regression_head import standardize_labels
from pipeline.modeling.scoring import longest_first
from pipeline.modeling.tokenization import load_tokenizer
from pipeline.modeling.windows import first_windows, windows_of
from pipeline.params import TrainParams
from pipeline.training.freezing import freeze_layers
from pipeline.training.losses import SummedLoss, weigh_classes
from pipeline.training.sampler import EpochSampler


@dataclass(frozen=True)
class TrainInputs:
    """Everything that an engine trains with.

    Attributes:
        training, validation: The tokenized examples, with their `idx`, `length` and `labels`. A long text can have
            several rows, its windows. In validation, the longest row is the first one.
    """

    task: Task
    training: Dataset
    validation: Dataset
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    loss: SummedLoss
    device: Device
    sampler: EpochSampler


def load_inputs(task: Task, tokenized: Path, pretrained: Path, params: TrainParams, device: Device) -> TrainInputs:
    """Load the tokenized examples and the base model. Raises UserError if one of them cannot be loaded."""
    training = load_examples(tokenized, "train")
    validation = load_examples(tokenized, "validation")
    idx = read_column(training, "idx")
    labels = read_column(training, "labels")[first_windows(idx)]
    if params.max_train_samples is not None:
        sample = nested_sample(labels, params.max_train_samples, params.seed)
        rows = windows_of(sample, idx)
        labels, idx, training = labels[sample], idx[rows], training.select(rows)
    weights = None if params.class_weights is None else weigh_classes(params.class_weights, task, labels)
    tokenizer = load_tokenizer(pretrained)
    set_seed(params.seed)  # Before the model is loaded, because its head may be newly initialized.
    model = load_base_model(pretrained, device.type, **_model_config(task, tokenizer))
    if params.freeze_layers:
        freeze_layers(model, params.freeze_layers)
    scale = standardize_labels(model, labels) if task.is_regression else 1.0
    effective_batch = params.batch_size * params.gradient_accumulation_steps * distributed.world_size()
    lengths = read_column(training, "length") if params.group_by_length else None
    return TrainInputs(
        task=task,
        training=training,
        validation=validation.select(longest_first(validation)),
        model=model,
        tokenizer=tokenizer,
        loss=SummedLoss(task.problem_type, weights, scale),
        device=device,
        sampler=EpochSampler(idx, lengths, effective_batch, params.seed),
    )


def _model_config(task: Task, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the entries of the model's config.json that depend on the task and the tokenizer."""
    # GPT-2, Llama and others use the padding token to find the last token of a text.
    config = {"problem_type": task.problem_type, "pad_token_id": tokenizer.pad_token_id}
    if task.is_regression:
        return config | {"num_labels": 1}
    numbers = {name: number for number, name in enumerate(task.labels)}
    return config | {"id2label": dict(enumerate(task.labels)), "label2id": numbers}


def nested_sample(labels: NDArray[np.generic], size: int, seed: int) -> NDArray[np.intp]:
    """Return the positions of `size` examples, in ascending order. With the same seed, a larger sample contains them.

    Each class has nearly the same proportion as in all examples.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    if labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer):
        peers = pd.Series(labels[order]).groupby(labels[order])
        # Sort by each example's position among the examples of its class, from 0 to 1.
        order = order[np.argsort((peers.cumcount() + 0.5) / peers.transform("size"), kind="stable")]
    return np.sort(order[:size])
