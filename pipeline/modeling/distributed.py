"""The processes of a run that `torchrun` or `accelerate launch` has started. Only rank 0 writes outputs."""

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed.nn.functional  # before there is a process group: pytorch/pytorch#190489
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from pipeline.core.messages import log


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


@contextmanager
def connected() -> Iterator[None]:
    """Connect the processes while the block runs. Only rank 0 logs."""
    if world_size() == 1:
        yield
        return
    PartialState(cpu=not torch.cuda.is_available())
    log.setLevel(logging.INFO if rank() == 0 else logging.ERROR)
    yield
    gc.collect()  # This frees the Trainer, which refers to itself, and its model, which refers to the group.
    torch.distributed.destroy_process_group()  # not after a failure, when it may wait for the others


def broadcast(value: Any) -> Any:
    """Send the value of rank 0 to all processes, and return it."""
    return value if world_size() == 1 else broadcast_object_list([value])[0]
