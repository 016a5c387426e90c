"""Full checkpoints of a training run, found again by the next run that would give the same bytes.

`models/.checkpoints/<key>/checkpoint-<step>/` holds Trainer's own files, what Trainer forgets (`progress.json`),
and, written last, a list of all files with their sizes (`files.json`). Without it, or where a size differs, a
checkpoint is not whole.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import Trainer, TrainerCallback

from pipeline.core.messages import UserError, log
from pipeline.core.timing import Stopwatch
from pipeline.modeling import distributed
from pipeline.training.interruption import Interruption

_FILES = "files.json"
_PROGRESS = "progress.json"


@contextmanager
def saving(home: Path, step: int) -> Iterator[None]:
    """Raise UserError where the checkpoint of a step cannot be written to `home`."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if distributed.lost_peer(error):
            raise
        # torch tells a full disk as a position that it did not expect.
        free = shutil.disk_usage(home).free
        raise UserError(
            f"{home}: the checkpoint of step {step} cannot be written with {free / 1e6:.1f} MB free there: "
            f"{' '.join(str(error).split())}; free space and run again: it resumes from the checkpoint before"
        ) from error


def newest(home: Path, keep_best: bool) -> Path | None:
    """The newest whole checkpoint in `home` whose best epoch is there too. Newer ones, which are not, are removed."""
    for path in sorted(home.glob("checkpoint-*"), key=_step, reverse=True):
        if _is_whole(path):
            best = json.loads((path / "trainer_state.json").read_text())["best_global_step"]
            if not keep_best or best is None or _is_whole(home / f"checkpoint-{best}"):
                return path
        log.info("%s is not whole, or that of its best epoch is not; removed", path)
        shutil.rmtree(path)
    return None


def epochs_until_stopped(checkpoint: Path) -> int | None:
    """The epochs after which early stopping had ended the run, where it had; resumed, Trainer would forget that."""
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    stopped = state["stateful_callbacks"]["TrainerControl"]["args"]["should_training_stop"]
    return round(state["epoch"]) if stopped else None


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _is_whole(checkpoint: Path) -> bool:
    try:
        sizes = json.loads((checkpoint / _FILES).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


class Checkpointing(TrainerCallback):
    """Makes Trainer save every `save_steps` steps and at each epoch's end, and stop on a signal; keeps two checkpoints.

    They are the newest and that of the best epoch so far, or the newest and the one before.
    """

    def __init__(
        self,
        trainer: Trainer,
        home: Path,
        save_steps: int,
        resumed: Path | None,
        interruption: Interruption,
        watch: Stopwatch,
    ) -> None:
        self._trainer = trainer
        self._home = home
        self._save_steps = save_steps
        self._resumed = resumed
        self._interruption = interruption
        self._watch = watch

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._resumed:
            progress = json.loads((self._resumed / _PROGRESS).read_text())
            self._trainer._tr_loss += progress["loss_since_logged"][distributed.rank()]
            self._trainer._total_loss_scalar = progress["loss_logged"]
            self._trainer._globalstep_last_logged = progress["step_logged"]
            self._trainer._initial_global_step = 0
            self._watch.earlier = progress["seconds"]
        if state.best_global_step:  # the path in the state is that of the place where the run began
            state.best_model_checkpoint = str(self._home / f"checkpoint-{state.best_global_step}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        due = self._interruption.agreed() or state.global_step % self._save_steps == 0
        # An epoch's last step is saved once validation is scored; a checkpoint without that score would skip it.
        if due and not state.epoch.is_integer():
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        path = self._home / f"checkpoint-{state.global_step}"
        losses = distributed.all_gather(self._trainer._tr_loss.item())  # when all have written their random states
        if distributed.rank() == 0:
            self._complete(path, losses, state)
        if self._interruption.agreed():
            self._interruption.stop(state.global_step, state.max_steps)

    def _complete(self, path: Path, losses: list[float], state: Any) -> None:
        progress = {
            "loss_since_logged": losses,
            "loss_logged": self._trainer._total_loss_scalar,
            "step_logged": self._trainer._globalstep_last_logged,
            "seconds": self._watch.so_far(),
        }
        with saving(self._home, state.global_step):
            (path / _PROGRESS).write_text(json.dumps(progress))
            files = [file for file in path.rglob("*") if file.is_file()]  # weights in parts are a directory
            sizes = {str(file.relative_to(path)): file.stat().st_size for file in files}
            draft = path / f".{_FILES}"
            draft.write_text(json.dumps(sizes))
            draft.rename(path / _FILES)
        self._rotate(state.best_global_step)

    def _rotate(self, best: int | None) -> None:
        *older, _newest = sorted(self._home.glob("checkpoint-*"), key=_step)
        kept = [path for path in older if _step(path) == best] or older[-1:]
        for path in older:
            if path not in kept:
                shutil.rmtree(path)
