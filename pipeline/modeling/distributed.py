"""The processes of one training run: `torchrun` and `accelerate launch` begin several, and each takes its share.

They are told apart by the environment that both of them set:
https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
All of them run the same code; what the functions here exchange, each process must ask for in the same order.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from pipeline.core.messages import UserError

_T = TypeVar("_T")


def world_size() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """The number of this one, from 0. The first is the only one that writes what the run publishes."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def process_group(timeout: int) -> Iterator[None]:
    """Connect with the other processes for the block.

    timeout: seconds to wait for one that says nothing, on any exchange. TrainingArguments has one too, and hands it on
    only where there is a GPU. Raises UserError where the others fail or fall silent, or were never begun.
    """
    if {"ACCELERATE_USE_CPU", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ:
        raise UserError(
            "accelerate launch has begun one process of several, as it does without a second GPU; "
            "add --multi_gpu to runtime.launcher: it begins them all, also on CPUs"
        )
    if world_size() == 1:
        yield
        return
    import torch

    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        torch.distributed.init_process_group("nccl" if has_gpu else "gloo", timeout=timedelta(seconds=timeout))
        yield
        torch.distributed.destroy_process_group()  # not after a failure: it may wait for the others
    except RuntimeError as error:
        if not lost_peer(error):
            raise
        reason = " ".join(str(error).split()).split(". ")[0]
        raise UserError(
            f"process {rank()} of {world_size()} lost the others: {reason}; "
            "mend what ended them, such as an error above, and run again: it resumes"
        ) from error


def lost_peer(error: Exception) -> bool:
    """Whether an exchange has failed since another process is gone or silent."""
    if world_size() == 1:
        return False
    import torch

    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)


def broadcast(value: _T) -> _T:
    """What the first process passes in, in all of them."""
    if world_size() == 1:
        return value
    import torch

    values = [value]
    torch.distributed.broadcast_object_list(values)
    return values[0]


def all_gather(value: _T) -> list[_T]:
    """What each process passes in, in the order of their numbers."""
    if world_size() == 1:
        return [value]
    import torch

    values: list[Any] = [None] * world_size()
    torch.distributed.all_gather_object(values, value)
    return values
