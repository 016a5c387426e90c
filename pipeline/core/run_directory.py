"""Directories for checkpoints, named so that the next run with the same inputs finds its checkpoints again."""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.messages import log
from pipeline.core.output import LOCK_FILE, directory_lock, output_errors
from pipeline.core.yaml12 import read_yaml

_STALE_SECONDS = 7 * 24 * 3600
_RETRY_SECONDS = 0.5
_FINISHED = "finished"
COMPLETE = "complete"  # an empty file in each complete checkpoint
_ROOT = Path(__file__).parents[2]


def code_digest() -> str:
    """Hash the code that the train stage depends on, according to dvc.yaml."""
    dependencies = read_yaml(_ROOT / "dvc.yaml")["stages"]["train"]["deps"]
    paths = [_ROOT / path for path in dependencies if path.startswith("pipeline/")]
    return _digest(b"", [file for path in paths for file in (path.glob("*.py") if path.is_dir() else [path])])


def run_key(provenance: dict[str, Any], directories: list[Path]) -> str:
    """Hash everything that determines the weights: the provenance, and the files in `directories`."""
    files = [file for directory in directories for file in directory.rglob("*") if file.is_file()]
    return _digest(json.dumps(provenance, sort_keys=True).encode(), files)


def _digest(prefix: bytes, files: list[Path]) -> str:
    digest = hashlib.sha256(prefix)
    for file in sorted(files):
        with file.open("rb") as content:
            digest.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


@contextmanager
def run_directory(root: Path, key: str) -> Iterator[Path]:
    """Lock and yield the directory `root/<key>`, and mark it as finished when the block succeeds.

    If another process is training with the same inputs, this process waits for it, and then resumes at its last step.

    Raises:
        UserError: The directory cannot be written.
    """
    home = root / key
    remove_finished(root, keep=key)
    with output_errors(root):
        home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        waiting = False
        while not stack.enter_context(directory_lock(home)):
            if not waiting:
                log.info("another process is training with the same inputs; waiting for it to end")
            waiting = True
            time.sleep(_RETRY_SECONDS)
            home.mkdir(parents=True, exist_ok=True)  # The other process may have failed and removed the directory.
        (home / _FINISHED).unlink(missing_ok=True)
        try:
            yield home
        except BaseException:
            if [path.name for path in home.iterdir()] != [LOCK_FILE]:
                log.info("the checkpoints stay in %s, and the next run with the same inputs resumes from them", home)
            else:
                _remove(home)
            raise
        (home / _FINISHED).touch()


def remove_finished(root: Path, keep: str = "") -> None:
    """Remove the directories of finished runs, and of runs that nobody has resumed for a week.

    A run does not remove its own directory, because DVC records the model only after the stage has ended. If that fails
    (killed, disk full), DVC runs the stage again, which then resumes from the last step.

    Args:
        keep: The key of a run whose directory is not removed.
    """
    for home in root.glob("*/"):
        finished = (home / _FINISHED).exists()
        if home.name == keep or not (finished or _is_stale(home)):
            continue
        with directory_lock(home) as acquired:
            if acquired:
                size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
                _remove(home)
                if not finished:
                    log.info("removed %s: its checkpoints had not been used for a week (%.1f MB)", home, size / 1e6)


def _is_stale(home: Path) -> bool:
    try:
        return time.time() - home.stat().st_mtime > _STALE_SECONDS
    except FileNotFoundError:  # Another process has just removed it.
        return False


def _remove(home: Path) -> None:
    """Remove a locked directory, its lock file last, so that no other run can lock it when it is half removed."""
    for marker in home.glob(f"*/{COMPLETE}"):  # If this process is killed, half a checkpoint must not look complete.
        marker.unlink()
    for path in home.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK_FILE:
            path.unlink()
    shutil.rmtree(home, ignore_errors=True)
