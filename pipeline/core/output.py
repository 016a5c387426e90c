"""Atomic output: files and directories appear complete or not at all. Locks on directories."""

import errno
import glob
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline.core.messages import UserError

LOCK_FILE = ".lock"  # in a directory that has been locked
_DRAFT = ".draft"  # the suffix that tells drafts from hidden directories of the user
_YOUNG_SECONDS = 60  # A draft that has just been made may not be locked yet.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # Reading an input never raises these.
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG}


@contextmanager
def directory_lock(directory: Path) -> Iterator[bool]:
    """Lock a directory for the block, and yield whether that worked.

    It does not if another process has locked the directory, or if there is no such directory. The lock ends with the
    process, and a forked child, such as a data loader's worker, does not inherit it.

    Raises:
        UserError: The lock file cannot be written.
    """
    lock = FileLock(directory / LOCK_FILE, blocking=False)
    acquired = False
    if directory.is_dir():  # FileLock would create it.
        with output_errors(directory), suppress(Timeout):
            lock.acquire()
            acquired = True
    try:
        yield acquired
    finally:
        lock.release()


@contextmanager
def output_errors(target: Path) -> Iterator[None]:
    """Raise UserError if the block fails because `target`, its draft or a directory above it cannot be written."""
    try:
        yield
    except OSError as error:
        culprit = Path(error.filename2 or error.filename or target)
        drafts = str(target.parent / f".{target.name}.")
        blamed = target.is_relative_to(culprit) or culprit.is_relative_to(target) or str(culprit).startswith(drafts)
        full = error.errno in _FULL and culprit.is_relative_to(target.parent)
        if full or (error.errno in _FORBIDDEN and blamed):
            raise UserError(f"{target} cannot be written: {error.strerror} ({culprit})") from error
        raise


@contextmanager
def atomic_output(target: Path) -> Iterator[Path]:
    """Yield a path for a file or directory, which becomes `target` if the block succeeds, and is removed if it fails.

    The draft is in a hidden directory next to `target`, so that the last step is a rename within one file system.
    Drafts that killed processes have left there are removed.

    Raises:
        UserError: `target` cannot be written, or it is a directory and the block wrote a file.
    """
    with output_errors(target), ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.*{_DRAFT}"):
            with suppress(FileNotFoundError):  # Another process may remove it at the same moment.
                if time.time() - leftover.stat().st_mtime > _YOUNG_SECONDS:
                    with directory_lock(leftover) as abandoned:
                        if abandoned:
                            shutil.rmtree(leftover, ignore_errors=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_DRAFT, dir=target.parent))
        stack.callback(shutil.rmtree, workshop, ignore_errors=True)
        stack.enter_context(directory_lock(workshop))
        draft = workshop / target.name
        yield draft
        if draft.is_file():
            require_file_path(target)
        previous = workshop / "previous"
        try:
            if target.is_dir():  # A rename does not replace a directory that has files in it.
                target.rename(previous)
            draft.replace(target)
        except BaseException:  # also when a signal comes
            if previous.exists() and not target.exists():
                previous.rename(target)
            raise


def require_file_path(path: Path) -> None:
    """Raise UserError if `path`, where a file is to be written, is a directory."""
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file")


def require_different_files(paths: Sequence[Path]) -> None:
    """Raise UserError if two paths are the same file, also by way of a symbolic or a hard link."""
    for first, second in combinations(paths, 2):
        linked = first.exists() and second.exists() and first.samefile(second)
        if linked or os.path.realpath(first) == os.path.realpath(second):  # Path.resolve fails for a loop of links.
            raise UserError(f"{second} is the same file as {first}, which it would replace; name another file")


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically, with the same bytes on every system."""
    with atomic_output(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, content: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write JSON for people and git: sorted keys, two spaces, floats as by `rounded`."""
    write_text(path, json.dumps(_with_rounded_floats(content), indent=2, sort_keys=True) + "\n")


def rounded(value: float) -> float:
    """Round to 6 places, or to 6 digits if it is below 0.1: the errors of a regression may be tiny."""
    return round(value, 6) if abs(value) >= 0.1 else float(f"{value:.6g}")


def _with_rounded_floats(value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, dict):
        return {key: _with_rounded_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_rounded_floats(item) for item in value]
    return value
