"""A training run that is interrupted at any point resumes and ends with the result of an uninterrupted run."""

import itertools
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, TinyMaker, contents, train_model
from safetensors.torch import load_file, save_file
from transformers.trainer_callback import DefaultFlowCallback

# provenance.json has a hash of the imported modules. Import both engines, so that it does not depend on the test order.
import pipeline.training.loop
import pipeline.training.trainer
from pipeline.core.messages import UserError
from pipeline.core.output import directory_lock, parse_details
from pipeline.core.run_directory import remove_run_directories, remove_run_directory, run_directory, run_key


class Killed(BaseException):
    """A simulated kill. It is not an Exception, so the pipeline does not catch it."""


Run = Callable[..., dict[str, bytes]]

# 60 pairs in batches of 16 make 4 steps per epoch, the last one with 12 pairs. The training curve has a point
# every 3 steps.
SETTINGS = {"epochs": 2, "logging_steps": 3, "save_steps": 2, "max_train_samples": 60}


@pytest.fixture
def run(tmp_path: Path, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Run:
    """Train, and return the outputs that a resumed run shares with an uninterrupted one, keyed by file."""
    inputs = tokenized(tiny()), tiny()

    def run(
        data: Path = inputs[0], checkpoint: Path = inputs[1], home: str = "checkpoints", **changes: Any
    ) -> dict[str, bytes]:
        return outputs(train_model(data, checkpoint, tmp_path / "run", tmp_path / home, **SETTINGS | changes))

    return run


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Run:
    """Do the same as `run`, in a separate directory, and only once for the same settings."""
    finished: dict[str, dict[str, bytes]] = {}

    def uninterrupted(**changes: Any) -> dict[str, bytes]:
        settings = SETTINGS | changes
        if str(settings) not in finished:
            out, home = tmp_path_factory.mktemp("uninterrupted"), tmp_path_factory.mktemp("checkpoints")
            finished[str(settings)] = outputs(train_model(tokenized(tiny()), tiny(), out, home, **settings))
        return finished[str(settings)]

    return uninterrupted


def outputs(out: Path) -> dict[str, bytes]:
    """Return the bytes of the model and of the scores, keyed by file.

    Leaves out the times and the training loss. The loss is averaged over fewer steps right after a resume.
    """
    files = contents(out)
    files.pop("metrics/timing.json")
    curve, summary = "metrics/plots/history.csv", "metrics/train.json"
    files[curve] = b"\n".join(line for line in files[curve].splitlines() if b",train," not in line)
    files[summary] = re.sub(rb',\s*"train_loss": [^\n]*', b"", files[summary])
    return files


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[None]]:
    """Simulate a kill in a `with` block: the nth call of a function raises Killed, which ends the block."""

    @contextmanager
    def killed_at(
        number: int, owner: Any = torch.optim.AdamW, name: str = "step", before: Callable[..., None] | None = None
    ) -> Iterator[None]:
        calls = itertools.count(1)
        original = getattr(owner, name)

        def call_or_kill(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == number:
                if before:
                    before(*args)
                raise Killed
            return original(*args, **kwargs)

        with pytest.raises(Killed), monkeypatch.context() as patch:
            patch.setattr(owner, name, call_or_kill)
            yield

    return killed_at


KilledAt = Callable[..., AbstractContextManager[None]]


ACCUMULATION = {"batch_size": 8, "gradient_accumulation_steps": 3, "group_by_length": False, "epochs": 4}


@pytest.mark.parametrize(
    "settings",
    [{"engine": "trainer", "keep": "last"}, {"engine": "loop", "keep": "best"}, {"precision": "bf16", **ACCUMULATION}],
)
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
    resumed = run(**settings)
    assert "resuming from" in caplog.text
    assert resumed == uninterrupted(**settings)


@pytest.mark.parametrize("engine", ["trainer", "loop"])
def test_a_signal_saves_a_checkpoint_after_the_current_step(
    engine: str, run: Run, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    step, steps = torch.optim.AdamW.step, itertools.count(1)

    def step_with_signal(*args: Any, **kwargs: Any) -> Any:
        if next(steps) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(*args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", step_with_signal)
    with pytest.raises(SystemExit) as stopped:
        run(engine=engine)
    assert stopped.value.code == 143
    assert "stopped at step 3 of 8" in caplog.text
    assert not (tmp_path / "run" / "classifier").exists()
    resumed = run(engine=engine)
    assert re.search(r"resuming from \S*checkpoint-3$", caplog.text, re.M)
    assert resumed == uninterrupted(engine=engine)


def test_a_run_that_fails_before_its_first_checkpoint_leaves_no_directory(
    run: Run, killed_at: KilledAt, tmp_path: Path
) -> None:
    with killed_at(1):
        run()
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.parametrize("engine", ["trainer", "loop"])
def test_a_checkpoint_is_removed_only_when_a_newer_one_is_complete(
    engine: str, run: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture
) -> None:
    with killed_at(6, getattr(pipeline.training, engine), "mark_complete"):  # checkpoint-4 ends the best epoch
        run(engine=engine, save_steps=1)
    with killed_at(1):
        run(engine=engine, save_steps=1)
    assert re.search(r"resuming from \S*checkpoint-5$", caplog.text, re.M)


@pytest.mark.parametrize(("engine", "write", "kept"), [("trainer", 8, 2), ("loop", 8, 4)])
def test_an_incomplete_checkpoint_is_skipped_for_the_previous_one(
    engine: str, write: int, kept: int, run: Run, uninterrupted: Run, killed_at: KilledAt,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The Trainer calls torch.save four times per checkpoint, and the loop three times."""

    def write_truncated(content: Any, path: str | Path, *_: Any) -> None:
        Path(path).write_bytes(b"PK")

    with killed_at(write, torch, "save", write_truncated):
        run(engine=engine)
    resumed = run(engine=engine)
    assert re.search(r"removed \S*checkpoint-\d, because .* is incomplete", caplog.text)
    assert re.search(rf"resuming from \S*checkpoint-{kept}$", caplog.text, re.M)
    assert resumed == uninterrupted(engine=engine)


def test_checkpoints_that_were_only_partly_removed_are_not_used(
    run: Run, killed_at: KilledAt, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = run()
    [directory] = (tmp_path / "checkpoints").iterdir()

    def remove_weights(path: Path) -> None:
        [weights] = path.glob("*/checkpoint-8/model.safetensors")
        weights.unlink()

    with killed_at(1, shutil, "rmtree", remove_weights):
        remove_run_directory(tmp_path / "checkpoints", directory.name)
    assert run() == expected
    assert "resuming" not in caplog.text


def test_only_the_checkpoints_of_the_recorded_run_are_removed(run: Run, tmp_path: Path) -> None:
    """Parallel experiments share a directory, and DVC may not have recorded the model of the other one yet."""
    run(lr=2e-3)
    [other] = (tmp_path / "checkpoints").iterdir()
    run()
    provenance = json.loads((tmp_path / "run" / "classifier" / "provenance.json").read_text())
    remove_run_directory(tmp_path / "checkpoints", run_key(provenance))
    assert list((tmp_path / "checkpoints").iterdir()) == [other]


def test_only_the_checkpoints_of_a_recorded_experiment_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # trial-3 has the same inputs as trial-1, and needs the checkpoints until DVC records its model.
    for name, key in (("trial-1", "a"), ("trial-2", "b"), ("", "c"), ("trial-3", "a")):
        monkeypatch.setenv("DVC_EXP_NAME", name)
        with run_directory(tmp_path, key):
            pass
    remove_run_directories(tmp_path, "trial-1")
    with directory_lock(tmp_path / "b"):
        remove_run_directories(tmp_path, "trial-2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"], "a process is still training in b"
    remove_run_directories(tmp_path, "trial-2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_a_run_that_stopped_early_resumes_after_its_checkpoints_were_moved(
    run: Run, uninterrupted: Run, killed_at: KilledAt, tmp_path: Path
) -> None:
    """The Trainer stores the path of the best checkpoint. After the last step, no later save updates that path."""
    settings = {
        "epochs": 4,
        "early_stopping_patience": 1,
        "lr": 1e-9,  # the scores do not change, so training stops early and the first epoch is the best
        "max_train_samples": 32,
    }
    with killed_at(1, DefaultFlowCallback, "on_train_end"):
        run(**settings)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    resumed = run(**settings, home="elsewhere")
    summary = parse_details(resumed["metrics/train.json"].decode())
    assert (summary["kept_epoch"], summary["epochs_run"]) == (1, 2)
    assert resumed == uninterrupted(**settings)


def test_a_run_that_is_interrupted_or_fails_after_its_last_step_loses_no_training(
    run: Run, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Checkpoints are removed last."""

    def fail_to_write(path: Path, content: Any) -> None:
        raise UserError(f"{path} cannot be written: No space left on device")

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(DefaultFlowCallback, "on_train_end", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
        run()
    assert stopped.value.code == 143
    assert not (tmp_path / "run" / "classifier").exists()
    with monkeypatch.context() as patch, pytest.raises(UserError, match="No space left"):
        patch.setattr("pipeline.train.write_details", fail_to_write)
        run()
    caplog.clear()
    resumed = run()
    assert re.search(r"resuming from \S*checkpoint-8", caplog.text), "the run has 8 steps"
    assert resumed == uninterrupted()


def test_unwritable_metrics_fail_before_training(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics").write_text("in the way")
    with pytest.raises(UserError, match=r"metrics/plots/history\.csv cannot be written"):
        run()
    assert "training on" not in caplog.text


def test_an_unwritable_checkpoint_directory_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(UserError, match=r"checkpoints cannot be written: (File exists|Not a directory)"):
        run()


@pytest.fixture
def key_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the key under which a run would look for its checkpoints, without training."""

    def key_of(**changes: Any) -> str:
        keys = []

        def record(root: Path, key: str) -> None:
            keys.append(key)
            raise Killed

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr("pipeline.train.run_directory", record)
            run(**changes)
        return keys[0]

    return key_of


def test_checkpoints_are_not_shared_if_parameters_inputs_or_kernels_differ(
    key_of: Callable[..., str], tiny: TinyMaker, tokenized: Callable[..., Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    checkpoint = shutil.copytree(tiny(), tmp_path / "checkpoint")
    data = shutil.copytree(tokenized(tiny()), tmp_path / "data")
    (data / "lengths.json").write_text("{}")
    first = key_of(checkpoint=checkpoint)
    threads = torch.get_num_threads()
    changes: tuple[dict[str, Any], ...] = ({"lr": 2e-3}, {"num_threads": 2}, {"data": data})
    for change in changes:
        assert key_of(**{"checkpoint": checkpoint, **change}) != first, change
    torch.set_num_threads(threads)
    with monkeypatch.context() as patch:
        patch.setenv("MKL_CBWR", "COMPATIBLE")
        assert key_of(checkpoint=checkpoint) != first
    assert key_of(checkpoint=checkpoint) == first
    weights = load_file(checkpoint / "model.safetensors")
    save_file({name: tensor * 2 for name, tensor in weights.items()}, checkpoint / "model.safetensors")
    assert key_of(checkpoint=checkpoint) != first


def test_settings_that_cannot_affect_the_weights_do_not_change_the_key_of_a_run(key_of: Callable[..., str]) -> None:
    assert key_of(dataloader_num_workers=1, save_steps=3) == key_of()


@pytest.mark.parametrize(("edited", "resumes"), [("train.py", False), ("cli.py", True)])
def test_a_run_resumes_only_with_the_same_training_code(
    edited: str, resumes: bool, key_of: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "pipeline", tmp_path / "pipeline")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    monkeypatch.setattr("pipeline.core.run_directory.PROJECT", tmp_path)
    before = key_of()
    with (tmp_path / "pipeline" / edited).open("a") as code:
        code.write("# a comment\n")
    assert (key_of() == before) == resumes


def test_abandoned_checkpoints_are_removed_after_a_week(
    run: Run, killed_at: KilledAt, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, recent = (tmp_path / "checkpoints" / name for name in ("old", "recent"))
    for home, days in ((old, 7.1), (recent, 6.9)):
        (home / "checkpoint-4").mkdir(parents=True)
        os.utime(home, times=(time.time() - days * 24 * 3600,) * 2)
    with killed_at(1):
        run()
    assert f"removed {old}, " in caplog.text
    assert not old.exists()
    assert recent.exists()
