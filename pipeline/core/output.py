"""Atomic output: files and directories appear complete or not at all. Locks on directories."""

import errno
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline.core.messages import UserError

LOCK_FILE = ".lock"  # in a directory that has been locked


@contextmanager
def directory_lock(directory: Path) -> Iterator[bool]:
    """Lock a directory for the block. Yields False where another process has locked it, and where it is gone.

    The lock vanishes with the process, and a forked child (one that loads data, say) does not inherit it.
    Raises UserError where the lock file cannot be written.
    """
    lock = FileLock(directory / LOCK_FILE, blocking=False)
    mine = False
    if directory.is_dir():  # FileLock would make it
        with output_errors(directory), suppress(Timeout):
            lock.acquire()
            mine = True
    try:
        yield mine
    finally:
        lock.release()


@contextmanager
def output_errors(target: Path) -> Iterator[None]:
    """Raise UserError where the block fails because `target`, or a file beside it, cannot be written."""
    try:
        yield
    except OSError as error:
        culprit = Path(error.filename2 or error.filename or target)
        if error.errno in _UNWRITABLE and (culprit.is_relative_to(target.parent) or target.is_relative_to(culprit)):
            raise UserError(f"{target} cannot be written: {error.strerror} ({culprit})") from error
        raise


@contextmanager
def atomic_output(target: Path) -> Iterator[Path]:
    """Yield a path for a file or directory; it becomes `target` when the block succeeds, else it is removed.

    The draft is in a hidden directory beside `target`, so that the last step is a rename within one file system.
    Drafts of killed processes are removed. Raises UserError where `target` cannot be written.
    """
    with output_errors(target), ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.*"):
            with suppress(FileNotFoundError, NotADirectoryError):  # another process is removing it; a user's file
                young = time.time() - left.stat().st_mtime < _YOUNG_SECONDS
                if young or (any(left.iterdir()) and not (left / LOCK_FILE).exists()):  # the latter is a user's own
                    continue
                with directory_lock(left) as mine:
                    if mine:
                        shutil.rmtree(left, ignore_errors=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        stack.callback(shutil.rmtree, workshop, ignore_errors=True)
        stack.enter_context(directory_lock(workshop))
        draft = workshop / target.name
        yield draft
        previous = workshop / "previous"
        try:
            if target.is_dir():  # a rename does not replace a directory that has files in it
                target.rename(previous)
            draft.replace(target)
        except BaseException:  # a signal, too
            if previous.exists() and not target.exists():
                previous.rename(target)
            raise


_YOUNG_SECONDS = 60  # a draft that has just been made may not be locked yet
_UNWRITABLE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG,
    errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
}  # fmt: skip


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically, with the same bytes on every system."""
    with atomic_output(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, content: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write JSON for people and git: sorted keys, two spaces, floats rounded to 6 places."""
    write_text(path, json.dumps(_rounded(content), indent=2, sort_keys=True) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
