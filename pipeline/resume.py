"""Full checkpoints of a training run, found again by the next run that would give the same bytes.

`models/.checkpoints/<key>/checkpoint-<step>/` holds Trainer's own files, what Trainer forgets (`progress.json`),
and, written last, a list of all files with their sizes (`files.json`). Without it, or where a size differs, a
checkpoint is not whole.
"""

import hashlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from safetensors import SafetensorError
from transformers import Trainer, TrainerCallback

from pipeline import processes
from pipeline.stage import UserError, held, log, writing
from pipeline.timing import Stopwatch

_STALE_SECONDS = 7 * 24 * 3600
_ECHO_SECONDS = 1  # a launcher hands on to its processes what a terminal has sent them already
_FILES = "files.json"
_PROGRESS = "progress.json"
_FINISHED = "finished"


def run_key(ingredients: dict[str, Any], directories: list[Path]) -> str:
    """A hash of all that determines the weights: `ingredients`, the files of `directories`, and the pipeline's code.

    The code is that of the modules imported by now.
    """
    digest = hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode())
    specs = [
        getattr(module, "__spec__", None) for module in sys.modules.values()
    ]  # the stage's own module goes by the name __main__
    code = {spec.origin for spec in specs if spec and spec.origin and spec.name.startswith("pipeline.")}
    files = [*map(Path, code), *(file for directory in directories for file in directory.iterdir())]
    for file in sorted(files):
        with file.open("rb") as content:
            digest.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


@contextmanager
def own_directory(root: Path, key: str, fresh: bool) -> Iterator[Path]:
    """The directory `root/<key>`, held by this run alone; where another run holds it, a fresh one for this run only.

    It is emptied first where `fresh`, and marked as finished when the block ends well. Those of other keys that are
    finished, or that no run has written to for seven days, are removed. Raises UserError where it cannot be written.
    """
    home = root / key
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
    remove_finished(root, but=key)
    _remove_stale(root, but=key)
    with _claimed(home) as mine:
        if mine:
            for left in home.iterdir() if fresh else home.glob(_FINISHED):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            try:
                yield home
            except BaseException:
                if any(home.iterdir()):
                    log.info("what is done lies in %s; the next run resumes there", home)
                else:
                    home.rmdir()
                raise
            (home / _FINISHED).touch()
            return
    log.info("another run with the same inputs is under way; this one keeps its checkpoints apart, and starts anew")
    with tempfile.TemporaryDirectory(prefix=f"{key}.", dir=root) as apart:
        yield Path(apart)


def remove_finished(root: Path, but: str = "") -> None:
    """Remove the checkpoints of runs that ended well, once DVC has recorded their models.

    It does so after the stage has ended; killed, or with a full disk, before that, it runs the stage again, which then
    resumes from the last step.
    """
    for home in root.glob("*/"):
        if home.name != but and (home / _FINISHED).exists():
            with _claimed(home) as mine:
                if mine:
                    shutil.rmtree(home)


def _remove_stale(root: Path, but: str) -> None:
    for home in root.glob("*/"):
        with suppress(FileNotFoundError):  # another run is removing it
            if home.name == but or time.time() - home.stat().st_mtime < _STALE_SECONDS:
                continue
            with _claimed(home) as mine:
                if mine:
                    size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
                    shutil.rmtree(home)
                    log.info("removed %s: checkpoints of a run given up a week ago, %.1f MB", home, size / 1e6)


@contextmanager
def _claimed(home: Path) -> Iterator[bool]:
    """Make and lock a directory; False where another process has locked it."""
    while True:
        with writing(home):
            home.mkdir(exist_ok=True)
        with held(home) as mine:
            if mine or home.exists():  # else its holder has just finished and removed it: once more
                yield mine
                return


@contextmanager
def saving(home: Path, step: int) -> Iterator[None]:
    """Raise UserError where the checkpoint of a step cannot be written to `home`."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if processes.lost(error):
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


class Interruption:
    """The first SIGINT or SIGTERM of the block, for the run to heed after its step; the second ends it at once."""

    number = 0  # of the signal; 0: none has come

    def __enter__(self) -> "Interruption":
        self._previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in self._previous:
            signal.signal(number, self._came)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self._restore()
        if self.number and kind is None:  # it came after the last step
            sys.exit(128 + self.number)

    def agreed(self) -> bool:
        """Whether a signal has come to any of the processes, which see it at different steps."""
        number = max(processes.from_all(self.number))
        if number and not self.number:
            self.number, self._time = number, time.monotonic()
        return bool(number)

    def stop(self, step: int, steps: int) -> None:
        """End the process; all is saved."""
        log.info("stopped at step %d of %d", step, steps)
        sys.exit(128 + self.number)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self._time = number, time.monotonic()
            log.info("%s: stopping after this step; once more to stop now", signal.Signals(number).name)
        elif processes.count() == 1 or time.monotonic() - self._time > _ECHO_SECONDS:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


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
            self._trainer._tr_loss += progress["loss_since_logged"][processes.index()]
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
        losses = processes.from_all(self._trainer._tr_loss.item())  # when all have written their random states
        if processes.index() == 0:
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
