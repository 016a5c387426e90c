"""A training run that is interrupted at any point resumes and ends with the result of an uninterrupted run."""

import itertools
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, TinyMaker, contents, read_history, train_model
from transformers.trainer_callback import DefaultFlowCallback

from pipeline.core.output import parse_details
from pipeline.sources.demo import DEMO
from pipeline.training.checkpointing import run_directory
from pipeline.training.history import is_stopped_early


class Killed(BaseException):
    """A simulated kill. It is not an Exception, so the pipeline does not catch it."""


Run = Callable[..., dict[str, bytes]]
KilledAt = Callable[..., AbstractContextManager[None]]

# 60 pairs in batches of 16 make 4 steps per epoch, the last one with 12 pairs. The training curve has a point
# every 3 steps.
SETTINGS = {"epochs": 2, "logging_steps": 3, "save_steps": 2, "max_train_samples": 60}
ACCUMULATION = {"batch_size": 8, "gradient_accumulation_steps": 3, "group_by_length": False, "epochs": 4}
EARLY_STOPPING = {"epochs": 4, "early_stopping_patience": 1, "lr": 1e-30}  # The scores and losses do not change.


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
    finished: dict[str, dict[str, bytes]] = {}

    def uninterrupted(**changes: Any) -> dict[str, bytes]:
        if str(changes) not in finished:
            out = tmp_path_factory.mktemp("uninterrupted")
            finished[str(changes)] = outputs(train_model(tokenized(tiny()), tiny(), out, **SETTINGS | changes))
        return finished[str(changes)]

    return uninterrupted


def outputs(out: Path) -> dict[str, bytes]:
    """Return the bytes of the model and of the scores, keyed by file.

    Leaves out the training loss, which is averaged over fewer steps right after a resume.
    """
    files = {name: content for name, content in contents(out).items() if not name.startswith("checkpoints")}
    curve, summary = "metrics/plots/history.csv", "metrics/train.json"
    files[curve] = b"\n".join(line for line in files[curve].splitlines() if b",train," not in line)
    files[summary] = re.sub(rb',\s*"train_loss": [^\n]*', b"", files[summary])
    return files


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> KilledAt:
    """Simulate a kill in a `with` block: the nth call of a function raises Killed, which ends the block."""

    @contextmanager
    def killed_at(
        number: int, owner: Any = torch.optim.AdamW, name: str = "step", before: Callable[..., Any] = lambda *_: None
    ) -> Iterator[None]:
        calls, original = itertools.count(1), getattr(owner, name)

        def call_or_kill(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == number:
                before(*args)
                raise Killed
            return original(*args, **kwargs)

        with pytest.raises(Killed), monkeypatch.context() as patch:
            patch.setattr(owner, name, call_or_kill)
            yield

    return killed_at


@pytest.mark.parametrize("settings", [{"keep": "last"}, {"precision": "bf16", **ACCUMULATION}], ids=str)
def test_a_killed_run_resumes_and_ends_with_the_same_bytes(
    settings: dict[str, Any], run: Run, uninterrupted: Run, killed_at: KilledAt, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for number in (5, 3):
        with killed_at(number):
            run(**settings)
        assert not (tmp_path / "run" / "classifier").exists()
        assert len(list((tmp_path / "checkpoints").glob("*/checkpoint-*"))) <= 2
    caplog.clear()
    assert run(**settings) == uninterrupted(**settings)
    assert "resuming from" in caplog.text
    assert not list((tmp_path / "checkpoints").iterdir()), "a run that has written its outputs needs no checkpoints"


def test_the_loop_starts_again(run: Run, uninterrupted: Run, killed_at: KilledAt, tmp_path: Path) -> None:
    with killed_at(5):
        run(engine="loop")
    assert not (tmp_path / "run" / "classifier").exists()
    assert run(engine="loop") == uninterrupted(engine="loop")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_after_the_current_step(
    number: signal.Signals, run: Run, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    step, steps = torch.optim.AdamW.step, itertools.count(1)

    def step_with_signal(*args: Any, **kwargs: Any) -> Any:
        if next(steps) == 3:
            os.kill(os.getpid(), number)
        return step(*args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", step_with_signal)
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 128 + number
    assert [row["step"] for row in read_history(tmp_path / "run")] == ["3"]
    assert not (tmp_path / "run" / "classifier").exists()
    assert run() == uninterrupted()
    assert re.search(r"resuming from \S*checkpoint-3$", caplog.text, re.M)


def test_an_incomplete_checkpoint_is_skipped_for_the_previous_one(
    run: Run, uninterrupted: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture
) -> None:
    """The Trainer calls torch.save four times per checkpoint, and then writes trainer_state.json."""
    with killed_at(8, torch, "save", lambda _, path: Path(path).write_bytes(b"PK")):
        run()
    assert run() == uninterrupted()
    assert re.search(r"resuming from \S*checkpoint-2$", caplog.text, re.M)


def test_a_truncated_state_is_skipped_for_the_previous_checkpoint(
    run: Run, uninterrupted: Run, killed_at: KilledAt, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with killed_at(8):
        run()
    [state] = tmp_path.glob("checkpoints/*/checkpoint-6/trainer_state.json")
    state.write_bytes(state.read_bytes()[:100])
    assert run() == uninterrupted()
    assert re.search(r"resuming from \S*checkpoint-4$", caplog.text, re.M)


def test_a_run_that_stopped_early_resumes_after_its_checkpoints_were_moved(
    run: Run, uninterrupted: Run, killed_at: KilledAt, tmp_path: Path
) -> None:
    """The Trainer stores the path of the best checkpoint. After the last step, no later save updates that path."""
    with killed_at(1, DefaultFlowCallback, "on_train_end"):
        run(**EARLY_STOPPING)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    resumed = run(**EARLY_STOPPING, home="elsewhere")
    summary = parse_details(resumed["metrics/train.json"].decode())
    assert (summary["kept_epoch"], summary["epochs_run"]) == (1, 2)
    assert resumed == uninterrupted(**EARLY_STOPPING)


def test_an_equal_score_with_a_lower_loss_does_not_count_against_early_stopping() -> None:
    """With a rare class, F1 may stay at 0 while the model learns."""

    def is_stopped(*epochs: tuple[float, float], patience: int = 1) -> bool:
        history = [{f"eval_{DEMO.metric_for_best_model}": score, "eval_loss": loss} for score, loss in epochs]
        return is_stopped_early(history, patience, DEMO)

    assert not is_stopped((0.0, 0.7), (0.0, 0.4), (0.0, 0.2))
    assert is_stopped((0.0, 0.7), (0.0, 0.7))
    assert is_stopped((0.5, 0.7), (0.4, 0.4))
    assert not is_stopped((0.5, 0.7), (0.4, 0.4), patience=2)


def test_a_run_that_is_interrupted_or_fails_after_its_last_step_loses_no_training(
    run: Run, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_to_write(path: Path, content: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(DefaultFlowCallback, "on_train_end", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
        run()
    assert stopped.value.code == 143
    assert not (tmp_path / "run" / "classifier").exists()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr("pipeline.train.write_details", fail_to_write)
        run()
    caplog.clear()
    assert run() == uninterrupted()
    assert re.search(r"resuming from \S*checkpoint-8", caplog.text), "the run has 8 steps"


def test_a_run_resumes_only_with_the_same_inputs_and_the_same_code(
    run: Run, killed_at: KilledAt, tokenized: Callable[..., Path], tiny: TinyMaker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
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


def test_a_second_run_with_the_same_inputs_waits_for_the_first(tmp_path: Path) -> None:
    """Two experiments can run at the same time, in directories of their own, and share their checkpoints."""

    def run_again() -> bool:
        with run_directory(tmp_path, "key") as checkpoints:
            return checkpoints.is_dir()

    with ThreadPoolExecutor() as pool:
        with run_directory(tmp_path, "key"):
            second = pool.submit(run_again)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
        assert second.result(timeout=10)
    assert not list(tmp_path.iterdir())
