"""Run every command in the same way: its --help, its log, its one-line errors and its exit status."""

import argparse
import gc
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.core.messages import UserError, log, printable
from pipeline.core.signals import end_of_command, exit_on_signals

PACKAGE = Path(__file__).resolve().parent
_SCRIPT = Path(getattr(sys.modules["__main__"], "__file__", "")).resolve()

# `python pipeline/train.py` puts pipeline/ first on the path, where `import evaluate` would find evaluate.py.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != PACKAGE]
if _SCRIPT.parent == PACKAGE:
    exit_on_signals()  # A signal may arrive while the command is still importing.
    # The packages read these variables when they are imported.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # Its report on the loaded weights is noise.
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # The Hub's client logs each of its many retries twice.
    # With the Xet protocol, a download may stall without end. Plain HTTP has time limits and retries.
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")

_STAGE_USAGE = (
    '"dvc repro" runs this stage when its inputs have changed, so you rarely need to run it yourself.\n\n'
    "More: docs/pipeline.md"
)


def parse_arguments(keys: Sequence[str] | None = None) -> None:
    """Parse the command line of a stage, or of another command without arguments. Only `--help` is an option.

    Args:
        keys: The keys of params.yaml that the stage reads, for its `--help`. None if the command is not a stage.
    """
    parser = command_parser(_SCRIPT.stem, sys.modules["__main__"].__doc__)
    if keys is not None:
        parser.description = f"{parser.description}\n{_STAGE_USAGE}"
        parser.epilog = textwrap.fill(f"Keys of params.yaml that this stage reads: {', '.join(keys) or 'none'}", 78)
    parser.parse_args()


def run(main: Callable[[], None], keys: Sequence[str] | None = None) -> None:
    """Parse the command line as in `parse_arguments`, and run the `main` of a command."""
    parse_arguments(keys)
    with as_command():
        main()


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
        "--jobs", metavar="NUMBER", type=int, default=1,
        help="number of runs to execute at the same time. On a CPU, also set train.num_threads, so that they do not "
        "compete for the cores (default: %(default)s)",
    )  # fmt: skip


def allow_closed_output() -> None:
    """Let the command end silently if the reader of its output, such as `| head`, has read enough."""
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@contextmanager
def as_command() -> Iterator[None]:
    """Run the block of a command: send the log to stderr, and turn a UserError into one line and exit status 1.

    SIGINT, SIGTERM and SIGHUP end the command with exit status 130, 143 and 129, and leave no drafts behind.
    """
    for package in (_SCRIPT.parent, Path("pipeline").resolve()):
        if package != PACKAGE and (package / "cli.py").exists():
            sys.exit(
                f"error: This would run the modules in {PACKAGE}, not the ones in {package}. "
                f'Run "python -m pipeline.NAME" in {package.parent}.'
            )
    exit_on_signals()
    gc.set_threshold(100_000, 50, 50)  # By default, a seventh of the time to import torch is garbage collection.
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    log.setLevel(logging.INFO)
    try:
        yield
    except UserError as error:
        sys.exit(printable(f"error: {error}"))
    except PermissionError as error:  # It may be an input or an output.
        if error.filename is None:
            raise
        sys.exit(printable(f"error: {error.filename}: {error.strerror}. Change its permissions."))
    finally:
        gc.freeze()  # Otherwise the interpreter spends half a second looking for garbage in torch when it exits.
        end_of_command()


class _OneLine(logging.Formatter):
    """Format a message as one line that starts with its level, unless that is info. A traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        return printable(level + super().formatMessage(record))
