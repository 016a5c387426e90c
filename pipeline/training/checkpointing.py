"""Recognize complete checkpoints, so that a run never resumes from one that was only partly written.

Both engines write `checkpoint-<step>/`, which contains trainer_state.json and other files. The empty file `complete` is
written last. If it is missing, the checkpoint is incomplete.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from pipeline.core.messages import UserError, log
from pipeline.modeling import distributed

_COMPLETE = "complete"


@contextmanager
def reporting_write_errors(checkpoints: Path, step: int) -> Iterator[None]:
    """Raise UserError if the block cannot write the checkpoint of a step to `checkpoints`."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if isinstance(error, (torch.AcceleratorError, torch.OutOfMemoryError)):  # These are errors of the GPU.
            raise
        if distributed.is_lost_connection(error):
            raise
        free = shutil.disk_usage(checkpoints).free  # If the disk is full, torch's own message does not say so.
        raise UserError(
            f"{checkpoints}: the checkpoint of step {step} cannot be written ({free / 1e6:.1f} MB free): "
            f"{' '.join(str(error).split())}. Free some space and run again."
        ) from error


def mark_complete(path: Path) -> None:
    """Flush the files of a checkpoint to the disk, then mark the checkpoint as complete."""
    with reporting_write_errors(path.parent, saved_step(path)):
        for file in path.rglob("*"):  # Sharded weights are a directory.
            if file.is_file():
                with file.open("rb+") as content:
                    os.fsync(content)
        (path / _COMPLETE).touch()


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """Return the newest complete checkpoint, and remove newer, incomplete ones. Rank 0 decides for all processes."""
    return distributed.broadcast(_newest_complete(checkpoints) if distributed.rank() == 0 else None)


def saved_step(checkpoint: Path) -> int:
    """Return the optimizer step after which a checkpoint was saved."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _newest_complete(checkpoints: Path) -> Path | None:
    for path in sorted(checkpoints.glob("checkpoint-*"), key=saved_step, reverse=True):
        if (path / _COMPLETE).exists():
            best = TrainerState.load_from_json(str(path / TRAINER_STATE_NAME)).best_global_step
            if best is None or (checkpoints / f"checkpoint-{best}" / _COMPLETE).exists():
                log.info("resuming from %s", path)
                return path
        log.info("removed %s, because it or the checkpoint of its best epoch is incomplete", path)
        shutil.rmtree(path)
    return None
