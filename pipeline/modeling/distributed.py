"""The ranks of a distributed run, as `torchrun` and `accelerate launch` start them.

Both set the environment variables that are read here:
https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
`broadcast`, `barrier` and `all_gather` are collectives: every rank must call them in the same order.
"""

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch

# This module's functions have the current process group as a default argument. If they were imported while there is a
# group, they would keep its threads, and a thread that is left may kill the process as Python ends ("terminate called",
# https://github.com/pytorch/pytorch/issues/190489).
import torch.distributed.nn.functional

from pipeline.core.messages import UserError, log

_T = TypeVar("_T")
# `accelerate launch` passes these on from the file that `accelerate config` has written. They are removed because
# params.yaml decides: the Trainer would compute in another precision than the rest of the pipeline, or compile or shard
# the model.
_ACCELERATE_CONFIG = (
    "ACCELERATE_MIXED_PRECISION", "ACCELERATE_DYNAMO_", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED",
)  # fmt: skip


def world_size() -> int:
    """Return how many processes work together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return the number of this process, from 0. Only rank 0 writes the outputs."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def process_group(timeout: int = 600) -> Iterator[None]:
    """Join the process group for the block.

    Args:
        timeout: Seconds that a collective waits for a rank that does not answer. With NCCL, torch itself ends the
            process then. (TrainingArguments has a timeout too, but passes it on only if there is a GPU.)

    Raises:
        UserError: Another rank fails, does not answer or was never started, or there are fewer GPUs than ranks.
    """
    for name in [name for name in os.environ if name.startswith(_ACCELERATE_CONFIG)]:
        del os.environ[name]
    if {"ACCELERATE_USE_CPU", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ:
        raise UserError(
            "accelerate launch has started only one of several processes, because it found no second GPU. Add "
            "--multi_gpu to runtime.launcher, or to your command: it starts all processes, also on CPUs."
        )
    if world_size() == 1:
        yield
        return
    if rank() > 0:
        log.setLevel(logging.ERROR)  # rank 0 logs for all
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        local_rank, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if local_rank >= gpus:
            raise UserError(
                f"rank {rank()} has no GPU, because this machine has {gpus}. Start as many processes as it has GPUs."
            )
        torch.cuda.set_device(local_rank)
    try:
        torch.distributed.init_process_group("nccl" if has_gpu else "gloo", timeout=timedelta(seconds=timeout))
        yield
        gc.collect()  # a Trainer refers to itself, and its model to the group
        torch.distributed.destroy_process_group()  # not after a failure: it may wait for the other ranks
    except RuntimeError as error:
        if not lost_peer(error):
            raise
        reason = " ".join(str(error).split()).split(". ")[0]
        raise UserError(
            f"rank {rank()} of {world_size()} lost the others: {reason}. Fix what ended them, such as an error above, "
            "and run again: training resumes."
        ) from error


def lost_peer(error: Exception) -> bool:
    """Return whether a collective has failed because another rank is gone or does not answer."""
    return world_size() > 1 and (isinstance(error, torch.distributed.DistError) or "gloo" in str(error))


def broadcast(value: _T) -> _T:
    """Return rank 0's value on every rank."""
    values = [value]
    if world_size() > 1:
        torch.distributed.broadcast_object_list(values)
    return values[0]


def barrier() -> None:
    """Wait until every rank is here."""
    if world_size() > 1:
        torch.distributed.barrier()


def all_gather(value: _T) -> list[_T]:
    """Return every rank's value, in rank order, on every rank."""
    values: list[Any] = [value] * world_size()
    if world_size() > 1:
        torch.distributed.all_gather_object(values, value)
    return values
