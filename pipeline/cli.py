"""How every command runs: --help, log, UserError in one line, exit status."""

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.core.messages import UserError, log, printable
from pipeline.core.signals import end_of_command, exit_on_signals

# `python pipeline/train.py` puts the directory of train.py first on the path, where evaluate.py would be imported for
# the package `evaluate`.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _HERE]
_script = Path(getattr(sys.modules["__main__"], "__file__", ""))
if _script.resolve().parent == _HERE:  # a command of this package: a signal may come while it imports the rest
    exit_on_signals()


def run(stage: Callable[..., None], keys: Sequence[str] = (), **flags: str) -> None:
    """Run a stage's `main` as a command, with `--help` from its module's docstring; see `as_command`.

    keys: those of params.yaml that it reads, for `--help`. flags: switches of the command, each with its help; `main`
    gets them by name.
    """
    module = sys.modules[stage.__module__]
    prog = f"python -m pipeline.{Path(str(module.__file__)).stem}"
    read = f"Reads from params.yaml, which says what each key means: {', '.join(keys)}." if keys else None
    parser = argparse.ArgumentParser(prog=prog, description=module.__doc__, epilog=read)
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    arguments = vars(parser.parse_args())
    with as_command():
        stage(**arguments)


def command_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The parser of a command with arguments of its own: `--help` shows the module's docstring with its paragraphs."""
    return argparse.ArgumentParser(
        prog=f"python -m pipeline.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


@contextmanager
def as_command() -> Iterator[None]:
    """Run the block as every command does: log to stderr, UserError as one printable line and status 1.

    SIGINT, SIGTERM and SIGHUP end the command with status 130, 143 and 129, and leave no drafts.
    """
    for other in (
        _script.parent.resolve(),
        Path(_HERE.name).resolve(),
    ):  # the script's checkout, the working directory's
        if other != _HERE and (other / "cli.py").exists():
            sys.exit(f"error: this would run the modules of {_HERE}, not those of {other}; use python -m there")
    exit_on_signals()
    # By default the garbage collector goes through all objects of torch and transformers dozens of times while they are
    # imported, which takes a seventh of the time.
    gc.set_threshold(100_000, 50, 50)
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    log.setLevel(logging.INFO)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its loading report is noise
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # the Hub's client logs each of its many retries twice
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars are for terminals
    try:
        yield
    except UserError as error:
        sys.exit(printable(f"error: {error}"))
    except PermissionError as error:  # of an input; for outputs see `output_errors`
        if error.filename is None:
            raise
        sys.exit(printable(f"error: {error.filename}: {error.strerror}; change its permissions"))
    finally:
        gc.freeze()  # else the interpreter, as it ends, looks for garbage among all objects: half a second with torch
        end_of_command()


class _OneLine(logging.Formatter):
    """Format a message as one line, whatever it quotes; a traceback below it keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))
