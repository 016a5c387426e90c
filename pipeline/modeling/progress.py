"""Log the progress of a long computation. A terminal shows a progress bar instead."""

import sys
import time
from datetime import timedelta
from typing import Any

from transformers import TrainerCallback

from pipeline.core.messages import log

_SECONDS = 30  # between two lines


class ProgressLine:
    """A line in the log every 30 seconds: the step, the number of steps, and the time left."""

    def __init__(self, name: str, first_step: int = 0) -> None:
        self._name, self._first_step = name, first_step
        self._began = self._logged = time.monotonic()

    def update(self, step: int, steps: int, details: str = "") -> None:
        """Log a line if it is due. `step` is the number of steps that are done."""
        now = time.monotonic()
        if now - self._logged >= _SECONDS and not sys.stderr.isatty():
            self._logged = now
            left = timedelta(seconds=round((now - self._began) / (step - self._first_step) * (steps - step)))
            log.info("%s: step %d of %d%s, about %s left", self._name, step, steps, details, left)


class ScoringProgress(TrainerCallback):
    """Log the progress of the Trainer's predictions."""

    _line: ProgressLine | None = None

    def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
        if self._line is None:
            self._line, self._batches = ProgressLine("scoring"), 0
        self._batches += 1
        self._line.update(self._batches, len(kwargs["eval_dataloader"]))

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self._line = None

    on_predict = on_evaluate
