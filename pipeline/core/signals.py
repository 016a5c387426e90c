"""The signals that ask a command to end."""

import signal
import sys
from types import FrameType

_RETRY_SECONDS = 1  # long enough to remove the drafts of outputs, which a second SystemExit would interrupt
_received: list[int] = []

ENDING = [signal.SIGINT, signal.SIGTERM]
# It means that the terminal is gone. Windows has no such signal, and nohup ignores it.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
    ENDING.append(signal.SIGHUP)


def exit_on_signals() -> None:
    """Make each of the signals end the process with the status 128 plus its number."""
    for number in ENDING:
        signal.signal(number, _exit)


def end_of_command() -> None:
    """Leave later signals to the system. Exit if an earlier one has arrived, even if the command ran to its end."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    if _received:
        sys.exit(128 + _received[0])


def _exit(number: int, frame: FrameType | None) -> None:
    """Raise SystemExit now, and once more every second until the command has ended.

    Python swallows the exception if the signal interrupts a destructor or a callback of a weak reference, which every
    import has, and so does code with a bare `except:`.
    """
    _received.append(number)
    if sys.platform != "win32":  # Windows has no timer.
        signal.signal(signal.SIGALRM, _exit)
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
    sys.exit(128 + _received[0])
