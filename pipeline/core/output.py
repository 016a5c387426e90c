"""Files and directories that appear as a whole or not at all."""

import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError


@contextmanager
def directory_lock(directory: Path) -> Iterator[bool]:
    """Lock a directory for the block. Yields False where another process has locked it, and where it is gone.

    The kernel drops the lock when the process dies.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    _locks.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = directory.stat().st_ino == os.fstat(descriptor).st_ino  # no: removed and made anew in between
        except (BlockingIOError, FileNotFoundError):
            mine = False
        yield mine
    finally:
        _locks.remove(descriptor)
        os.close(descriptor)


_locks: set[int] = set()


def _let_go() -> None:
    while _locks:
        os.close(_locks.pop())


# A lock is that of an open file, which a forked process shares. One that loads data for a killed run lives on for
# seconds, and the next run would find its checkpoints locked.
os.register_at_fork(after_in_child=_let_go)


@contextmanager
def output_errors(target: Path) -> Iterator[None]:
    """Raise UserError where the block fails since `target`, or what lies beside it, cannot be written."""
    try:
        yield
    except OSError as error:
        culprit = Path(error.filename2 or error.filename or target)
        if error.errno in _UNWRITABLE and (culprit.is_relative_to(target.parent) or target.is_relative_to(culprit)):
            raise UserError(f"{target} cannot be written: {error.strerror} ({culprit})") from error
        raise


@contextmanager
def atomic_output(target: Path) -> Iterator[Path]:
    """Yield a path to write a file or a directory to; it becomes `target` when the block ends well, else it vanishes.

    The draft lies in a hidden directory beside `target`, so that the last step is a rename within one file system.
    Drafts that a killed process has left are removed. Raises UserError where `target` cannot be written.
    """
    with output_errors(target), ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.*"):
            with suppress(FileNotFoundError), directory_lock(left) as mine:
                if mine and time.time() - left.stat().st_mtime > _YOUNG_SECONDS:
                    shutil.rmtree(left)
        workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        stack.callback(shutil.rmtree, workshop, ignore_errors=True)
        stack.enter_context(directory_lock(workshop))
        draft = workshop / target.name
        yield draft
        if target.is_dir():  # a rename does not replace a directory that has files in it
            target.rename(workshop / "previous")
        draft.replace(target)


_YOUNG_SECONDS = 60  # a draft that has just been made may not be locked yet
_UNWRITABLE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG,
    errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
}  # fmt: skip


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole, with the same bytes on every system."""
    with atomic_output(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON for people and git: sorted keys, two spaces, floats rounded to 6 places."""
    write_text(path, json.dumps(_rounded(content), indent=2, sort_keys=True) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
