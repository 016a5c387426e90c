"""Score examples with a model. Training pads batches and orders validation examples in the same way."""

import sys
import tempfile
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase, Trainer, TrainingArguments

from pipeline.core.dataset_files import read_column
from pipeline.core.messages import UserError
from pipeline.modeling.device import Device
from pipeline.modeling.progress import ScoringProgress


def trainer_arguments(device: Device, **settings: Any) -> TrainingArguments:
    """Return `TrainingArguments` with the device, its precision, and other settings."""
    arguments = TrainingArguments(
        use_cpu=device.type == "cpu",
        bf16=device.precision == "bf16",
        fp16=device.precision == "fp16",
        disable_tqdm=not sys.stderr.isatty(),
        **settings,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # With more, the Trainer would split each batch (DataParallel).
    return arguments


def scoring_trainer(model: Any, tokenizer: PreTrainedTokenizerBase, device: Device, batch_size: int) -> Trainer:
    """Return a Trainer for prediction only, with `batch_size` examples per forward pass on each device."""
    directory = tempfile.gettempdir()  # Nothing is written there.
    settings = {"output_dir": directory, "per_device_eval_batch_size": batch_size, "report_to": "none"}
    return Trainer(
        model=model, args=trainer_arguments(device, **settings), processing_class=tokenizer,
        data_collator=collator(tokenizer, device), preprocess_logits_for_metrics=only_logits,
        callbacks=[ScoringProgress()],
    )  # fmt: skip


def collator(tokenizer: PreTrainedTokenizerBase, device: Device) -> DataCollatorWithPadding:
    """Return the collator that pads a batch to its longest example."""
    # Tensor cores multiply shapes that are multiples of 8. On a CPU, the extra padding costs more than it gains.
    return DataCollatorWithPadding(tokenizer, pad_to_multiple_of=None if device.type == "cpu" else 8)


def only_logits(outputs: Any, labels: Any) -> Any:
    """Return the logits alone. Encoder-decoder models such as BART also return hidden states."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def longest_first(examples: Dataset) -> NDArray[np.intp]:
    """Return the positions of the examples from the longest to the shortest, so that batches need little padding."""
    return np.argsort(read_column(examples, "length"), kind="stable")[::-1]


def predict_logits(trainer: Trainer, examples: Dataset) -> NDArray[np.float32]:
    """Score every tokenized example once, with any number of processes.

    Returns logits of shape (examples, outputs), in the order of the examples. Raises UserError if one is not finite.
    """
    tokenizer: Any = trainer.processing_class
    inputs = examples.select_columns(tokenizer.model_input_names)
    order = longest_first(examples)
    arguments = trainer.args
    # The Trainer enters autocast for each batch, and all weights are cast each time. With this outer autocast, they are
    # cast once and kept.
    dtype = torch.float16 if arguments.fp16 else torch.bfloat16
    with torch.autocast(arguments.device.type, dtype, enabled=arguments.fp16 or arguments.bf16):
        predictions = trainer.predict(inputs.select(order)).predictions
    trainer.accelerator._dataloaders.clear()  # It keeps each loader that it has prepared, with its examples.
    if not np.isfinite(predictions).all():
        raise UserError("Some outputs of the model are NaN or infinite. Set train.precision to fp32.")
    logits = np.empty_like(predictions)
    logits[order] = predictions
    return logits
