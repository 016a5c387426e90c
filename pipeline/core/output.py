"""Write files and directories so that they appear complete or not at all, and lock directories."""

import errno
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline.core.messages import UserError

LOCK_FILE = ".lock"  # in every directory that has been locked
# Reading an input hardly ever raises these errors.
_UNWRITABLE = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
    errno.ENAMETOOLONG,
}  # fmt: skip


@contextmanager
def directory_lock(directory: Path) -> Iterator[bool]:
    """Lock a directory for the block, and yield whether the lock was acquired.

    It is not acquired if another process holds it or if the directory does not exist. The lock is released when the
    process ends. A forked child, such as a worker of a data loader, does not inherit it.

    Raises:
        UserError: The lock file cannot be written.
    """
    lock = FileLock(directory / LOCK_FILE, blocking=False)
    acquired = False
    if directory.is_dir():  # FileLock would create a missing directory.
        with output_errors(directory), suppress(Timeout):
            lock.acquire()
            acquired = True
    try:
        yield acquired
    finally:
        lock.release()


@contextmanager
def output_errors(target: Path) -> Iterator[None]:
    """Raise UserError if the block fails because `target` cannot be written.

    A PermissionError is not changed, because it may also be about an input. `cli.as_command` reports it.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _UNWRITABLE:
            raise UserError(f"{target} cannot be written: {error.strerror} ({error.filename or target})") from error
        raise


@contextmanager
def atomic_output(target: Path) -> Iterator[Path]:
    """Yield the path of a draft, which becomes `target` if the block succeeds and is removed if the block fails.

    The block writes a file or a directory to this path. It is in a hidden directory next to `target`, so that the last
    step is a rename within one file system.

    Raises:
        UserError: `target` cannot be written, another process is writing it, or it is a directory and the block wrote
            a file.
    """
    draft_directory = target.parent / f".{target.name}.draft"
    with output_errors(target), ExitStack() as stack:
        try:
            draft_directory.mkdir(parents=True, exist_ok=True)
        except PermissionError as error:
            raise UserError(f"{target} cannot be written: {error.strerror}") from None
        if not stack.enter_context(directory_lock(draft_directory)):
            raise UserError(f"{target} is being written by another process. Try again when it has ended.")
        # This also removes drafts of killed processes.
        stack.callback(shutil.rmtree, draft_directory, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(dir=draft_directory), target.name)
        yield draft
        if draft.is_file():
            require_file_path(target)
        previous = draft.with_name(f"{target.name}.previous")
        try:
            if target.is_dir():  # A rename does not replace a directory that has files in it.
                target.rename(previous)
            draft.replace(target)
        except BaseException:  # A signal raises SystemExit, which is not an Exception.
            if previous.exists() and not target.exists():
                previous.rename(target)
            raise


def require_file_path(path: Path) -> None:
    """Raise UserError if `path` cannot become a file because it is a directory."""
    if path.is_dir():
        raise UserError(f"{path} is a directory. Name a file.")


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically, with the same bytes on every system."""
    with atomic_output(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, content: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write JSON that is easy to read and to diff: sorted keys, an indentation of two spaces, and `rounded` floats."""
    write_text(path, json.dumps(_with_rounded_floats(content), indent=2, sort_keys=True) + "\n")


def write_details(path: Path, details: dict[str, Any]) -> None:
    """Write details of a run that people read but do not compare, as a list with one object.

    Git tracks these files. `dvc metrics` shows the numbers in a JSON object but nothing inside a list. dvc.yaml still
    declares the files as metrics: DVC saves no run of a stage in its run cache if one of the outputs is uncached and
    neither a metric nor a plot. Going back to earlier parameters would then run the stage again.
    """
    write_json(path, [details])


def parse_details(text: str) -> dict[str, Any]:
    """Parse the content of a file that `write_details` has written. Raises ValueError for any other text."""
    match json.loads(text):
        case [dict(details)]:
            return details
    raise ValueError("not a list of one JSON object")


def rounded(value: float) -> float:
    """Round to 6 decimal places, or to 6 significant digits if the absolute value is below 0.1.

    The errors of a regression may be tiny.
    """
    return round(value, 6) if abs(value) >= 0.1 else float(f"{value:.6g}")


def _with_rounded_floats(value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, dict):
        return {key: _with_rounded_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_rounded_floats(item) for item in value]
    return value
