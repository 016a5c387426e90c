"""Several processes train and predict like a single one, log once, and resume after one of them is killed."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import psutil
import pytest
from conftest import (
    ROOT,
    Project,
    TinyMaker,
    contents,
    params_file,
    predict_splits,
    read_history,
    tokenize_params,
    train_model,
)
from kinds import download_task
from pandas.testing import assert_frame_equal

from pipeline.core.paths import PROVENANCE
from pipeline.tokenize_data import tokenize

pytestmark = pytest.mark.slow

TORCHRUN = "torchrun --nproc-per-node 2 -m"
ACCELERATE = "accelerate launch --multi_gpu --num_processes 2 -m"
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class Run(NamedTuple):
    process: psutil.Popen
    log: Path

    def wait(self, ok: bool = True) -> str:
        code, out = self.process.wait(300), self.log.read_text()
        assert (code == 0) == ok, out
        return out


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path, tiny: TinyMaker, raw: Path, tokenized: Callable[..., Path]) -> Start:
    """Start a stage with a launcher, in its own directory, with changes to params.yaml."""

    def start(name: str, launcher: str, stage: str = "train", **changes: Any) -> Run:
        checkpoint = tiny(**changes.pop("config", {}))
        directory, data = tmp_path / name, changes.pop("data", None) or tokenized(checkpoint)
        for link, target in {"data/raw": raw, "data/tokenized": data, "models/pretrained": checkpoint}.items():
            (directory / link).parent.mkdir(parents=True, exist_ok=True)
            if not (directory / link).exists():
                (directory / link).symlink_to(target)
        params_file(directory, {f"train.{key}": value for key, value in changes.items()} | {"runtime.save_steps": 3})
        command, environment = [*launcher.split(), f"pipeline.{stage}"], {**os.environ, "PYTHONPATH": str(ROOT)}
        with (directory / "log").open("w") as log:
            process = psutil.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
        return Run(process, directory / "log")

    return start


def results(directory: Path) -> dict[str, bytes]:
    """Return the bytes of the model and of the validation scores, keyed by file."""
    curve = (directory / "metrics/plots/history.csv").read_bytes().splitlines()
    scores = b"\n".join(line for line in curve if b",train," not in line)
    return {**contents(directory / "models/classifier"), "scores": scores}


def history(directory: Path) -> list[dict[str, float]]:
    """Return the numbers in the training curves, except for the epoch, which the Trainer counts in forward passes."""
    columns = ("step", "loss", "score", "lr")
    return [{key: float(row[key]) for key in columns if row[key]} for row in read_history(directory)]


def test_two_processes_with_half_the_batch_size_match_the_losses_of_one_process(
    start: Start, tiny: TinyMaker, tmp_path: Path
) -> None:
    """With 72 multi-label rows, the last step of an epoch has 8 rows."""
    raw, data, checkpoint = download_task("multi_label", tmp_path), tmp_path / "tokenized", tiny(**NO_DROPOUT)
    tokenize(raw, checkpoint, data, tokenize_params(64), 1)
    settings: dict[str, Any] = {"max_train_samples": 72, "logging_steps": 1, "epochs": 2, "class_weights": "balanced"}
    expected = history(train_model(data, checkpoint, tmp_path / "alone", batch_size=16, **settings))
    assert len(expected) == 2 * (5 + 1)
    outputs = []
    for engine, launcher in (("trainer", TORCHRUN), ("loop", ACCELERATE)):
        changes = {"batch_size": 4, "gradient_accumulation_steps": 2, "engine": engine, "data": data, **settings}
        out = start(engine, launcher, config=NO_DROPOUT, **changes).wait()
        assert len(re.findall(r"training on 72 .* 16,", out)) == out.count("training on") == 1, "only rank 0 logs"
        assert history(tmp_path / engine) == [pytest.approx(row, abs=1e-5) for row in expected]
        assert json.loads((tmp_path / engine / "metrics/train.json").read_text())[0]["environment"]["processes"] == 2
        outputs.append(results(tmp_path / engine))
        del outputs[-1][PROVENANCE]
    assert outputs[0] == outputs[1]


def test_two_processes_predict_the_same_as_one_process(
    start: Start, tiny: TinyMaker, raw: Path, tokenized: Callable[..., Path], tmp_path: Path
) -> None:
    data = tokenized(tiny())
    expected = predict_splits(raw, data, train_model(data, tiny(), tmp_path / "alone"))
    (tmp_path / "run" / "models").mkdir(parents=True)
    (tmp_path / "run" / "models" / "classifier").symlink_to(tmp_path / "alone" / "classifier")
    assert start("run", TORCHRUN, "predict").wait().count("scored test: ") == 1, "only rank 0 logs"
    for name in ("validation.parquet", "test.parquet"):
        table = pd.read_parquet(tmp_path / "run" / "data" / "predictions" / name)
        assert_frame_equal(table, pd.read_parquet(expected / name), check_exact=False, atol=1e-5)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_two_processes_end_when_one_is_killed_and_resume_with_the_same_bytes(
    name: str, start: Start, tmp_path: Path
) -> None:
    settings = {"batch_size": 4, "max_train_samples": 61, "epochs": 8, "logging_steps": 5}
    run, deadline = start("stopped", TORCHRUN, **settings), time.monotonic() + 300
    while not list(tmp_path.glob("stopped/models/.checkpoints/*/checkpoint-*/trainer_state.json")):
        assert run.process.poll() is None and time.monotonic() < deadline, run.log.read_text()
        time.sleep(0.01)
    run.process.children()[1].send_signal(signal.Signals[name])
    run.wait(ok=False)
    assert not (tmp_path / "stopped" / "models" / "classifier").exists()
    assert "resuming from" in start("stopped", TORCHRUN, **settings).wait()
    start("undisturbed", TORCHRUN, **settings).wait()
    assert results(tmp_path / "stopped") == results(tmp_path / "undisturbed")


def test_dvc_uses_the_launcher_from_params_yaml(project: Project) -> None:
    project.set("runtime.launcher", TORCHRUN)
    assert project.repro("predict")[-2:] == ["train", "predict"]
    assert '"processes": 2' in (project.root / "metrics/train.json").read_text()
    assert project.repro("predict") == []
