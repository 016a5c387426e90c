"""Distributed training has the losses of a single process, logs once, and ends when any of its processes ends."""

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from conftest import ROOT, Project, TinyMaker, contents, params_file, read_history, sections, train_model
from kinds import download_task
from pandas.testing import assert_frame_equal

from pipeline.classify import classify
from pipeline.core.output import parse_details
from pipeline.core.paths import PROVENANCE
from pipeline.params import Params, RuntimeParams, TokenizeParams
from pipeline.predict import predict
from pipeline.tokenize_data import tokenize
from pipeline.train import train

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
RUNTIME = set(RuntimeParams.model_fields)

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Start:
    """Start a command with a launcher, in its own directory, with changes to `train.*` and `runtime.*`."""

    def start(name: str, launcher: str, command: str = "train", **changes: Any) -> subprocess.Popen[str]:
        checkpoint = tiny(**changes.pop("config", {}))
        directory, data = tmp_path / name, changes.pop("data", None) or tokenized(checkpoint)
        for link, target in {"data/tokenized": data, "models/pretrained": checkpoint}.items():
            path = directory / link
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.symlink_to(target)
        (directory / "report_threads.py").write_text(REPORT_THREADS)
        params_file(
            directory,
            {f"{'runtime' if key in RUNTIME else 'train'}.{key}": changes[key] for key in changes},
        )
        return subprocess.Popen(
            [*launcher.split(), *f"pipeline.{command}".split()],
            cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT)},
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


@pytest.mark.slow
def test_one_process_instead_of_two_is_rejected(start: Start) -> None:
    """Without --multi_gpu, accelerate silently starts one process on a CPU."""
    out = wait_for(start("run", ACCELERATE.replace(" --multi_gpu", "")), ok=False)
    assert "--multi_gpu to runtime.launcher" in out
    assert "training on" not in out


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.mark.slow
def test_two_processes_with_half_the_batch_size_match_the_losses_of_one_process(
    start: Start, tiny: TinyMaker, tmp_path: Path
) -> None:
    """With 72 multi-label rows, the last step of an epoch has 8 rows."""
    raw, data, checkpoint = download_task("multi_label", tmp_path), tmp_path / "tokenized", tiny(**NO_DROPOUT)
    tokenize(raw, checkpoint, data, TokenizeParams(max_length=64, padding="dynamic"), 1)
    settings: dict[str, Any] = {"max_train_samples": 72, "logging_steps": 1, "epochs": 2, "class_weights": "balanced"}
    expected = history(train_model(data, checkpoint, tmp_path / "alone", batch_size=16, **settings))
    assert len(expected) == 2 * (5 + 1)
    for engine, launcher in (("trainer", TORCHRUN), ("loop", ACCELERATE)):
        changes = {"batch_size": 4, "gradient_accumulation_steps": 2, "engine": engine, "data": data, **settings}
        out = wait_for(start(engine, launcher, config=NO_DROPOUT, **changes))
        assert re.findall(r"training on 72 \w+, effective batch size 16", out), out
        assert out.count("training on") == 1, "only rank 0 logs"
        for row, expected_row in zip(history(tmp_path / engine), expected, strict=True):
            assert row == pytest.approx(expected_row, abs=1e-5)
        assert parse_details((tmp_path / engine / "metrics/environment.json").read_text())["processes"] == 2
    by_loop, by_trainer = results(tmp_path / "loop"), results(tmp_path / "trainer")
    for outputs, engine in ((by_loop, "loop"), (by_trainer, "trainer")):
        provenance = json.loads(outputs.pop(PROVENANCE))
        assert provenance["environment"]["processes"] == 2
        assert provenance["parameters"]["engine"] == engine
    assert by_loop == by_trainer


@pytest.mark.slow
def test_two_processes_predict_the_same_as_one_process(
    start: Start, params: Params, tiny: TinyMaker, tokenized: Callable[..., Path], tmp_path: Path
) -> None:
    run, data = tmp_path / "run", tokenized(tiny())
    classifier = run / "models" / "classifier"
    train(data, tiny(), classifier, run / "metrics", tmp_path / "checkpoints", *sections(params))
    rows = [f"The number is {number}.,It is {number * 7}.,{number}\n" for number in range(99)]
    (run / "new.csv").write_text("sentence1,sentence2,id\n" + "".join(rows) + ",No first text.,99\n")
    predict(data, classifier, tmp_path / "predictions", tmp_path / "metrics", params.predict, "fp32", 1)
    with contextlib.chdir(run):
        classify(classifier, Path("new.csv"), tmp_path / "answered.csv", True, 32)
    out = wait_for(start("run", TORCHRUN, "predict"))
    assert out.count("scored test: ") == out.count("device: cpu") == 1, "only rank 0 logs"
    out = wait_for(start("run", TORCHRUN, "classify --file new.csv --out answered.csv --on-error skip"))
    assert out.count("1 row was skipped") == 1
    expected_files = [*(tmp_path / "predictions").glob("*.parquet"), *tmp_path.glob("answered*")]
    assert len(expected_files) == 6, "two splits, both also with swapped pairs, the classified rows and the errors"
    for file in expected_files:
        distributed = run / ("data/predictions" if file.suffix == ".parquet" else "") / file.name
        assert_frame_equal(read_table(distributed), read_table(file), check_exact=False, atol=1e-5)


def read_table(file: Path) -> pd.DataFrame:
    readers: dict[str, Callable[..., Any]] = {
        ".parquet": pd.read_parquet, ".csv": pd.read_csv, ".jsonl": functools.partial(pd.read_json, lines=True),
    }  # fmt: skip
    table: pd.DataFrame = readers[file.suffix](file)
    return table


def history(directory: Path) -> list[dict[str, float]]:
    """Return the numbers in the training curves, except for the epoch, which the Trainer counts in forward passes."""
    columns = ("step", "loss", "score", "lr")
    return [{key: float(row[key]) for key in columns if row[key]} for row in read_history(directory)]


SETTINGS: dict[str, Any] = {"batch_size": 4, "max_train_samples": 61, "epochs": 8, "save_steps": 3, "timeout": 10}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "interruptions"), [("trainer", ["kill", "stop one"]), ("loop", ["stop all"])], ids=["trainer", "loop"]
)
def test_two_processes_end_when_one_is_interrupted_and_resume_with_the_same_bytes(
    engine: str, interruptions: list[str], start: Start, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "engine": engine, "logging_steps": 5}
    home = tmp_path / "stopped" / "models" / ".checkpoints"

    def checkpoint_times() -> set[int]:
        files = list(home.glob("*/*/complete"))
        return {file.stat().st_mtime_ns for file in files if file.exists()}

    for name in interruptions:
        before = checkpoint_times()
        process = start("stopped", TORCHRUN, **settings)
        while not checkpoint_times() - before:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        if name == "stop one":  # in the middle of a later epoch
            assert process.stdout is not None
            while "epoch 2/8" not in process.stdout.readline():
                assert process.poll() is None
            before, since = checkpoint_times(), set[int]()
            while len(since) < 2:  # one of them may be the checkpoint at the end of the epoch
                assert process.poll() is None
                since |= checkpoint_times() - before
                time.sleep(0.005)
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
        killed = time.monotonic()
        if name == "kill":
            # Pause torchrun: when it sees a dead worker, it kills the other one, perhaps before its error message.
            process.send_signal(signal.SIGSTOP)
            workers[1].send_signal(signal.SIGKILL)
            while workers[0].status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() - killed < 20
                time.sleep(0.01)
            process.send_signal(signal.SIGCONT)
        elif name == "stop all":
            # A terminal signals torchrun and its workers, and torchrun forwards the signal.
            workers[1].send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
        else:
            workers[1].send_signal(signal.SIGTERM)
        out = wait_for(process, ok=False)
        assert not re.search(r"exitcode *: 128\b", out), "all processes exit with the status of the signal"
        assert time.monotonic() - killed < 20
        assert ("lost the connection" if name == "kill" else "stopped at step") in out
        assert not (tmp_path / "stopped" / "models" / "classifier").exists()
    out = wait_for(start("stopped", TORCHRUN, **settings))
    assert "resuming from" in out
    wait_for(start("undisturbed", TORCHRUN, **settings))
    assert results(tmp_path / "stopped") == results(tmp_path / "undisturbed")


ADDRESSES = ("10.231.77.1", "10.231.77.2")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """The names of two network namespaces, connected by a virtual cable."""
    names = [f"pipeline-{os.getpid()}-{number}" for number in (0, 1)]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
            for name, address in zip(names, ADDRESSES, strict=True):
                ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", "cable", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces need root and iproute2: {error}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.slow
def test_two_machines_train_together_and_resume_after_a_network_failure(
    start: Start, machines: list[str], tmp_path: Path
) -> None:
    def start_both() -> list[subprocess.Popen[str]]:
        return [
            start(
                "two",
                f"ip netns exec {name} env GLOO_SOCKET_IFNAME=cable torchrun --nnodes 2 --nproc-per-node 1 "
                f"--node-rank {rank} --master-addr {ADDRESSES[0]} --master-port 29400 report_threads.py",
                **SETTINGS,
            )
            for rank, name in enumerate(machines)
        ]

    interrupted = start_both()
    while not list(tmp_path.glob("two/models/.checkpoints/*/*/complete")):
        assert all(process.poll() is None for process in interrupted), [
            process.communicate() for process in interrupted
        ]
        time.sleep(0.01)
    ip("-n", machines[1], "link", "set", "cable", "down")
    assert all("lost the connection to the others" in wait_for(process, ok=False) for process in interrupted)
    ip("-n", machines[1], "link", "set", "cable", "up")
    first, _second = (wait_for(process) for process in start_both())
    assert "resuming from" in first
    wait_for(start("one", TORCHRUN, **SETTINGS))
    assert results(tmp_path / "two") == results(tmp_path / "one"), (
        "the result is the same as with two processes on one machine"
    )


@pytest.mark.slow
def test_dvc_uses_the_launcher_from_params_yaml(project: Project) -> None:
    project.set("runtime.launcher", "torchrun --nproc-per-node 2 -m")
    assert project.repro("predict")[-2:] == ["train", "predict"]
    assert '"processes": 2' in (project.root / "metrics/environment.json").read_text()
    assert project.repro("predict") == []
