"""A training run that is stopped at any point resumes to the same model and scores as an uninterrupted one."""

import itertools
import json
import logging
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
from conftest import TinyMaker, sections
from safetensors.torch import load_file, save_file
from transformers.trainer_callback import DefaultFlowCallback

from pipeline.core.details import parse_details
from pipeline.core.messages import UserError
from pipeline.core.run_directory import remove_finished, run_key
from pipeline.params import Params
from pipeline.train import train


class Killed(BaseException):
    """Not an Exception, so that no code of ours catches it."""


@pytest.fixture
def run(
    tmp_path: Path, params: Params, tiny: TinyMaker, tokenized: Callable[..., Path]
) -> Callable[..., dict[str, bytes]]:
    """Train into a directory. Returns what a resumed run shares with an uninterrupted one, by file."""
    inputs = tokenized(tiny()), tiny()

    def run(
        name: str = "run",
        fresh: bool = False,
        data: Path = inputs[0],
        checkpoint: Path = inputs[1],
        home: str = "checkpoints",
        **changes: Any,
    ) -> dict[str, bytes]:
        out = tmp_path / name
        settings = {
            "epochs": 2,
            "batch_size": 8,
            "logging_steps": 3,
            "save_steps": 2,
            "max_train_samples": 60,
            **changes,
        }
        train(
            data,
            checkpoint,
            out / "classifier",
            out / "metrics",
            tmp_path / home,
            *sections(params, **settings),
            fresh,
        )
        return outputs(out)

    return run


def outputs(out: Path) -> dict[str, bytes]:
    """Return the bytes of the model, and the scores.

    The points of the training curve are left out: the first one after a resume is the mean of fewer steps. So are
    their mean in train.json, and the times.
    """
    files = {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()}
    files.pop("metrics/timing.json")
    curve, summary = "metrics/plots/history.csv", "metrics/train.json"
    files[curve] = b"\n".join(line for line in files[curve].splitlines() if b",train," not in line)
    files[summary] = re.sub(rb',\s*"train_loss": [^\n]*', b"", files[summary])
    return files


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[None]]:
    """Simulate a kill in a block: raise Killed at the nth call of a function, and expect it."""

    @contextmanager
    def killed_at(
        number: int, owner: Any = torch.optim.AdamW, name: str = "step", before: Callable[..., None] | None = None
    ) -> Iterator[None]:
        calls = itertools.count(1)
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == number:
                if before:
                    before(*args)
                raise Killed
            return original(*args, **kwargs)

        with pytest.raises(Killed), monkeypatch.context() as patch:
            patch.setattr(owner, name, counted)
            yield

    return killed_at


Run = Callable[..., dict[str, bytes]]
KilledAt = Callable[..., AbstractContextManager[None]]


# 60 pairs in batches of 8: 8 steps an epoch, the last one of 4 pairs; a point of the training curve every 3 steps.
@pytest.mark.parametrize(
    ("kills", "keep"),
    [([2], "last"), ([9], "best"), ([16], "best"), pytest.param([4, 5, 8], "last", marks=pytest.mark.slow)],
)
def test_a_killed_run_resumes_to_the_same_bytes(
    kills: list[int], keep: str, run: Run, killed_at: KilledAt, tmp_path: Path
) -> None:
    for number in kills:
        with killed_at(number):
            run(keep=keep)
        assert not (tmp_path / "run" / "classifier").exists()
        assert len(list((tmp_path / "checkpoints").glob("*/checkpoint-*"))) <= 2
    resumed = run(keep=keep)
    assert resumed == run("uninterrupted", keep=keep)
    remove_finished(tmp_path / "checkpoints")
    assert not list((tmp_path / "checkpoints").iterdir()), "all checkpoints go when the run is done"


def test_a_run_resumes_after_its_checkpoints_were_moved(run: Run, killed_at: KilledAt, tmp_path: Path) -> None:
    """Trainer stores the path of the best checkpoint until it saves again; here the last step is done.

    With lr 0.1 the last epoch is not the best.
    """
    with killed_at(1, DefaultFlowCallback, "on_train_end"):
        run(epochs=3, lr=0.1)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    resumed = run(epochs=3, lr=0.1, home="elsewhere")
    assert parse_details(resumed["metrics/train.json"].decode())["kept_epoch"] < 3
    assert resumed == run("uninterrupted", epochs=3, lr=0.1)


def test_a_run_that_fails_before_its_first_checkpoint_leaves_no_directory(
    run: Run, killed_at: KilledAt, tmp_path: Path
) -> None:
    with killed_at(1):
        run()
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.parametrize("kills", [[1], [9], [4, 5, 8]])
def test_the_loop_resumes_to_the_same_bytes(
    kills: list[int], run: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture
) -> None:
    for number in kills:
        with killed_at(number):
            run(engine="loop")
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run(engine="loop")
    assert ("resuming from" in caplog.text) == (kills != [1])
    assert resumed == run("uninterrupted", engine="loop")


def test_the_loop_resumes_from_the_checkpoint_before_an_incomplete_one(
    run: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture
) -> None:
    def truncated(content: Any, path: Path) -> None:
        path.write_bytes(b"PK")

    with killed_at(8, torch, "save", truncated):  # It calls torch.save three times for a checkpoint.
        run(engine="loop")
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run(engine="loop")
    assert re.search(r"resuming from \S*checkpoint-4$", caplog.text, re.M)
    assert resumed == run("uninterrupted", engine="loop")


@pytest.mark.parametrize(
    "settings", [{"gradient_accumulation_steps": 3}, {"group_by_length": False}, {"precision": "bf16"}], ids=str
)
def test_other_batches_and_precisions_resume_to_the_same_bytes(
    settings: dict[str, Any], run: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture
) -> None:
    with killed_at(4):
        run(**settings)
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run(**settings)
    assert "resuming from" in caplog.text
    assert resumed == run("uninterrupted", **settings)


@pytest.mark.parametrize("write", [1, 8])
def test_an_incomplete_checkpoint_is_skipped_for_the_one_before(
    write: int, run: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture
) -> None:
    """The Trainer calls torch.save four times for a checkpoint: arguments, optimizer, scheduler, random states."""

    def truncated(content: Any, path: str, *_: Any) -> None:
        Path(path).write_bytes(b"PK")

    with killed_at(write, torch, "save", truncated):
        run()
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run()
    assert re.search(r"removed \S*checkpoint-\d, because .* is incomplete", caplog.text)
    assert ("resuming from" in caplog.text) == (write > 4)
    assert resumed == run("uninterrupted")


def test_a_checkpoint_truncated_later_is_skipped(
    run: Run, killed_at: KilledAt, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with killed_at(6):
        run()
    newest = max((tmp_path / "checkpoints").glob("*/checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert newest.name == "checkpoint-4"
    os.truncate(newest / "optimizer.pt", 1000)
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run()
    assert "resuming from" in caplog.text and "checkpoint-2" in caplog.text
    assert resumed == run("uninterrupted")


def test_early_stopping_survives_a_resume(run: Run, killed_at: KilledAt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the early stop and the end of the run."""
    settings = {"epochs": 4, "early_stopping_patience": 1, "lr": 1e-9}  # nothing is learnt, so that it stops
    expected = run("uninterrupted", **settings)
    assert parse_details(expected["metrics/train.json"].decode())["epochs_run"] == 2
    with killed_at(1, DefaultFlowCallback, "on_train_end"):
        run(**settings)
    assert run(**settings) == expected


def test_a_signal_after_the_last_step_writes_no_output(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(DefaultFlowCallback, "on_train_end", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 143
    assert not (tmp_path / "run" / "classifier").exists()
    monkeypatch.undo()
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run()
    assert re.search(r"resuming from \S*checkpoint-16", caplog.text)
    timing = json.loads((tmp_path / "run" / "metrics" / "timing.json").read_text())
    assert timing["train"]["samples_per_second"] == 0, "only samples of this process count"
    assert resumed == run("uninterrupted")


def test_unwritable_metrics_fail_before_training(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics").write_text("in the way")
    with pytest.raises(UserError, match=r"metrics/plots/history\.csv cannot be written"):
        run()
    assert "training on" not in caplog.text


def test_metrics_that_fail_to_be_written_cost_no_training(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Checkpoints are removed last: a run that fails or is killed after its last step resumes from that step."""

    def full(path: Path, content: Any) -> None:
        raise UserError(f"{path} cannot be written: No space left on device")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="No space left"):
        patch.setattr("pipeline.train.write_details", full)
        run()
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run()
    assert re.search(r"resuming from \S*checkpoint-16", caplog.text), "16 steps in all"
    assert resumed == run("uninterrupted")


def test_an_unwritable_checkpoint_directory_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(UserError, match=r"checkpoints cannot be written: (File exists|Not a directory)"):
        run()


@pytest.mark.parametrize("changed", [{"lr": 2e-3}, {"num_threads": 2}], ids=str)
def test_changed_parameters_start_from_scratch(
    changed: dict[str, Any], run: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture
) -> None:
    with killed_at(5):
        run()
    with caplog.at_level(logging.INFO, logger="pipeline"), killed_at(1):
        run(**changed)
    assert "resuming" not in caplog.text


def test_parameters_in_another_order_have_the_same_key() -> None:
    assert run_key({"lr": 1e-3, "seed": 1}, []) == run_key({"seed": 1, "lr": 1e-3}, [])


@pytest.mark.parametrize("changed", ["the weights", "the tokens", "the kernels"])
def test_changed_inputs_and_kernels_start_from_scratch(
    changed: str, run: Run, killed_at: KilledAt, tiny: TinyMaker, tokenized: Callable[..., Path], tmp_path: Path,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    checkpoint, data = shutil.copytree(tiny(), tmp_path / "checkpoint"), tokenized(tiny())
    with killed_at(5):
        run(checkpoint=checkpoint)
    if changed == "the weights":
        weights = load_file(checkpoint / "model.safetensors")
        save_file({name: tensor * 2 for name, tensor in weights.items()}, checkpoint / "model.safetensors")
    elif changed == "the tokens":
        data = tokenized(tiny(), "max_length")
    else:
        monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    with caplog.at_level(logging.INFO, logger="pipeline"), killed_at(1):
        run(data=data, checkpoint=checkpoint)
    assert "training on" in caplog.text
    assert "resuming" not in caplog.text


@pytest.mark.parametrize("changed", [{"dataloader_num_workers": 1}, {"save_steps": 3}])
def test_a_run_resumes_under_changed_settings_that_cannot_change_the_weights(
    changed: dict[str, Any], run: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture
) -> None:
    with killed_at(5):
        run()
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run(**changed)
    assert "resuming" in caplog.text
    assert resumed == run("uninterrupted")


def test_fresh_ignores_checkpoints(run: Run, killed_at: KilledAt, caplog: pytest.LogCaptureFixture) -> None:
    with killed_at(5):
        run()
    with caplog.at_level(logging.INFO, logger="pipeline"), killed_at(3):
        run(fresh=True)
    assert "resuming" not in caplog.text
    with caplog.at_level(logging.INFO, logger="pipeline"):
        resumed = run()
    assert re.search(r"resuming from \S*checkpoint-2$", caplog.text, re.M), "the fresh run's, not the earlier run's"
    assert resumed == run("uninterrupted")


def test_abandoned_checkpoints_are_removed_after_a_week(
    run: Run, killed_at: KilledAt, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for lr in (1e-3, 2e-3):
        with killed_at(5):
            run(lr=lr)
    old, recent = sorted((tmp_path / "checkpoints").iterdir(), key=lambda path: path.stat().st_mtime)
    for home, days in ((old, 7.1), (recent, 6.9)):
        os.utime(home, times=(time.time() - days * 24 * 3600,) * 2)
    with caplog.at_level(logging.INFO, logger="pipeline"), killed_at(1):
        run(lr=3e-3)
    assert re.search(rf"removed {old}: .*, \d+\.\d MB", caplog.text)
    assert not old.exists()
    assert recent.exists()
