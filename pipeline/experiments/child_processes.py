"""Child processes, such as DVC, that can save their work when this command is interrupted."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM)
DVC = (sys.executable, "-m", "dvc")  # the DVC of this Python environment, even if the environment is not activated


def dvc_environ() -> dict[str, str]:
    """Return the environment variables for DVC, which make the stages run the current Python as `python`."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}


class ChildProcesses:
    """Child processes that receive the signals sent to this command. See `forwarding_signals`.

    Attributes:
        signals: The signals received so far.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._processes: list[subprocess.Popen[Any]] = []

    def start(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
        """Start a process in its own process group, which a terminal's Ctrl-C does not reach.

        If a signal has already arrived, the process is interrupted at once.
        """
        process = subprocess.Popen(command, process_group=0, **options)
        self._processes.append(process)
        if self.signals:
            _interrupt(process)
        return process

    def forward(self, number: int, _: FrameType | None) -> None:
        """Handle a signal by interrupting all children that are still running."""
        self.signals.append(number)
        for process in self._processes:
            _interrupt(process)


def _interrupt(process: "subprocess.Popen[Any]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            # SIGTERM would end dvc before its stage has saved a checkpoint.
            os.killpg(process.pid, signal.SIGINT)


@contextmanager
def forwarding_signals() -> Iterator[ChildProcesses]:
    """Forward the signals that end a command to the children, and exit with the status of the first signal at the end.

    The children save their work first.
    """
    children = ChildProcesses()
    previous = {number: signal.signal(number, children.forward) for number in TERMINATION_SIGNALS}
    try:
        yield children
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if children.signals:
        sys.exit(128 + children.signals[0])
