"""Complete checkpoints of a training run, of both engines.

`checkpoint-<step>/` holds the engine's own files, among them the Trainer's trainer_state.json, and, written last, a
list of all files with their sizes (`files.json`). Without the list, or if a size differs, a checkpoint is incomplete.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from pipeline.core.messages import UserError, log
from pipeline.core.output import write_json
from pipeline.modeling import distributed

_FILES = "files.json"


@contextmanager
def saving(home: Path, step: int) -> Iterator[None]:
    """Raise a UserError if the block cannot write the checkpoint of a step to `home`."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if distributed.lost_peer(error):
            raise
        # torch reports a full disk as a position that it did not expect.
        free = shutil.disk_usage(home).free
        raise UserError(
            f"{home}: the checkpoint of step {step} cannot be written with {free / 1e6:.1f} MB free there: "
            f"{' '.join(str(error).split())}; free space and run again: it resumes from the checkpoint before"
        ) from error


def complete(path: Path) -> None:
    """Mark a checkpoint as complete, once its files are on the disk."""
    with saving(path.parent, _step(path)):
        sizes = {}
        for file in path.rglob("*"):  # sharded weights are a directory
            if file.is_file():
                with file.open("rb+") as content:
                    os.fsync(content)
                sizes[str(file.relative_to(path))] = file.stat().st_size
        write_json(path / _FILES, sizes)


def newest(home: Path) -> Path | None:
    """Return the newest complete checkpoint in `home`, and remove newer ones. Rank 0 decides for all ranks."""
    return distributed.broadcast(_newest(home) if distributed.rank() == 0 else None)


def _newest(home: Path) -> Path | None:
    for path in sorted(home.glob("checkpoint-*"), key=_step, reverse=True):
        if _is_complete(path):
            best = TrainerState.load_from_json(str(path / TRAINER_STATE_NAME)).best_global_step
            if best is None or _is_complete(home / f"checkpoint-{best}"):
                log.info("resuming from %s", path)
                return path
        log.info("%s or the checkpoint of its best epoch is incomplete; removed", path)
        shutil.rmtree(path)
    return None


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _is_complete(checkpoint: Path) -> bool:
    try:
        sizes = json.loads((checkpoint / _FILES).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
