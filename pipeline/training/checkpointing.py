"""Where the checkpoints of a run are, which one it resumes from, and when another one is saved."""

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from filelock import FileLock
from transformers import TrainerCallback
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


class Checkpointing(TrainerCallback):
    """Saves a checkpoint every `save_steps` steps, and one after SIGINT or SIGTERM, which then ends the process.

    It handles these signals in a `with` block. With several processes, a signal ends the run at once, because it
    reaches them at different steps.
    """

    def __init__(self, save_steps: int) -> None:
        self._save_steps, self._signal = save_steps, 0

    def __enter__(self) -> Self:
        signals = (signal.SIGINT, signal.SIGTERM) if distributed.world_size() == 1 else ()
        self._handlers = {number: signal.signal(number, self._receive) for number in signals}
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._signal and error_type is None:  # The signal arrived after the last step.
            sys.exit(128 + self._signal)

    def _receive(self, number: int, frame: object) -> None:
        log.info("stopping after this step, and saving a checkpoint")
        self._signal = number

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.best_global_step:  # The directory may have moved since the state was saved.
            state.best_model_checkpoint = str(Path(args.output_dir, f"checkpoint-{state.best_global_step}"))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # After the last step of an epoch, the Trainer scores validation and then saves a checkpoint anyway. A run that
        # resumed from a checkpoint of this step, saved before the validation, would skip the validation.
        if not state.epoch.is_integer():
            control.should_save = self._signal > 0 or state.global_step % self._save_steps == 0

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._signal:
            log.info("stopped at step %d of %d. The next run continues there.", state.global_step, state.max_steps)
            sys.exit(128 + self._signal)
