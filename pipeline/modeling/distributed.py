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
def process_group(timeout: int) -> Iterator[None]:
    """Join the process group for the block.

    Args:
        timeout: Seconds that a collective waits for a rank that does not answer. With NCCL, torch itself ends the
            process then. (TrainingArguments has a timeout too, but passes it on only if there is a GPU.)

    Raises:
        UserError: Other ranks fail, do not answer or were never started, or there are fewer GPUs than ranks.
    """
    for name in [name for name in os.environ if name.startswith(_ACCELERATE_CONFIG)]:
        del os.environ[name]
    if {"ACCELERATE_USE_CPU", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ:
        raise UserError(
            "accelerate launch has started one process of several, as it does without a second GPU; "
            "add --multi_gpu to runtime.launcher, or to your command: it starts them all, also on CPUs"
        )
    if world_size() == 1:
        yield
        return
    if rank() > 0:
        log.setLevel(logging.ERROR)  # rank 0 logs for all
    import torch

    # The group's threads end with the last reference to it, and a thread that is left may kill the process as Python
    # ends ("terminate called", https://github.com/pytorch/pytorch/issues/190489). The functions of this module have the
    # current group as a default argument, so it must be imported before there is a group; transformers would import it
    # inside the block.
    import torch.distributed.nn.functional

    has_gpu = torch.cuda.is_available()
    if has_gpu:
        local_rank, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if local_rank >= gpus:
            raise UserError(
                f"rank {rank()} has no GPU: this machine has {gpus}; start as many processes as it has GPUs"
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
            f"rank {rank()} of {world_size()} lost the others: {reason}; "
            "fix what ended them, such as an error above, and run again; training resumes"
        ) from error


def lost_peer(error: Exception) -> bool:
    """Return whether a collective has failed because another rank is gone or does not answer."""
    if world_size() == 1:
        return False
    import torch

    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)


def broadcast(value: _T) -> _T:
    """Return rank 0's value on every rank."""
    if world_size() == 1:
        return value
    import torch

    values = [value]
    torch.distributed.broadcast_object_list(values)
    return values[0]


def barrier() -> None:
    """Wait until every rank is here."""
    if world_size() > 1:
        import torch

        torch.distributed.barrier()


def all_gather(value: _T) -> list[_T]:
    """Return every rank's value, in rank order, on every rank."""
    if world_size() == 1:
        return [value]
    import torch

    values: list[Any] = [None] * world_size()
    torch.distributed.all_gather_object(values, value)
    return values
