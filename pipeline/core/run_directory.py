"""Directories of checkpoints, keyed so that the next run with the same inputs finds its own."""

import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pipeline.core.messages import log
from pipeline.core.output import LOCK_FILE, directory_lock, output_errors

_STALE_SECONDS = 7 * 24 * 3600
_FINISHED = "finished"
_PACKAGE = Path(__file__).parents[1]
# Every command imports these, and no stage depends on them in dvc.yaml: the parameters are part of the key anyway.
_FOUNDATIONS = {_PACKAGE / name for name in ("__init__.py", "cli.py", "params.py")}


def code_digest() -> str:
    """Hash the stage's code: of the modules imported so far, __main__ among them, that a stage depends on."""
    modules = {Path(getattr(module, "__file__", None) or "") for module in sys.modules.values()}
    return _digest(b"", [file for file in modules - _FOUNDATIONS if file.is_relative_to(_PACKAGE)])


def run_key(provenance: dict[str, Any], directories: list[Path]) -> str:
    """Hash all that determines the weights: the provenance, and the files in `directories`."""
    files = [file for directory in directories for file in directory.rglob("*") if file.is_file()]
    return _digest(json.dumps(provenance, sort_keys=True).encode(), files)


def _digest(start: bytes, files: list[Path]) -> str:
    digest = hashlib.sha256(start)
    for file in sorted(files):
        with file.open("rb") as content:
            digest.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


@contextmanager
def own_directory(root: Path, key: str, fresh: bool) -> Iterator[Path]:
    """Lock and yield the directory `root/<key>`; where another run has locked it, a temporary one instead.

    It is emptied first where `fresh`, and marked as finished when the block succeeds. Directories of other keys are
    removed when finished, or unused for seven days. Raises UserError where it cannot be written.
    """
    home = root / key
    with output_errors(root):
        root.mkdir(parents=True, exist_ok=True)
    remove_finished(root, but=key)
    _remove_stale(root, but=key)
    with _claimed(home) as mine:
        if mine:
            if fresh:
                _empty(home)
            (home / _FINISHED).unlink(missing_ok=True)
            try:
                yield home
            except BaseException:
                if _content(home):
                    log.info("checkpoints are kept in %s; the next run resumes there", home)
                else:
                    _remove(home)
                raise
            (home / _FINISHED).touch()
            return
    log.info("another run with the same inputs is under way; this one starts over in a directory of its own")
    with tempfile.TemporaryDirectory(prefix=f"{key}.", dir=root) as apart:
        yield Path(apart)


def _content(home: Path) -> list[Path]:
    return [path for path in home.iterdir() if path.name != LOCK_FILE]


def _empty(home: Path) -> None:
    for path in _content(home):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _remove(home: Path) -> None:
    """Remove a locked directory, the lock file last: without it, another run could claim a directory half removed."""
    _empty(home)
    shutil.rmtree(home, ignore_errors=True)  # fails where another run has claimed the empty directory meanwhile


def remove_finished(root: Path, but: str = "") -> None:
    """Remove the checkpoints of finished runs, except those of the key `but`.

    Not at the end of their own run: DVC records the model after the stage, and if that fails (killed, disk full), it
    runs the stage again, which then resumes from the last step.
    """
    for home in root.glob("*/"):
        if home.name != but and (home / _FINISHED).exists():
            with _claimed(home) as mine:
                if mine:
                    _remove(home)


def _remove_stale(root: Path, but: str) -> None:
    for home in root.glob("*/"):
        with suppress(FileNotFoundError):  # another run is removing it
            if home.name == but or time.time() - home.stat().st_mtime < _STALE_SECONDS:
                continue
            with _claimed(home) as mine:
                if mine:
                    size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
                    _remove(home)
                    log.info("removed %s: checkpoints unused for a week, %.1f MB", home, size / 1e6)


@contextmanager
def _claimed(home: Path) -> Iterator[bool]:
    """Make and lock a directory. Yields False where another process has locked it."""
    while True:
        with output_errors(home):
            home.mkdir(exist_ok=True)
        with directory_lock(home) as mine:
            if mine or home.exists():  # else its owner has just finished and removed it: try again
                yield mine
                return
