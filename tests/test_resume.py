"""A training run that is interrupted at any point resumes and ends with the result of an uninterrupted run."""

import functools
import itertools
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from conftest import ROOT, TinyMaker, contents, train_model
from transformers import TrainerState
from transformers.trainer_callback import DefaultFlowCallback

from pipeline.sources.demo import DEMO
from pipeline.training.history import should_stop

Run = Callable[..., dict[str, bytes]]

# 60 pairs in batches of 16 make 4 steps per epoch, the last one with 12 pairs. The training curve has a point
# every 3 steps.
SETTINGS = {"epochs": 2, "logging_steps": 3, "save_steps": 2, "max_train_samples": 60}
ACCUMULATION = {"batch_size": 8, "gradient_accumulation_steps": 3, "group_by_length": False, "epochs": 3}
EARLY_STOPPING = {
    "epochs": 4, "early_stopping_patience": 1, "lr": 0.1, "warmup_ratio": 0.4, "metric_for_best_model": "loss",
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Run:
    """Train, and return the outputs that a resumed run shares with an uninterrupted one, keyed by file."""
    inputs = tokenized(tiny()), tiny()

    def run(data: Path = inputs[0], home: str = "checkpoints", **changes: Any) -> dict[str, bytes]:
        return outputs(train_model(data, inputs[1], tmp_path / "run", tmp_path / home, **SETTINGS | changes))

    return run


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Run:
    """Do the same as `run`, in a separate directory, and only once for the same settings."""

    @functools.cache
    def uninterrupted(**changes: Any) -> dict[str, bytes]:
        out = tmp_path_factory.mktemp("uninterrupted")
        return outputs(train_model(tokenized(tiny()), tiny(), out, **SETTINGS | changes))

    return uninterrupted


def outputs(out: Path) -> dict[str, bytes]:
    """Return the bytes of the model and of the scores, keyed by file.

    Leaves out the training loss, which is averaged over fewer steps right after a resume.
    """
    files = {name: content for name, content in contents(out).items() if not name.startswith("checkpoints")}
    curve = "metrics/plots/history.csv"
    files[curve] = b"\n".join(line for line in files[curve].splitlines() if b",train," not in line)
    return files


@contextmanager
def before_call(
    number: int, action: Callable[..., object], owner: Any = torch.optim.AdamW, name: str = "step"
) -> Iterator[None]:
    """Call `action` before the nth call of a function in the block, with the same arguments."""
    calls, original = itertools.count(1), getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            action(*args)
        return original(*args, **kwargs)

    with patch.object(owner, name, call):
        yield


class Killed(BaseException):
    """A simulated kill. It is not an Exception, so the pipeline does not catch it."""


def die(*_: object) -> None:
    raise Killed


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    """End the block with a simulated kill before an optimizer step."""
    with pytest.raises(Killed), before_call(step, die):
        yield


@pytest.mark.parametrize("settings", [{"keep": "last"}, ACCUMULATION, {"engine": "loop"}], ids=str)
def test_a_killed_run_ends_with_the_same_bytes(
    settings: dict[str, Any], run: Run, uninterrupted: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (5, 3):
        with killed_at(number):
            run(**settings)
        assert not (tmp_path / "run" / "classifier").exists()
        assert len(list((tmp_path / "checkpoints").glob("*/checkpoint-*"))) <= 2
    caplog.clear()
    assert run(**settings) == uninterrupted(**settings)
    assert ("resuming from" in caplog.text) == ("engine" not in settings), "the loop starts again"
    assert not list((tmp_path / "checkpoints").iterdir()), "a run that has written its outputs needs no checkpoints"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_after_the_current_step(
    number: signal.Signals, run: Run, uninterrupted: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stopped, before_call(3, lambda *_: os.kill(os.getpid(), number)):
        run()
    assert stopped.value.code == 128 + number
    assert not (tmp_path / "run" / "classifier").exists()
    assert run() == uninterrupted()
    assert re.search(r"resuming from \S*checkpoint-3$", caplog.text, re.M)


@pytest.mark.parametrize(("number", "owner", "name"), [(8, torch, "save"), (2, TrainerState, "save_to_json")])
def test_an_incomplete_checkpoint_is_skipped_for_the_previous_one(
    number: int, owner: Any, name: str, run: Run, uninterrupted: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """The Trainer calls torch.save four times per checkpoint, and writes trainer_state.json last."""

    def truncate(_: object, path: str) -> None:
        Path(path).write_bytes(b"{")
        raise Killed

    with pytest.raises(Killed), before_call(number, truncate, owner, name):
        run()
    assert run() == uninterrupted()
    assert re.search(r"resuming from \S*checkpoint-2$", caplog.text, re.M)


def test_a_run_that_stopped_early_resumes_after_its_checkpoints_were_moved(
    run: Run, uninterrupted: Run, tmp_path: Path
) -> None:
    """The Trainer stores the path of the best checkpoint. After the last step, no later save updates that path."""
    with pytest.raises(Killed), before_call(1, die, DefaultFlowCallback, "on_train_end"):
        run(**EARLY_STOPPING)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    resumed = run(**EARLY_STOPPING, home="elsewhere")
    [summary] = json.loads(resumed["metrics/train.json"])
    assert (summary["kept_epoch"], summary["epochs_run"]) == (1, 2)
    assert resumed == uninterrupted(**EARLY_STOPPING)


def test_an_equal_score_with_a_lower_loss_does_not_count_against_early_stopping() -> None:
    """With a rare class, F1 may stay at 0 while the model learns."""

    def is_stopped(*epochs: tuple[float, float]) -> bool:
        history = [{f"eval_{DEMO.metric_for_best_model}": score, "eval_loss": loss} for score, loss in epochs]
        return should_stop(history, 1, DEMO)

    assert not is_stopped((0.0, 0.7), (0.0, 0.4), (0.0, 0.2))
    assert is_stopped((0.0, 0.7), (0.0, 0.7))
    assert is_stopped((0.5, 0.7), (0.4, 0.4))


def test_a_run_that_is_interrupted_or_fails_after_its_last_step_loses_no_training(
    run: Run, uninterrupted: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as stopped, before_call(1, interrupt, DefaultFlowCallback, "on_train_end"):
        run()
    assert stopped.value.code == 143
    assert not (tmp_path / "run" / "classifier").exists()
    with pytest.raises(OSError, match="full"), patch("pipeline.train.write_details", side_effect=OSError("full")):
        run()
    caplog.clear()
    assert run() == uninterrupted()
    assert re.search(r"resuming from \S*checkpoint-8", caplog.text), "the run has 8 steps"


def test_a_run_resumes_only_with_the_same_inputs_and_the_same_code(
    run: Run, tokenized: Callable[..., Path], tiny: TinyMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def resumes(**changes: Any) -> bool:
        caplog.clear()
        with killed_at(1):
            run(**changes)
        return "resuming from" in caplog.text

    with killed_at(5):
        run()
    assert resumes(save_steps=3, dataloader_num_workers=1), "these settings cannot change the weights"
    data = shutil.copytree(tokenized(tiny()), tmp_path / "data")
    (data / "added").touch()
    assert not resumes(data=data)
    assert not resumes(lr=2e-3)
    shutil.copytree(ROOT / "pipeline", tmp_path / "pipeline")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    monkeypatch.setattr("pipeline.core.stage.PROJECT", tmp_path)
    for edited, expected in (("cli.py", True), ("train.py", False)):
        (tmp_path / "pipeline" / edited).open("a").write("# a comment\n")
        assert resumes() == expected
