"""Several processes train and predict like a single one, log once, and resume after one of them is killed."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from conftest import ROOT, Project, TinyMaker, contents, params_file, predict_splits, read_history, train_model
from kinds import download_task
from pandas.testing import assert_frame_equal

from pipeline.core.output import parse_details
from pipeline.core.paths import PROVENANCE
from pipeline.params import RuntimeParams, TokenizeParams
from pipeline.tokenize_data import tokenize

pytestmark = pytest.mark.slow

# Runs a module of the pipeline and prints which threads of the process group are left when it exits. A leftover thread
# may crash the process at exit: https://github.com/pytorch/pytorch/issues/190489.
REPORT_THREADS = """
import atexit, os, runpy, sys

def report():
    names = [open(f"/proc/self/task/{thread}/comm").read() for thread in os.listdir("/proc/self/task")]
    left = sorted(name.strip() for name in names if "gloo" in name)
    os.write(1, f"threads left: {left}\\n".encode())  # at once, because two processes share the output

atexit.register(report)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
TORCHRUN = "torchrun --nproc-per-node 2 report_threads.py"
ACCELERATE = "accelerate launch --multi_gpu --num_processes 2 report_threads.py"
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Start:
    """Start a stage with a launcher, in its own directory, with changes to `train.*` and `runtime.*`."""

    def start(name: str, launcher: str, stage: str = "train", **changes: Any) -> subprocess.Popen[str]:
        checkpoint = tiny(**changes.pop("config", {}))
        directory, data = tmp_path / name, changes.pop("data", None) or tokenized(checkpoint)
        for link, target in {"data/tokenized": data, "models/pretrained": checkpoint}.items():
            (directory / link).parent.mkdir(parents=True, exist_ok=True)
            if not (directory / link).exists():
                (directory / link).symlink_to(target)
        (directory / "report_threads.py").write_text(REPORT_THREADS)
        runtime = RuntimeParams.model_fields
        params_file(directory, {f"{'runtime' if key in runtime else 'train'}.{key}": changes[key] for key in changes})
        return subprocess.Popen(
            [*launcher.split(), f"pipeline.{stage}"], cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    return start


def wait_for(process: subprocess.Popen[str], ok: bool = True) -> str:
    out = process.communicate(timeout=300)[0]
    assert (process.returncode == 0) == ok, out
    assert not ok or out.count("threads left: []") == out.count("threads left:"), out
    return out


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
    tokenize(raw, checkpoint, data, TokenizeParams(max_length=64, padding="dynamic"), 1)
    settings: dict[str, Any] = {"max_train_samples": 72, "logging_steps": 1, "epochs": 2, "class_weights": "balanced"}
    expected = history(train_model(data, checkpoint, tmp_path / "alone", batch_size=16, **settings))
    assert len(expected) == 2 * (5 + 1)
    outputs = {}
    for engine, launcher in (("trainer", TORCHRUN), ("loop", ACCELERATE)):
        changes = {"batch_size": 4, "gradient_accumulation_steps": 2, "engine": engine, "data": data, **settings}
        out = wait_for(start(engine, launcher, config=NO_DROPOUT, **changes))
        assert len(re.findall(r"training on 72 .* 16,", out)) == out.count("training on") == 1, "only rank 0 logs"
        for row, expected_row in zip(history(tmp_path / engine), expected, strict=True):
            assert row == pytest.approx(expected_row, abs=1e-5)
        assert parse_details((tmp_path / engine / "metrics/environment.json").read_text())["processes"] == 2
        outputs[engine] = results(tmp_path / engine)
        assert json.loads(outputs[engine].pop(PROVENANCE))["environment"]["processes"] == 2
    assert outputs["loop"] == outputs["trainer"]


def test_two_processes_predict_the_same_as_one_process(
    start: Start, tiny: TinyMaker, tokenized: Callable[..., Path], tmp_path: Path
) -> None:
    data = tokenized(tiny())
    expected = predict_splits(data, train_model(data, tiny(), tmp_path / "alone"))
    (tmp_path / "run" / "models").mkdir(parents=True)
    (tmp_path / "run" / "models" / "classifier").symlink_to(tmp_path / "alone" / "classifier")
    out = wait_for(start("run", TORCHRUN, "predict"))
    assert out.count("scored test: ") == 1, "only rank 0 logs"
    for split in ("validation", "test"):
        table = pd.read_parquet(tmp_path / "run" / "data" / "predictions" / f"{split}.parquet")
        assert_frame_equal(table, pd.read_parquet(expected / f"{split}.parquet"), check_exact=False, atol=1e-5)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_two_processes_end_when_one_is_killed_and_resume_with_the_same_bytes(
    name: str, start: Start, tmp_path: Path
) -> None:
    settings = {"batch_size": 4, "max_train_samples": 61, "epochs": 8, "save_steps": 3, "logging_steps": 5}
    process = start("stopped", TORCHRUN, **settings)
    while not list(tmp_path.glob("stopped/models/.checkpoints/*/checkpoint-*/trainer_state.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    worker = psutil.Process(process.pid).children()[1]
    worker.send_signal(signal.Signals[name])
    wait_for(process, ok=False)
    assert not (tmp_path / "stopped" / "models" / "classifier").exists()
    out = wait_for(start("stopped", TORCHRUN, **settings))
    assert "resuming from" in out
    wait_for(start("undisturbed", TORCHRUN, **settings))
    assert results(tmp_path / "stopped") == results(tmp_path / "undisturbed")


def test_dvc_uses_the_launcher_from_params_yaml(project: Project) -> None:
    project.set("runtime.launcher", "torchrun --nproc-per-node 2 -m")
    assert project.repro("predict")[-2:] == ["train", "predict"]
    assert '"processes": 2' in (project.root / "metrics/environment.json").read_text()
    assert project.repro("predict") == []
