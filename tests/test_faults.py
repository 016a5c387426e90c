"""Faults while a stage runs: each one ends in one line that says what to do, and leaves no partial output."""

import gc
import json
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.cli import explain

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import TinyMaker, contents, data_params, predict_splits, run_python, sections, train_model
from safetensors.torch import save_file

from pipeline.core.messages import UserError
from pipeline.core.output import parse_details, write_text
from pipeline.download import download
from pipeline.params import ModelParams, Params
from pipeline.pretrained import pretrained
from pipeline.tokenize_data import tokenize
from pipeline.train import train

Tokenized = Callable[..., Path]


def explained(fail: Callable[[], Any]) -> str:
    """Return the line that a command prints for the error that a function raises."""
    with pytest.raises(Exception) as error:
        fail()
    line = explain(error.value)
    assert line is not None and "\n" not in line, error.value
    return line


@pytest.mark.parametrize("engine", ["trainer", "loop"])
def test_a_non_finite_loss_stops_the_run_without_output(
    engine: str, tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path
) -> None:
    settings = {"engine": engine, "lr": 1e30, "max_grad_norm": 0, "warmup_ratio": 0}
    with pytest.raises(UserError, match=r"the (loss|grad_norm) is (nan|inf) at step \d+\. .*train\.lr"):
        train_model(tokenized(tiny()), tiny(), tmp_path, **settings)
    assert not (tmp_path / "classifier").exists()
    assert not list(tmp_path.glob("metrics/**/*.*"))


def test_a_model_that_predicts_one_class_is_saved_with_a_warning(
    tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_model(tokenized(tiny()), tiny(), tmp_path, lr=1e-9)
    assert parse_details((tmp_path / "metrics" / "train.json").read_text())["degenerate"] is True
    assert "the same prediction for every validation example" in caplog.text


@pytest.mark.parametrize("allocate", [torch.empty, np.empty, bytearray, pa.allocate_buffer])
def test_an_allocation_that_fails_says_which_keys_need_less_memory(allocate: Callable[[int], Any]) -> None:
    line = explained(lambda: allocate(10**15))
    assert re.match(r"out of memory\..* train\.batch_size .*predict\.batch_size", line)


def test_training_that_needs_too_much_memory_is_explained(
    tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path
) -> None:
    data, checkpoint = tokenized(tiny()), tiny(intermediate_size=20_000)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**30, hard))
    try:
        line = explained(lambda: train_model(data, checkpoint, tmp_path, batch_size=640, max_train_samples=None))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "out of memory" in line and not (tmp_path / "classifier").exists()


def test_a_lost_connection_to_another_process_is_explained(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text("""if True:
        import os
        import torch
        from pipeline.cli import as_command
        rank = 0 if os.fork() else 1
        store = "file://" + os.path.abspath("store")
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        torch.distributed.barrier()
        if rank:
            os._exit(0)
        with as_command():
            torch.distributed.all_reduce(torch.zeros(1))
    """)
    done = run_python("-m", "pair", cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search("^error: the connection to another process is lost", done.stderr, re.M)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a file system of a given size."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(size: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        if os.geteuid() or subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
            pytest.skip("only root can mount a small disk")
        return disk

    yield mount
    subprocess.run(["umount", "--lazy", str(disk)], stderr=subprocess.DEVNULL)


def test_a_library_that_fills_the_disk_is_explained(small_disk: Callable[[str], Path]) -> None:
    disk, zeros = small_disk("8k"), torch.zeros(10_000)
    writers: list[Callable[[], object]] = [
        lambda: torch.save(zeros, disk / "optimizer.pt"),
        lambda: save_file({"weights": zeros}, disk / "model.safetensors"),
        lambda: pq.write_table(pa.table({"idx": np.random.rand(10_000)}), disk / "test.parquet"),
        lambda: write_text(disk / "report.html", 40_000 * "x"),
    ]
    for write in writers:
        assert "the disk is full" in explained(write)
        shutil.rmtree(disk, ignore_errors=True)  # all but the mount point


@pytest.mark.parametrize("stage", ["pretrained", "tokenize", "train"])
def test_a_full_disk_leaves_no_partial_output(
    stage: str, small_disk: Callable[[str], Path], raw: Path, params: Params, tiny: TinyMaker, tokenized: Tokenized,
    tmp_path: Path,
) -> None:  # fmt: skip
    out, checkpoint, data = small_disk("32k") / "out", tiny(), tokenized(tiny())
    stages: dict[str, Callable[[], object]] = {
        "pretrained": lambda: pretrained(out, ModelParams(checkpoint=str(checkpoint))),
        "tokenize": lambda: tokenize(raw, checkpoint, out, params.tokenize, 1),
        "train": lambda: train(data, checkpoint, out, tmp_path, tmp_path / "checkpoints", *sections(params)),
    }
    assert "the disk is full" in explained(stages[stage])
    gc.collect()  # The frames of the error keep the file open and the disk busy.
    assert contents(out.parent) == {}


def test_a_run_that_filled_the_disk_with_checkpoints_resumes_with_the_same_bytes(
    small_disk: Callable[[str], Path], tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    data, disk = tokenized(tiny()), small_disk("600k")  # One checkpoint takes 400 kB.
    settings = {"save_steps": 1, "max_train_samples": 48}

    def run() -> Path:
        return train_model(data, tiny(), tmp_path / "run", disk / "checkpoints", **settings)

    assert "the disk is full" in explained(run)
    assert not (tmp_path / "run" / "classifier").exists()
    gc.collect()
    subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
    caplog.clear()
    resumed = contents(run() / "classifier")
    assert "resuming from" in caplog.text and "checkpoint-1" in caplog.text
    assert resumed == contents(train_model(data, tiny(), tmp_path / "undisturbed", **settings) / "classifier")


TEXTS = [
    "\U0001f469\u200d\U0001f52c is one emoji of three characters, e\u0301 is not \u00e9",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd, \"quotes\" 'and' ,commas;\\",
    "NUL \x00, tab \t, line\nfeed, \x85 next line, \u2028 line separator, \x1c file separator",
    "long " * 20_000,
]


def test_any_text_passes_through_all_stages_in_order(params: Params, tiny: TinyMaker, tmp_path: Path) -> None:
    pairs = [(first, second) for first in TEXTS for second in TEXTS]
    (tmp_path / "custom").mkdir()
    for split in ("train", "validation", "test"):
        rows = [{"one": one, "other": other, "label": number % 2} for number, (one, other) in enumerate(pairs)]
        (tmp_path / f"custom/{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"text_column_names": ["one", "other"], "directory": str(tmp_path / "custom")}
    download(tmp_path / "raw", data_params(task="custom", **columns))
    written = pd.read_parquet(tmp_path / "raw" / "test.parquet")
    assert [*zip(written["one"], written["other"], strict=True)] == pairs
    tokenize(tmp_path / "raw", tiny(), tmp_path / "tokenized", params.tokenize, 1)
    train_model(tmp_path / "tokenized", tiny(), tmp_path)
    predicted = pd.read_parquet(predict_splits(tmp_path / "tokenized", tmp_path, batch_size=5) / "test.parquet")
    assert predicted["idx"].tolist() == [*range(16)] and predicted["label"].tolist() == [0, 1] * 8
