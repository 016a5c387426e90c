"""Faults while a stage runs: each one ends in one line that says what to do, and leaves no partial output."""

import gc
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from conftest import TinyMaker, contents, data_params, predict_splits, train_model

from pipeline.cli import error_reason
from pipeline.core.messages import UserError
from pipeline.download import download
from pipeline.params import Params
from pipeline.tokenize_data import tokenize

Tokenized = Callable[..., Path]


def explained(fail: Callable[[], Any]) -> str:
    """Return the line that a command prints for the error that a function raises."""
    with pytest.raises(Exception) as error:
        fail()
    line = error_reason(error.value)
    assert line is not None and "\n" not in line, error.value
    return line


@pytest.mark.parametrize("engine", ["trainer", "loop"])
def test_a_non_finite_loss_stops_the_run_without_output(
    engine: str, tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"engine": engine, "lr": 1e30, "max_grad_norm": 0, "warmup_ratio": 0}
    with pytest.raises(UserError, match=r"the (loss|grad_norm) is (nan|inf) at step \d+\. .*train\.lr"):
        train_model(tokenized(tiny()), tiny(), tmp_path, **settings)
    assert not (tmp_path / "classifier").exists()
    assert not list(tmp_path.glob("metrics/**/*.*"))


def test_a_model_that_predicts_one_class_is_saved_with_a_warning(
    tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_model(tokenized(tiny()), tiny(), tmp_path, lr=1e-9)
    assert json.loads((tmp_path / "metrics" / "train.json").read_text())[0]["degenerate"] is True
    assert "the same prediction for every validation example" in caplog.text


@pytest.mark.parametrize("allocate", [torch.empty, np.empty, pa.allocate_buffer])
def test_an_allocation_that_fails_says_which_keys_need_less_memory(allocate: Callable[[int], Any]) -> None:
    line = explained(lambda: allocate(10**15))
    assert re.match(r"out of memory\..* train\.batch_size .*predict\.batch_size", line)


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


def test_a_run_that_filled_the_disk_with_checkpoints_resumes_with_the_same_bytes(
    small_disk: Callable[[str], Path], tiny: TinyMaker, tokenized: Tokenized, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    data, disk = tokenized(tiny()), small_disk("600k")  # One checkpoint takes 400 kB.
    settings: dict[str, Any] = {"save_steps": 1, "max_train_samples": 48}

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
    "long " * 5_000,
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
    predicted = pd.read_parquet(
        predict_splits(tmp_path / "raw", tmp_path / "tokenized", tmp_path, batch_size=5) / "test.parquet"
    )
    assert predicted["idx"].tolist() == [*range(16)] and predicted["label"].tolist() == [0, 1] * 8
