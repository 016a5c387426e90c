"""Failures of a run that end it in one line: out of memory, and numbers that are not finite."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pipeline.core.messages import UserError


@contextmanager
def memory_for_batch(input_ids: torch.Tensor, training: bool) -> Iterator[None]:
    """Raise UserError where memory runs out in the block, a pass over `input_ids` of shape (rows, tokens)."""
    rows, tokens = input_ids.shape
    lower = "train.batch_size and raise train.gradient_accumulation_steps as much, or set train.gradient_checkpointing"
    with _memory(
        f"{rows} rows of {tokens} tokens",
        lower if training else "tokenize.max_length, or on a GPU predict.batch_size (train.batch_size in training)",
    ):
        yield


@contextmanager
def memory_for_model() -> Iterator[None]:
    """As `memory_for_batch`, for what a run holds from step to step."""
    with _memory("the model and the state of its optimizer", "train.batch_size, or take a smaller model"):
        yield


@contextmanager
def _memory(holding: str, lower: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # CUDA's error has a class of its own; the CPU's and Apple's are recognised by their text.
        if not isinstance(error, torch.OutOfMemoryError) and not re.search("out of memory|allocate memory", str(error)):
            raise
        raise UserError(f"out of memory with {holding}; lower {lower}") from error


def demand_finite(what: str, value: Any, step: int, finite_loss: float | None) -> None:
    """Raise UserError where a number of a step is not finite. finite_loss: the last finite loss before it, if any."""
    if math.isfinite(value):
        return
    before = "" if finite_loss is None else f", the last finite loss was {finite_loss:.4f}"
    raise UserError(
        f"the {what} is {float(value)} at step {step}{before}; try a lower train.lr, "
        "a higher train.warmup_ratio, train.precision bf16 or fp32, or train.max_grad_norm 1.0"
    )
