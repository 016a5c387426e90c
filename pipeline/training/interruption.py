"""SIGINT, SIGTERM and SIGHUP during training: save a checkpoint after this step, then stop."""

import signal
import sys
import time
from types import FrameType
from typing import Any

from pipeline.core.messages import log
from pipeline.core.signals import ENDING
from pipeline.modeling import distributed

_ECHO_SECONDS = 1  # a launcher forwards a signal that the terminal has already sent to its processes


class Interruption:
    """In the block, the first of these signals stops the run after its step; the second ends it at once."""

    number = 0  # of the signal; 0: none has arrived

    def __enter__(self) -> "Interruption":
        self._previous = {number: signal.getsignal(number) for number in ENDING}
        for number in self._previous:
            signal.signal(number, self._arrived)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self._restore()
        if self.number and kind is None:  # it came after the last step
            sys.exit(128 + self.number)

    def agreed(self) -> bool:
        """Whether a signal has reached any rank; they see it at different steps. Collective."""
        number = max(distributed.all_gather(self.number))
        if number and not self.number:
            self.number, self._time = number, time.monotonic()
        return bool(number)

    def stop(self, step: int, steps: int) -> None:
        """End the process; everything is saved."""
        log.info("stopped at step %d of %d", step, steps)
        sys.exit(128 + self.number)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self._time = number, time.monotonic()
            log.info("%s: stopping after this step; once more to stop now", signal.Signals(number).name)
        elif distributed.world_size() == 1 or time.monotonic() - self._time > _ECHO_SECONDS:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
