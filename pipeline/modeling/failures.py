"""Failures of a run that end it in one line: out of memory, and numbers that are not finite."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.core.messages import UserError


@contextmanager
def memory_for_batch(input_ids: torch.Tensor, training: bool) -> Iterator[None]:
    """Raise UserError where memory runs out in the block, a pass over `input_ids` of shape (rows, tokens)."""
    rows, tokens = input_ids.shape
    if training:
        do = "lower train.batch_size and raise train.gradient_accumulation_steps as much, or set "
        do += "train.gradient_checkpointing"
    else:
        do = "lower tokenize.max_length, or on a GPU the rows of a pass: predict.batch_size, in training "
        do += "train.batch_size, in classify --batch-size"
    with _memory(f"{rows} rows of {tokens} tokens", do):
        yield


@contextmanager
def memory_for_model(training: bool) -> Iterator[None]:
    """As `memory_for_batch`, for what a run holds from batch to batch."""
    holding, lower = "the model", ""
    if training:
        holding, lower = "the model and the state of its optimizer", "lower train.batch_size, "
    with _memory(holding, f"{lower}take a smaller model, or end what else uses the memory"):
        yield


@contextmanager
def _memory(holding: str, do: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # CUDA's error has a class of its own; the CPU's and Apple's are recognised by their text.
        if not isinstance(error, torch.OutOfMemoryError) and not re.search("out of memory|allocate memory", str(error)):
            raise
        raise UserError(f"out of memory with {holding}; {do}") from error


def demand_finite(what: str, value: Any, step: int, finite_loss: float | None) -> None:
    """Raise UserError where a number of a step is not finite. finite_loss: the last finite loss before it, if any."""
    if math.isfinite(value):
        return
    before = "" if finite_loss is None else f", the last finite loss was {finite_loss:.4f}"
    raise UserError(
        f"the {what} is {float(value)} at step {step}{before}; try a lower train.lr, "
        "a higher train.warmup_ratio, train.precision bf16 or fp32, or train.max_grad_norm 1.0"
    )


def demand_finite_logits(model: Path, logits: NDArray[np.floating[Any]], precision: str) -> None:
    """Raise UserError if a trained model gives NaN or infinity: a prediction from it would mean nothing."""
    rows = int((~np.isfinite(logits)).any(axis=1).sum())
    if rows:
        raise UserError(
            f"{model}: its answers to {rows} of {len(logits)} examples are NaN or infinite in {precision}; "
            "its config.json may be damaged, or it needs fp32"
        )
