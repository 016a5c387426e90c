"""Report in one line that memory ran out, or that a number is NaN or infinite."""

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

# Only CUDA has its own class of error. The others can only be recognized by their text.
_OUT_OF_MEMORY = re.compile("out of memory|allocate memory|CUBLAS_STATUS_ALLOC_FAILED")


@contextmanager
def reporting_out_of_memory(remedy: str) -> Iterator[None]:
    """Raise UserError if memory runs out in the block.

    Args:
        remedy: A sentence that says what the user can change.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        # torch says here how much of the GPU's memory is free, and which other processes use it.
        details = " ".join(str(error).partition("Of the allocated memory")[0].split())
        raise UserError(f"out of memory. {remedy} {details}") from error
    except RuntimeError as error:
        if not _OUT_OF_MEMORY.search(str(error)):
            raise
        raise UserError(f"out of memory. {remedy}") from error


def require_finite(name: str, value: float, step: int) -> None:
    """Raise UserError if a number that is logged for the optimizer step `step` is NaN or infinite."""
    if not math.isfinite(value):
        raise UserError(
            f"the {name} is {value} at step {step}. Try a lower train.lr, a higher train.warmup_ratio, "
            "train.precision bf16 or fp32, or train.max_grad_norm 1.0."
        )


def require_finite_logits(model: Path, logits: NDArray[np.floating[Any]], precision: str) -> None:
    """Raise UserError if a fine-tuned model gives NaN or infinite logits, which cannot be turned into predictions."""
    examples = int((~np.isfinite(logits)).any(axis=1).sum())
    if examples:
        raise UserError(
            f"{model}: the logits for {examples} of {len(logits)} examples are NaN or infinite in {precision}. "
            "Set train.precision to fp32 and train again. If that does not help, the model's files are damaged."
        )
