"""Load the inputs of a training run, which are the same for both engines."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from pipeline.core.data_card import GROUP
from pipeline.core.dataset_files import load_split
from pipeline.core.task import Task
from pipeline.modeling import distributed
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_base_model, load_tokenizer
from pipeline.modeling.regression_head import standardize_labels
from pipeline.modeling.scoring import longest_first
from pipeline.params import TrainParams
from pipeline.training.losses import SummedLoss, class_weights
from pipeline.training.sampler import EpochSampler

MEMORY_REMEDY = (
    "Lower train.batch_size and raise train.gradient_accumulation_steps by the same factor, set "
    "train.gradient_checkpointing, lower tokenize.max_length, or use a smaller model."
)


@dataclass(frozen=True)
class TrainInputs:
    """Everything that an engine trains with.

    Attributes:
        training, validation: The tokenized examples, with their `length` and `labels`. In validation, the longest
            example is the first one.
        model: The base model with the head to train.
        effective_batch: The number of examples per optimizer step, over all forward passes and processes.
        steps_in_epoch: The number of optimizer steps per epoch.
    """

    task: Task
    training: Dataset
    validation: Dataset
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    loss: SummedLoss
    device: Device
    effective_batch: int
    sampler: EpochSampler
    steps_in_epoch: int


def load_inputs(task: Task, tokenized: Path, pretrained: Path, params: TrainParams, device: Device) -> TrainInputs:
    """Load the tokenized examples and the base model. Raises UserError if one of them cannot be loaded."""
    training = load_split(tokenized, "train", "tokenize")
    validation = load_split(tokenized, "validation", "tokenize")
    if params.max_train_samples is not None and params.max_train_samples < len(training):
        columns = training.with_format("numpy")
        labels, groups = columns["labels"][:], columns[GROUP][:]
        training = training.select(nested_sample(labels, groups, params.max_train_samples, params.seed))
    columns = training.with_format("numpy")  # Otherwise, a column is read one number at a time.
    labels = np.asarray(columns["labels"][:])
    weights = None if params.class_weights is None else class_weights(params.class_weights, task, labels)
    tokenizer = load_tokenizer(pretrained)
    set_seed(params.seed)  # Before the model is loaded, because its head may be newly initialized.
    names: dict[str, Any] = {"num_labels": 1}
    if task.labels:
        names = {
            "id2label": dict(enumerate(task.labels)),
            "label2id": {name: number for number, name in enumerate(task.labels)},
        }
    model = load_base_model(
        pretrained,
        device.type,
        problem_type=task.problem_type,
        pad_token_id=tokenizer.pad_token_id,  # GPT-2, Llama and others use it to find the last token of a text.
        **names,
    )
    scale = standardize_labels(model, labels) if task.problem_type == "regression" else 1.0
    effective_batch = params.batch_size * params.gradient_accumulation_steps * distributed.world_size()
    lengths = columns["length"][:] if params.group_by_length else None
    return TrainInputs(
        task=task,
        training=training,
        validation=validation.select(longest_first(validation)),
        model=model,
        tokenizer=tokenizer,
        loss=SummedLoss(task.problem_type, weights, scale),
        device=device,
        effective_batch=effective_batch,
        sampler=EpochSampler(len(training), lengths, effective_batch, params.seed),
        steps_in_epoch=math.ceil(len(training) / effective_batch),
    )


def nested_sample(labels: NDArray[np.generic], groups: NDArray[np.integer], size: int, seed: int) -> NDArray[np.intp]:
    """Return the positions of `size` training examples, in ascending order.

    With the same seed, a smaller sample is part of a larger one. Each class has nearly the same proportion as in all
    examples. Examples of the same group are drawn together, but the last group of each class may be incomplete, and
    then is a random sample of that group.

    Args:
        labels: Class numbers, shape (n,). The labels of other problem types do not stratify the sample.
        groups: Numbers from 0, shape (n,).
    """
    random = np.random.default_rng(seed)
    group_order = random.permutation(int(groups.max()) + 1)
    stratified = labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
    examples = pd.DataFrame({"class": labels if stratified else 0, "group": group_order[groups]})
    examples = examples.iloc[random.permutation(len(examples))]
    # Order the examples of each group so that its first n examples have nearly the same mix of classes for any n.
    examples["position"] = _relative_positions(examples, ["group", "class"])
    examples = examples.sort_values(["group", "position"], kind="stable")
    # Then order all examples in the same way. All groups that contain several classes together count as one more class.
    classes = examples.groupby("group")["class"]
    is_mixed = classes.transform("min") < classes.transform("max")
    examples.loc[is_mixed, "class"] = -1
    examples["position"] = _relative_positions(examples, ["class"])
    chosen: NDArray[np.intp] = examples.sort_values("position", kind="stable").index[:size].to_numpy()
    return np.sort(chosen)


def _relative_positions(examples: pd.DataFrame, columns: list[str]) -> pd.Series:
    """Return each example's position among the examples with the same values in these columns, from 0 to 1."""
    peers = examples.groupby(columns)["group"]
    return (peers.cumcount() + 0.5) / peers.transform("size")
