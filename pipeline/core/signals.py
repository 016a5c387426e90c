"""Signals that ask a command to end."""

import signal
import sys
from types import FrameType

_RETRY_SECONDS = 1  # long enough to remove the drafts of outputs, which a second SystemExit would interrupt
_received: list[int] = []

TERMINATION_SIGNALS = [signal.SIGINT, signal.SIGTERM]
# SIGHUP means that the terminal was closed. Windows does not have it, and nohup makes a command ignore it.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
    TERMINATION_SIGNALS.append(signal.SIGHUP)


def exit_on_signals() -> None:
    """Make each signal in TERMINATION_SIGNALS end the process, with a status of 128 plus the number of the signal."""
    for number in TERMINATION_SIGNALS:
        signal.signal(number, _exit)


def end_of_command() -> None:
    """Restore the default handling of signals. Exit if a signal has arrived, even if the command ran to its end."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)
    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if _received:
        sys.exit(128 + _received[0])


def _exit(number: int, frame: FrameType | None) -> None:
    """Raise SystemExit now, and again every second until the command has ended.

    A single exception may get lost. Python ignores it in a destructor and in the callback of a weak reference, which
    every import uses, and code with a bare `except:` catches it.
    """
    _received.append(number)
    if sys.platform != "win32":  # Windows has no timer.
        signal.signal(signal.SIGALRM, _exit)
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
    sys.exit(128 + _received[0])
