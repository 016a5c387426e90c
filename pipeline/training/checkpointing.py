"""Full checkpoints of a training run, of both engines.

`checkpoint-<step>/` holds the engine's own files, `progress.json`, and, written last, a list of all files with their
sizes (`files.json`). Without it, or where a size differs, a checkpoint is incomplete. Two are kept: the newest, and
that of the best epoch so far or the one before.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pipeline.core.messages import UserError, log
from pipeline.modeling import distributed

_FILES = "files.json"
_PROGRESS = "progress.json"


def checkpoint_path(home: Path, step: int) -> Path:
    """The directory of the checkpoint of an optimizer step."""
    return home / f"checkpoint-{step}"


@contextmanager
def saving(home: Path, step: int) -> Iterator[None]:
    """Raise UserError where the checkpoint of a step cannot be written to `home`."""
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


def complete(path: Path, progress: dict[str, Any], best_step: int | None) -> None:
    """Finish a checkpoint whose other files are written, and remove those that are no longer needed.

    progress: what `progress_of` gives back. best_step: that of the best epoch so far.
    """
    with saving(path.parent, _step(path)):
        (path / _PROGRESS).write_text(json.dumps({**progress, "best_step": best_step}))
        files = [file for file in path.rglob("*") if file.is_file()]  # sharded weights are a directory
        for file in files:
            with file.open("rb+") as content:
                os.fsync(content)  # before the list of files says that they are complete
        sizes = {str(file.relative_to(path)): file.stat().st_size for file in files}
        draft = path / f".{_FILES}"
        draft.write_text(json.dumps(sizes))
        draft.rename(path / _FILES)
    *older, _newest = sorted(path.parent.glob("checkpoint-*"), key=_step)
    kept = [other for other in older if _step(other) == best_step] or older[-1:]
    for other in older:
        if other not in kept:
            shutil.rmtree(other)


def progress_of(path: Path) -> dict[str, Any]:
    """What `complete` was given for a checkpoint."""
    progress: dict[str, Any] = json.loads((path / _PROGRESS).read_text())
    return progress


def newest(home: Path, keep_best: bool) -> Path | None:
    """The newest complete checkpoint in `home` whose best epoch's is complete too, where it is needed.

    Newer ones are removed. Collective: rank 0 decides for all.
    """
    return distributed.broadcast(_newest(home, keep_best) if distributed.rank() == 0 else None)


def _newest(home: Path, keep_best: bool) -> Path | None:
    for path in sorted(home.glob("checkpoint-*"), key=_step, reverse=True):
        if _is_complete(path):
            best = progress_of(path)["best_step"]
            if not keep_best or best is None or _is_complete(checkpoint_path(home, best)):
                log.info("resuming from %s", path)
                return path
        log.info("%s is incomplete, or that of its best epoch is; removed", path)
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
