"""Connect the processes of a distributed run that `torchrun` or `accelerate launch` started.

Both launchers set the environment variables that this module reads:
https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables

`broadcast` and `all_gather` are collectives. All processes must call them in the same order.
"""

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch

# Import this module before there is a process group. Its functions take the current group as a default argument and
# would keep the group's threads alive, which can kill the process when Python exits ("terminate called",
# https://github.com/pytorch/pytorch/issues/190489).
import torch.distributed.nn.functional

from pipeline.core.messages import UserError, log

_T = TypeVar("_T")
# `accelerate launch` sets these variables from the file that `accelerate config` wrote. `process_group` removes them,
# because params.yaml decides. Otherwise, the Trainer could compile or shard the model, or compute in another precision
# than the rest of the pipeline, and the engine "loop" would divide its loss once more.
_ACCELERATE_CONFIG = (
    "ACCELERATE_MIXED_PRECISION", "ACCELERATE_DYNAMO_", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
)  # fmt: skip


def world_size() -> int:
    """Return the number of processes in this run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return the number of this process, starting at 0. Only rank 0 writes outputs."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def process_group(timeout: int = 600) -> Iterator[None]:
    """Connect this process with the others while the block runs.

    Args:
        timeout: The number of seconds that a collective waits for a process that does not answer. With NCCL, torch
            itself then ends this process. (TrainingArguments has `ddp_timeout`, but only applies it if there is a GPU.)

    Raises:
        UserError: Another process fails, does not answer or was never started, or there are fewer GPUs than processes.
    """
    for name in [name for name in os.environ if name.startswith(_ACCELERATE_CONFIG)]:
        del os.environ[name]
    if {"ACCELERATE_USE_CPU", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ:
        raise UserError(
            "accelerate launch started only one process, because it did not find a second GPU. Add --multi_gpu to "
            "runtime.launcher or to your command to start all processes, even on CPUs."
        )
    if world_size() == 1:
        yield
        return
    if rank() > 0:
        log.setLevel(logging.ERROR)  # Rank 0 logs for all processes.
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        local_rank, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if local_rank >= gpus:
            raise UserError(
                f"rank {rank()} has no GPU, because this machine has only {gpus}. Start at most one process per GPU."
            )
        torch.cuda.set_device(local_rank)
    try:
        torch.distributed.init_process_group("nccl" if has_gpu else "gloo", timeout=timedelta(seconds=timeout))
        yield
        gc.collect()  # This frees the Trainer, which refers to itself, and its model, which refers to the group.
        torch.distributed.destroy_process_group()  # Skipped after a failure, when it may wait for the others.
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        reason = " ".join(str(error).split()).split(". ")[0]
        raise UserError(
            f"rank {rank()} of {world_size()} processes lost the connection to the others: {reason}. Fix the cause, "
            "such as an error above, and run again."
        ) from error


def is_lost_connection(error: Exception) -> bool:
    """Return whether a collective failed because another process has ended or does not answer."""
    return world_size() > 1 and (isinstance(error, torch.distributed.DistError) or "gloo" in str(error))


def broadcast(value: _T) -> _T:
    """Send the value of rank 0 to all processes, and return it."""
    values = [value]
    if world_size() > 1:
        torch.distributed.broadcast_object_list(values)
    return values[0]


def all_gather(value: _T) -> list[_T]:
    """Collect the values of all processes, and return them in the order of the ranks."""
    values: list[Any] = [value] * world_size()
    if world_size() > 1:
        torch.distributed.all_gather_object(values, value)
    return values
