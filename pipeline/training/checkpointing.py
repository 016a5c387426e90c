"""Where the checkpoints of a run are, which one it resumes from, and how a signal asks for another one."""

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from filelock import FileLock
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from pipeline.core.messages import log
from pipeline.modeling import distributed

CHECKPOINTS = Path("models/.checkpoints")


@contextmanager
def run_directory(root: Path, key: str) -> Iterator[Path]:
    """Yield the directory of a run's checkpoints, and remove it if the block succeeds.

    Args:
        key: The hash of everything that determines the weights, so that only a run with the same inputs resumes from
            these checkpoints. A second process with the same key waits until the first one has ended.
    """
    directory = root / key
    if distributed.rank() > 0:
        yield directory
        return
    root.mkdir(parents=True, exist_ok=True)
    lock = root / f"{key}.lock"  # A process that waits for it would fail if it were removed with its directory.
    with FileLock(lock):
        directory.mkdir(exist_ok=True)
        yield directory
        finished = root / f"{key}.finished"  # If this process is killed now, no run resumes from what is left.
        shutil.rmtree(finished, ignore_errors=True)
        shutil.rmtree(directory.rename(finished), ignore_errors=True)
        lock.unlink(missing_ok=True)


def newest_checkpoint(directory: Path) -> Path | None:
    """Return the newest complete checkpoint, or None. The Trainer writes trainer_state.json last."""
    prefix = f"{PREFIX_CHECKPOINT_DIR}-"
    steps = sorted((int(path.name.removeprefix(prefix)) for path in directory.glob(f"{prefix}*")), reverse=True)
    for path in (directory / f"{prefix}{step}" for step in steps):
        try:
            json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        log.info("resuming from %s", path)
        return path
    return None


class Interruption:
    """In a `with` block, SIGINT and SIGTERM only set `signal_number`, so that the run can save a checkpoint and stop.

    With several processes, a signal ends the run at once, because it reaches them at different steps.
    """

    signal_number = 0

    def __enter__(self) -> "Interruption":
        signals = (signal.SIGINT, signal.SIGTERM) if distributed.world_size() == 1 else ()
        self._handlers = {number: signal.signal(number, self._receive) for number in signals}
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self.signal_number and error_type is None:  # The signal arrived after the last step.
            sys.exit(128 + self.signal_number)

    def stop(self, step: int, steps: int) -> NoReturn:
        """End the process with the exit status of the signal. The checkpoint must have been saved."""
        log.info("stopped at step %d of %d. The next run with the same inputs continues there.", step, steps)
        sys.exit(128 + self.signal_number)

    def _receive(self, number: int, frame: object) -> None:
        log.info("stopping after this step, and saving a checkpoint")
        self.signal_number = number
