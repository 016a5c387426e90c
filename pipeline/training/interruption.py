"""Stop a training run after SIGINT, SIGTERM or SIGHUP, once it has saved a checkpoint of the current step."""

import signal
import sys
import time
from types import FrameType
from typing import Any

from pipeline.core.messages import log
from pipeline.core.signals import TERMINATION_SIGNALS
from pipeline.modeling import distributed

# A launcher forwards a signal that the terminal has already sent to all processes. Within this time, a second signal is
# taken for such an echo.
_ECHO_SECONDS = 1


def ignore_signals(worker: int) -> None:
    """Ignore signals in a worker of the data loader, because training needs it until the checkpoint is saved."""
    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Interruption:
    """Handle signals in a `with` block.

    The first signal stops the run after the current step. A second one stops it immediately.

    Attributes:
        number: The number of the signal, or 0 if none has arrived.
    """

    number = 0

    def __enter__(self) -> "Interruption":
        self._previous = {number: signal.getsignal(number) for number in TERMINATION_SIGNALS}
        for number in self._previous:
            signal.signal(number, self._receive)
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: Any) -> None:
        self._restore()
        if self.number and error_type is None:  # The signal arrived after the last step.
            sys.exit(128 + self.number)

    def agreed(self) -> bool:
        """Return whether a signal has reached any process.

        All processes must call this at the same step, because a signal may reach them at different steps.
        """
        number = max(distributed.all_gather(self.number))
        if number and not self.number:
            self.number, self._time = number, time.monotonic()
        return bool(number)

    def stop(self, step: int, steps: int) -> None:
        """End the process with the exit status of the signal. The checkpoint must have been saved."""
        log.info("stopped at step %d of %d", step, steps)
        sys.exit(128 + self.number)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self._time = number, time.monotonic()
            again = "Press Ctrl-C" if number == signal.SIGINT else f"Send {signal.Signals(number).name}"
            log.info("stopping after this step and saving a checkpoint. %s again to stop at once.", again)
        elif distributed.world_size() == 1 or time.monotonic() - self._time > _ECHO_SECONDS:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
