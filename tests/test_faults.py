"""Faults while a stage runs: each one is reported in one line and leaves no partial output."""

import gc
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from conftest import ROOT, TinyMaker, data_params, edit, params_file, predict_splits, sections, train_model
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.core.output import parse_details
from pipeline.download import download
from pipeline.evaluate import evaluate
from pipeline.params import ModelParams, Params
from pipeline.predict import predict
from pipeline.pretrained import pretrained
from pipeline.sources import loading
from pipeline.sources.corpus import Corpus
from pipeline.sources.demo import DEMO
from pipeline.sources.fetch import download_file
from pipeline.tokenize_data import tokenize
from pipeline.train import train

Tokenized = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, tiny: TinyMaker, tokenized: Tokenized) -> Callable[..., Path]:
    def run(config: dict[str, Any] | None = None, **changes: Any) -> Path:
        checkpoint = tiny(**(config or {}))
        return train_model(tokenized(checkpoint), checkpoint, tmp_path, **changes)

    return run


def test_a_non_finite_loss_stops_the_run_without_output(run: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the (loss|gradient norm) is (nan|inf) at step \d+\. Try a lower train\.lr"):
        run(lr=1e30, max_grad_norm=0, warmup_ratio=0)
    assert not (tmp_path / "classifier").exists()
    assert not list((tmp_path / "metrics").rglob("*.*"))


@pytest.mark.parametrize(("engine", "max_grad_norm"), [("trainer", 1.0), ("loop", 0.0)])
def test_a_non_finite_gradient_stops_the_run_when_it_is_logged(
    engine: str, max_grad_norm: float, tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification

    names = {0: "not_equivalent", 1: "equivalent"}  # a head for other classes would be newly initialized
    model = AutoModelForSequenceClassification.from_pretrained(tiny(), id2label=names)
    model.classifier.weight.data *= 1e25  # the squares in the norm overflow fp32, but the losses do not
    steep = shutil.copytree(tiny(), tmp_path / "steep")
    model.save_pretrained(steep)
    with pytest.raises(UserError, match=r"the (gradient norm|loss) is (inf|nan) at step \d+\. Try"):
        train_model(tokenized(tiny()), steep, tmp_path / "run", engine=engine, max_grad_norm=max_grad_norm)
    assert not list((tmp_path / "run").rglob("*.*"))


def test_a_model_that_predicts_one_class_is_saved_with_a_warning(
    run: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    out = run(lr=1e-9)
    assert parse_details((out / "metrics" / "train.json").read_text())["degenerate"] is True
    assert "the model gives the same prediction for every validation example" in caplog.text
    assert (out / "classifier" / "model.safetensors").exists()


def test_out_of_memory_is_reported_with_a_remedy(run: Callable[..., Path]) -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**30, hard))
    try:
        with pytest.raises(UserError, match=r"out of memory\. Lower train\.batch_size and raise train\.gradient_acc"):
            run(config={"intermediate_size": 20_000}, batch_size=640, max_train_samples=None)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_out_of_memory_on_a_gpu_that_is_already_in_use_says_by_what(
    run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Trainer moves the model to the GPU before the first step."""

    def to(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Process 7 has 37.44 GiB memory in use. Of the allocated memory 1.00 GiB is allocated"
        )

    monkeypatch.setattr(torch.nn.Module, "to", to)
    with pytest.raises(UserError, match=r"out of memory\. Lower train\..* Process 7 has 37\.44 GiB memory in use\.$"):
        run()


@pytest.mark.parametrize("engine", ["trainer", "loop"])
@pytest.mark.parametrize(
    ("error", "reported", "message"),
    [
        (torch.AcceleratorError("CUDA error: an illegal address"), torch.AcceleratorError, "illegal address"),
        (torch.OutOfMemoryError("CUDA out of memory."), UserError, r"out of memory\. Lower train\."),
    ],
)
def test_an_error_of_the_gpu_is_not_blamed_on_the_disk(
    engine: str, error: Exception, reported: type[Exception], message: str, run: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def save(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("accelerate.Accelerator.save_state", save)
    monkeypatch.setattr("transformers.Trainer._save_optimizer_and_scheduler", save)
    with pytest.raises(reported, match=message):
        run(engine=engine, save_steps=1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a file system of a given size."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        mount_point = tmp_path / "disk"
        mount_point.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount_point)]
        if os.geteuid() or subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
            pytest.skip("only root can mount a small disk")
        mounted.append(mount_point)
        return mount_point

    yield mount
    for mount_point in mounted:
        subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: TinyMaker, tokenized: Tokenized) -> Path:
    """The outputs of train and predict. Tests must not change them."""
    out = train_model(tokenized(tiny()), tiny(), tmp_path_factory.mktemp("finished"))
    predict_splits(tokenized(tiny()), out)
    return out


@pytest.mark.parametrize("stage", ["download", "pretrained", "tokenize", "train", "predict", "evaluate"])
def test_a_full_or_read_only_disk_is_reported_in_one_line_and_leaves_no_partial_output(
    stage: str, small_disk: Callable[[str], Path], raw: Path, params: Params, tiny: TinyMaker, tokenized: Tokenized,
    finished: Path, tmp_path: Path,
) -> None:  # fmt: skip
    data = tokenized(tiny())
    disk = small_disk("8k" if stage in ("predict", "evaluate") else "32k")
    out = disk / "out"
    stages: dict[str, Callable[[], None]] = {
        "download": lambda: download(out, data_params(task="demo")),
        "pretrained": lambda: pretrained(out, ModelParams(checkpoint=str(tiny()))),
        "tokenize": lambda: tokenize(raw, tiny(), out, params.tokenize, 1),
        "train": lambda: train(data, tiny(), out, tmp_path / "metrics", tmp_path / "checkpoints", *sections(params)),
        "predict": lambda: predict(data, finished / "classifier", out, tmp_path, params.predict, "fp32", 1),
        "evaluate": lambda: evaluate(finished / "predictions", finished / "predictions", out),
    }
    with pytest.raises(UserError, match=r"disk/out\S* cannot be written: .*(No space left|os error 28)"):
        stages[stage]()
    gc.collect()  # The frames of the error keep the file open and the disk busy.
    assert not [path for path in disk.rglob("*") if path.is_file() and not path.is_relative_to(out / "plots")]
    if stage in ("download", "evaluate"):  # The other stages report both errors in the same way.
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(UserError, match=r"disk/out\S* cannot be written: Read-only file system"):
            stages[stage]()


def test_a_cache_without_room_for_a_download_is_reported(
    small_disk: Callable[[str], Path], hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0" * 40
    hub.files[f"someone/tiny/{commit}/model.safetensors"] = bytes(100_000)
    disk = small_disk("32k")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(disk))
    with pytest.raises(UserError, match=rf"^{disk} cannot be written: No space left"):
        download_file("someone/tiny", "model.safetensors", commit, "model")


def test_a_disk_full_during_a_checkpoint_keeps_the_previous_one(
    small_disk: Callable[[str], Path], params: Params, tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    data = tokenized(tiny())
    disk = small_disk("600k")  # one checkpoint takes 400 kB
    settings = sections(params, save_steps=1, max_train_samples=48)
    outs = (tmp_path / "classifier", tmp_path / "metrics")
    with pytest.raises(UserError, match=r"of step 2 cannot be written \(0\.\d MB free\): .*\. Free some space"):
        train(data, tiny(), *outs, disk / "checkpoints", *settings)
    assert not outs[0].exists()
    subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
    caplog.clear()
    train(data, tiny(), *outs, disk / "checkpoints", *settings)
    assert "resuming from" in caplog.text and "checkpoint-1" in caplog.text


def test_a_first_checkpoint_that_does_not_fit_on_the_disk_is_removed(
    small_disk: Callable[[str], Path], params: Params, tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    disk = small_disk("300k")  # one checkpoint takes 400 kB
    settings = sections(params, save_steps=1, max_train_samples=48)
    with pytest.raises(UserError, match=r"of step 1 cannot be written"):
        train(tokenized(tiny()), tiny(), tmp_path / "classifier", tmp_path / "metrics", disk / "checkpoints", *settings)
    assert not list(disk.glob("**/checkpoint-*"))
    assert "resumes from" not in caplog.text


@pytest.fixture
def stage_directory(params: Params, tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path) -> Path:
    """A directory with inputs that keep `python -m pipeline.train` busy for many seconds."""
    (tmp_path / "data").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "data" / "tokenized").symlink_to(tokenized(tiny()))
    (tmp_path / "models" / "pretrained").symlink_to(tiny())
    params_file(tmp_path, {"train.epochs": 100, "runtime.save_steps": 7, "train.max_train_samples": "null"})
    return tmp_path


def launch_until_checkpoint(directory: Path, start_new_session: bool = False, **env: str) -> subprocess.Popen[str]:
    """Start `python -m pipeline.train` and wait for its first checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.train"], cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stderr=subprocess.PIPE, text=True, start_new_session=start_new_session,
    )  # fmt: skip
    checkpoints = Path(env.get("DVC_ROOT", directory), "models/.checkpoints")
    while not list(checkpoints.glob("*/*/complete")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


@pytest.mark.slow
def test_a_signal_to_the_process_group_saves_a_checkpoint_despite_data_loader_workers(
    stage_directory: Path,
) -> None:
    edit(stage_directory / "params.yaml", "runtime.dataloader_num_workers", 1)
    process = launch_until_checkpoint(stage_directory, start_new_session=True)
    os.killpg(process.pid, signal.SIGTERM)
    log = process.communicate()[1]
    assert process.returncode == 143, log
    assert "Send SIGTERM again to stop at once" in log
    assert "the next run with the same inputs resumes" in log
    assert "Traceback" not in log
    outputs = {path.name for path in (stage_directory / "models").iterdir()} - {"pretrained"}
    assert outputs == {".checkpoints"}, "an interrupted run writes no output"


@pytest.mark.slow
def test_a_second_signal_stops_the_run_immediately(stage_directory: Path) -> None:
    process = launch_until_checkpoint(stage_directory)
    # Both signals are pending when the process continues.
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        process.send_signal(number)
    log = process.communicate()[1]
    assert process.returncode in (130, 143)
    assert "stopped at step" not in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_second_process_with_the_same_inputs_waits_for_the_first(
    stage_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two experiments can run in parallel in temporary directories."""
    edit(stage_directory / "params.yaml", "train.epochs", 3)
    second_directory = tmp_path_factory.mktemp("other")
    shutil.copytree(stage_directory, second_directory, symlinks=True, dirs_exist_ok=True)
    first = launch_until_checkpoint(stage_directory)
    first.send_signal(signal.SIGSTOP)
    second = launch_until_checkpoint(second_directory, DVC_ROOT=str(stage_directory))
    assert second.stderr
    waiting = ""
    while "another process is training with the same inputs; waiting for it to end" not in waiting:
        line = second.stderr.readline()
        assert line, waiting
        waiting += line
    first.send_signal(signal.SIGCONT)
    log = first.communicate()[1]
    assert first.returncode == 0, log
    log = waiting + second.communicate()[1]
    assert second.returncode == 0, log
    assert "resuming from" in log
    models = [
        (directory / "models/classifier/model.safetensors").read_bytes()
        for directory in (stage_directory, second_directory)
    ]
    assert models[0] == models[1]
    assert len(list((stage_directory / "models/.checkpoints").iterdir())) == 1, (
        "the second process leaves no checkpoints of its own"
    )


TEXTS = [
    "\U0001f600 \U0001f469\u200d\U0001f52c emoji, one of them of three characters",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd",
    "e\u0301 is not \u00e9",
    "NUL \x00, bell \x07, tab \t, line\nfeed, \x85 next line, \u2028 line separator, \x1c file separator",
    "\"quotes\" 'and' ,commas;\\",
    "long " * 20_000,
]


def make_corpus(pairs: list[tuple[str, str]]) -> Corpus:
    """Return three splits of these pairs, with the labels 0, 1, 0, ... and the idx 0, 1, 2, ..."""
    table = pd.DataFrame(pairs, columns=DEMO.text_columns).assign(
        label=np.arange(len(pairs)) % 2, idx=range(len(pairs))
    )
    return Corpus(DEMO, dict.fromkeys(DEMO.splits, table), {})


def test_any_text_passes_through_all_stages_in_order(
    raw: Path, params: Params, tiny: TinyMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(first, TEXTS[0]) for first in TEXTS] + [(TEXTS[0], second) for second in TEXTS] + [(TEXTS[-1], TEXTS[-1])]
    monkeypatch.setattr(loading, "load_demo", lambda: make_corpus(pairs))
    download(tmp_path / "raw", data_params(task="demo"))
    rows = pq.read_table(tmp_path / "raw" / "test.parquet").to_pylist()
    assert [(row["sentence1"], row["sentence2"]) for row in rows] == pairs
    tokenize(tmp_path / "raw", tiny(), tmp_path / "tokenized", params.tokenize, 1)
    train_model(tmp_path / "tokenized", tiny(), tmp_path)
    predictions = predict_splits(tmp_path / "tokenized", tmp_path, batch_size=5)
    predicted = pq.read_table(predictions / "test.parquet").to_pylist()
    assert [(row["idx"], row["label"]) for row in predicted] == [(n, n % 2) for n in range(len(pairs))]
