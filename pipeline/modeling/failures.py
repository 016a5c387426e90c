"""Failures that end a run in one line: out of memory, and numbers that are not finite."""

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
def out_of_memory(remedy: str) -> Iterator[None]:
    """Raise a UserError with the remedy if memory runs out in the block."""
    try:
        yield
    except RuntimeError as error:
        # CUDA's error has a class of its own; the CPU's and Apple's are recognized by their text.
        if not isinstance(error, torch.OutOfMemoryError) and not re.search("out of memory|allocate memory", str(error)):
            raise
        raise UserError(f"out of memory; {remedy}") from error


def require_finite(name: str, value: float, step: int) -> None:
    """Raise a UserError if a logged number of the optimizer step `step` is NaN or infinite."""
    if not math.isfinite(value):
        raise UserError(
            f"the {name} is {value} at step {step}; try a lower train.lr, a higher train.warmup_ratio, "
            "train.precision bf16 or fp32, or train.max_grad_norm 1.0"
        )


def require_finite_logits(model: Path, logits: NDArray[np.floating[Any]], precision: str) -> None:
    """Raise a UserError if a fine-tuned model gives NaN or infinity: a prediction from it would mean nothing."""
    examples = int((~np.isfinite(logits)).any(axis=1).sum())
    if examples:
        raise UserError(
            f"{model}: its logits for {examples} of {len(logits)} examples are NaN or infinite in {precision}; "
            "its config.json may be damaged, or it needs fp32"
        )
