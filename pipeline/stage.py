"""What every stage does alike: command line, log, one-line errors, outputs that appear whole or not at all."""

import argparse
import errno
import fcntl
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

# The artefacts that flow from stage to stage, relative to the directory that holds dvc.yaml.
CHECKED = Path("data/params_checked")
RAW = Path("data/raw")
TOKENIZED = Path("data/tokenized")
PREDICTIONS = Path("data/predictions")
PRETRAINED = Path("models/pretrained")
CLASSIFIER = Path("models/classifier")
METRICS = Path("metrics")
CHECKPOINTS = Path("models/.checkpoints")

log = logging.getLogger("pipeline")

SPLITS = ("train", "validation", "test")
SCORED = SPLITS[1:]
SOURCE = "source.json"  # in a directory of data or of a checkpoint: where it is from, and its hashes
SWAPPED = "_swapped"  # behind a split's name: the same pairs with their sentences changed round


class UserError(Exception):
    """Something that the user can mend. Its text is one line: the key or file, what was found there, what to do."""


def run(stage: Callable[..., None], **flags: str) -> None:
    """Run a stage's `main` as a command, with `--help` from its module's docstring; see `as_command`.

    flags: switches of the command, each with its help; `main` gets them by their names.
    """
    module = sys.modules[stage.__module__]
    parser = argparse.ArgumentParser(prog=f"python -m {module.__spec__.name}", description=module.__doc__)  # type: ignore[union-attr]
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    arguments = vars(parser.parse_args())
    with as_command():
        stage(**arguments)


@contextmanager
def as_command() -> Iterator[None]:
    """Run the block as every command does: log to stderr, UserError as one printable line and status 1.

    SIGINT and SIGTERM end the command with status 130 and 143, and leave no drafts.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    log.setLevel(logging.INFO)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its loading report, in colour, says little
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # the Hub's client tells each of its many retries twice
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars are for terminals
    try:
        yield
    except UserError as error:
        sys.exit(printable(f"error: {error}"))
    except PermissionError as error:  # of an input; outputs are told by `writing`
        sys.exit(printable(f"error: {error.filename}: {error.strerror}; change its permissions"))


class _OneLine(logging.Formatter):
    """A message as one line, whatever it quotes; a traceback below it keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def printable(text: str) -> str:
    """Replace line breaks and the characters that a terminal obeys: what others wrote must not pass for our lines."""
    return "".join(character if character.isprintable() else " " for character in text)


def require(path: Path, producer: str) -> Path:
    """Return `path`, the output of the stage `producer`, or raise UserError where it has not been made yet."""
    if not path.exists():
        raise UserError(f'{path} is missing; run "dvc repro {producer}"')
    return path


def users_path(text: str | Path) -> Path:
    """A path as the user gave it; a relative one counts from the user's repository.

    DVC runs queued and temporary experiments in a directory of its own, and tells by DVC_ROOT where they come from.
    """
    return Path(os.environ.get("DVC_ROOT", ""), Path(text).expanduser())


@contextmanager
def held(directory: Path) -> Iterator[bool]:
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
def writing(target: Path) -> Iterator[None]:
    """Raise UserError where the block fails since `target`, or what lies beside it, cannot be written."""
    try:
        yield
    except OSError as error:
        culprit = Path(error.filename2 or error.filename or target)
        if error.errno in _UNWRITABLE and (culprit.is_relative_to(target.parent) or target.is_relative_to(culprit)):
            raise UserError(f"{target} cannot be written: {error.strerror} ({culprit})") from error
        raise


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yield a path to write a file or a directory to; it becomes `target` when the block ends well, else it vanishes.

    The draft lies in a hidden directory beside `target`, so that the last step is a rename within one file system.
    Drafts that a killed process has left are removed. Raises UserError where `target` cannot be written.
    """
    with writing(target), ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.*"):
            with suppress(FileNotFoundError), held(left) as mine:
                if mine and time.time() - left.stat().st_mtime > _YOUNG_SECONDS:
                    shutil.rmtree(left)
        workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        stack.callback(shutil.rmtree, workshop, ignore_errors=True)
        stack.enter_context(held(workshop))
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
    with whole(path) as draft:
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
