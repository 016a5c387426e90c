"""Run every command in the same way: its --help, its log, its one-line errors and its exit status."""

import argparse
import gc
import logging
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.core.messages import UserError, log, one_line, printable
from pipeline.core.packages import require_locked
from pipeline.core.stage import unchanged
from pipeline.params import Params, load_params

# Errors of libraries that the user can fix, by a part of their message.
_REMEDIES = {
    "out of memory|allocate memory|ALLOC_FAILED|MemoryError": (
        "out of memory. Lower train.batch_size and raise train.gradient_accumulation_steps by the same factor, lower "
        "predict.batch_size (--batch-size in classify) or tokenize.max_length, or set train.gradient_checkpointing."
    ),
    "PackageNotFoundError": 'a locked package is missing. Install it with "rm -f .venv/ready && make setup".',
    "No space left|failed writing file|inline_container": "the disk is full. Free some space and run again.",
    "CUDA error: (?!device-side assert)|CUDA driver|CUDNN_STATUS": "the GPU failed. Look at nvidia-smi, and run again.",
    r"\bgloo\b|NCCL|Socket Timeout|Connection (reset|closed) by peer": (
        "the connection to another process is lost. Fix the cause, such as an error above, and run again."
    ),
}


def run_stage(stage: str, main: Callable[[Params], None]) -> None:
    """Run a stage of dvc.yaml with the parameters in params.yaml."""
    command_parser(Path(sys.argv[0]).stem, sys.modules["__main__"].__doc__).parse_args()
    with as_command(), unchanged(stage):
        require_locked()
        main(load_params())


def command_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Return the parser of a command. Its `--help` starts with `doc`, and keeps the line breaks there."""
    return argparse.ArgumentParser(
        prog=f"python -m pipeline.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_group_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs a seed group, a fold group or a learning curve."""
    parser.add_argument(
        "-S", "--set-param", dest="overrides", metavar="KEY=VALUE", action="append", default=[],
        help='change a key of params.yaml in every run, as in "dvc exp run"; can be repeated (default: params.yaml as '
        "it is)",
    )  # fmt: skip
    add_jobs_option(parser)


def add_jobs_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the number of simultaneous runs."""
    parser.add_argument(
        "--jobs", metavar="NUMBER", type=at_least(1), default=1,
        help="number of runs to execute at the same time. On a CPU, also set train.num_threads, so that they do not "
        "compete for the cores (default: %(default)s)",
    )  # fmt: skip


def at_least(minimum: int) -> Callable[[str], int]:
    """Return the type of an option whose value is an integer that is not below a minimum."""

    def integer(text: str) -> int:  # argparse shows the name of this function if the text is not an integer.
        if int(text) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, got {text}")
        return int(text)

    return integer


@contextmanager
def as_command() -> Iterator[None]:
    """Run the block of a command: send the log to stderr, and turn an error of the user into one line and status 1."""
    for number in (signal.SIGINT, signal.SIGTERM):  # SystemExit runs `finally` clauses, which remove drafts.
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    log.setLevel(logging.INFO)
    try:
        yield
    except Exception as error:
        if reason := error_reason(error):
            sys.exit(printable(f"error: {reason}"))
        raise
    finally:
        gc.freeze()  # Otherwise the interpreter spends half a second looking for garbage in torch when it exits.


def error_reason(error: Exception) -> str | None:
    """Describe an error that the user can fix, in one line. A bug has no description, and keeps its traceback."""
    if isinstance(error, UserError) or type(error).__module__.startswith("dvc."):
        return str(error)
    message = one_line(f"{type(error).__name__}: {error}")
    for part, remedy in _REMEDIES.items():
        if re.search(part, message):
            return f"{remedy} ({message[:200]})"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return error_reason(error.__cause__) if isinstance(error.__cause__, Exception) else None  # such as datasets' errors


class _OneLine(logging.Formatter):
    """Format a message as one line that starts with its level, unless that is info. A traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        return printable(level + super().formatMessage(record))
