"""Directories for checkpoints, named so that the next run with the same inputs finds its checkpoints again."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.messages import log
from pipeline.core.output import directory_lock, output_errors
from pipeline.core.paths import PROJECT
from pipeline.core.yaml12 import read_yaml

_STALE_SECONDS = 7 * 24 * 3600
_RETRY_SECONDS = 0.5
_DIGITS = 16  # of a hash
# A file with the name of the DVC experiment that used the directory last. It is empty outside an experiment.
_EXPERIMENT = "experiment"


def code_digest() -> str:
    """Hash the code that the train stage depends on, according to dvc.yaml."""
    dependencies = read_yaml(PROJECT / "dvc.yaml")["stages"]["train"]["deps"]
    paths = [PROJECT / path for path in dependencies if path.startswith("pipeline/")]
    return _digest([file for path in paths for file in (path.glob("*.py") if path.is_dir() else [path])])


def inputs_digest(directories: list[Path]) -> str:
    """Hash the files in `directories`, except for files that do not change the result.

    `Dataset.map` in a notebook leaves its results next to the dataset that it has opened, and macOS adds .DS_Store.
    """
    files = [file for directory in directories for file in directory.rglob("*") if file.is_file()]
    return _digest([file for file in files if file.name != ".DS_Store" and not file.match("cache-*.arrow")])


def run_key(provenance: dict[str, Any]) -> str:
    """Hash the provenance of a model, which determines its weights."""
    return hashlib.sha256(json.dumps(provenance, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        with file.open("rb") as content:
            digest.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()[:_DIGITS]


@contextmanager
def run_directory(root: Path, key: str) -> Iterator[Path]:
    """Lock and yield the directory `root/<key>`, and remove the directories that no run has used for a week.

    If another process is training with the same inputs, this process waits for it, and then resumes at its last step.
    If several processes train together, the others wait for this one for `runtime.timeout` at most.

    The directory stays when the block ends, because DVC records the model only after the stage has ended. If that fails
    (killed, disk full), DVC runs the stage again, which then resumes from the last step. The stage predict, which DVC
    runs only after it has recorded the model, removes the directory. The trials of a search end with train, so
    `pipeline.search` removes their directories.

    Raises:
        UserError: The directory cannot be written.
    """
    directory = root / key
    with output_errors(root):
        directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        waiting = False
        while not stack.enter_context(directory_lock(directory)):
            if not waiting:
                log.info("another process is training with the same inputs; waiting for it to end")
            waiting = True
            time.sleep(_RETRY_SECONDS)
            directory.mkdir(parents=True, exist_ok=True)  # The other process may have removed the directory.
        with output_errors(root):
            (directory / _EXPERIMENT).write_text(os.environ.get("DVC_EXP_NAME", ""), encoding="utf-8")
        directory.touch()  # From now on, another week must pass before it may be removed.
        _remove_stale(root)
        try:
            yield directory
        except BaseException:
            # training.checkpointing writes the file `complete` last. No run resumes from a checkpoint without it.
            if any(directory.glob("checkpoint-*/complete")):
                log.info(
                    "the checkpoints stay in %s, and the next run with the same inputs resumes from them", directory
                )
            else:
                _remove(directory)
            raise


def remove_run_directory(root: Path, key: str) -> None:
    """Remove `root/<key>`, unless it does not exist or another process is training in it."""
    with directory_lock(root / key) as acquired:
        if acquired:
            _remove(root / key)


def remove_run_directories(root: Path, experiment: str) -> None:
    """Remove the directories in `root` that a DVC experiment used last, except those in which a process is training."""
    for record in root.glob(f"*/{_EXPERIMENT}"):
        with directory_lock(record.parent) as acquired:
            # Another process may have removed the directory before it was locked.
            if acquired and record.exists() and record.read_text(encoding="utf-8") == experiment:
                _remove(record.parent)


def _remove_stale(root: Path) -> None:
    for directory in root.glob("*/"):
        if _is_stale(directory):
            with directory_lock(directory) as acquired:
                if acquired:
                    _remove(directory)
                    log.info("removed %s, because its checkpoints had not been used for a week", directory)


def _is_stale(directory: Path) -> bool:
    try:
        return time.time() - directory.stat().st_mtime > _STALE_SECONDS
    except FileNotFoundError:  # Another process has just removed it.
        return False


def _remove(directory: Path) -> None:
    """Remove a locked directory. If this process is killed before the end, no run finds what is left."""
    trash = Path(tempfile.mkdtemp(dir=directory.parent))
    directory.rename(trash / directory.name)
    shutil.rmtree(trash, ignore_errors=True)
