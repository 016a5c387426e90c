"""`python -m pipeline.search` runs trials as real experiments of a toy pipeline, and continues after a kill."""

import logging
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import psutil
import pytest
import yaml
from conftest import ROOT, Project, keys_of
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from pipeline.core.messages import UserError
from pipeline.experiments.launch import experiments
from pipeline.experiments.trials import read_space, run_search


def search(text: str, sampler: str = "tpe", n: int = 100) -> tuple[pd.DataFrame, list[str]]:
    Path("space.yaml").write_text(text)
    return run_search(Path("space.yaml"), n, sampler, 1)


def test_the_file_names_ranges_and_lists(toy: Project) -> None:
    Path("space.yaml").write_text(
        "train.lr: log(1e-5, 1e-4)\ntrain.warmup_ratio: uniform(0, 0.2)\ntrain.epochs: int(1, 5)\n"
        "train.training_args.lr_scheduler_type: [linear, cosine]\n"
    )
    assert read_space(Path("space.yaml")) == {
        "train.epochs": IntDistribution(1, 5),
        "train.lr": FloatDistribution(1e-5, 1e-4, log=True),
        "train.training_args.lr_scheduler_type": CategoricalDistribution(["linear", "cosine"]),
        "train.warmup_ratio": FloatDistribution(0, 0.2),
    }
    assert read_space(ROOT / "search.yaml").keys() <= keys_of("train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.lr: around(1, 2)", r"space\.yaml: train\.lr .*around\(1, 2\).* log\(1e-5, 1e-4\)"),
        ("train.lr: log(0, 1)", r"space\.yaml: train\.lr .*log\(0, 1\)"),
        ("- train.lr", r"space\.yaml: .* a line such as train\.lr: log"),
        ("train.lr: [", r"space\.yaml cannot be read"),
        ("train.seed: [1, 2]", r'"train\.seed" cannot'),
        ("train.metric_for_best_model: [f1, loss]", r'"train\.metric_for_best_model" cannot'),
        ("data.split.seed: [1, 2]", r'"data\.split\.seed" cannot'),
    ],
)
def test_an_impossible_search_is_reported_before_anything_runs(text: str, message: str, toy: Project) -> None:
    with pytest.raises(UserError, match=message):
        search(text)


def test_a_grid_has_no_ranges(toy: Project) -> None:
    with pytest.raises(UserError, match=r"space\.yaml: .* train\.lr"):
        search("train.lr: log(1e-5, 1e-4)", "grid")


@pytest.mark.slow
def test_a_grid_ends_early_and_failed_trials_run_again(toy: Project, caplog: pytest.LogCaptureFixture) -> None:
    """The toy scores best with an lr of 1e-3 and with more epochs. Seed 101 fails with an lr above 1."""
    text = "train.epochs: [1, 2]\ntrain.lr: [1e-3, 2.0]\n"
    table, best = search(text, "grid")
    points = sorted(zip(table["train.epochs"], table["train.lr"], strict=True))
    assert points == [("1", "0.001"), ("1", "2.0"), ("2", "0.001"), ("2", "2.0")]
    assert best == ["train.epochs=2", "train.lr=0.001"] == [f"{key}={table[key][0]}" for key in table.columns[2:]]
    assert table["validation F1"].isna().tolist() == [False, False, True, True]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert sum("the loss is not a number" in warning for warning in warnings) == 2
    assert pd.read_csv("searches/space.csv").columns.tolist() == table.columns.tolist()
    scored = yaml.safe_load(toy.git("show", "HEAD:dvc.lock"))["stages"]["predict"]
    for commit in experiments().values():
        stages = yaml.safe_load(toy.git("show", f"{commit}:dvc.lock"))["stages"]
        assert stages["train"]["params"]["params.yaml"]["train"]["seed"] == 101
        assert stages["predict"] == scored, "a trial does not score test"
    caplog.clear()
    again, _ = search(text, "grid")
    assert again.equals(table)
    started = re.findall(r"^trial-(\d)-.*Running stage 'train'", "\n".join(caplog.messages), re.M)
    assert set(started) == set(table["trial"].astype(str)[2:]), "only the failed trials run again"

    def edit(record: logging.LogRecord) -> bool:
        toy.set("train.weight_decay", "0.02")
        return True

    with caplog.filtering(edit), pytest.raises(UserError, match="changed since this search began"):  # type: ignore[arg-type]
        search("train.epochs: [1, 2]", n=2)
    search("train.epochs: [1, 2]", n=1)
    toy.git("checkout", "--quiet", ".")
    studies = optuna.get_all_study_summaries(JournalStorage(JournalFileBackend("searches/space.log")))
    assert [study.n_trials for study in studies] == [4, 2, 1], "other parameters start another study"


@pytest.mark.slow
def test_a_killed_search_continues_and_confirms_the_best_trial(toy: Project) -> None:
    toy.set("train.epochs", "3")
    toy.set("train.lr", "2.0e-4")
    toy.set("train.warmup_ratio", "0.3")
    toy.commit("other parameters")
    Path("killed.yaml").write_text("train.lr: log(5e-4, 2e-3)\ntrain.batch_size: [8, 16]\n")
    command = [sys.executable, "-m", "pipeline.search", "killed.yaml", "--n", "4", "--jobs", "2"]
    with subprocess.Popen(command, cwd=toy.root, env=toy.env, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr or ():
            if re.match("trial-[23]-.*epoch 1/3", line):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL
    out = toy.run(*command)
    assert not re.search("trial-[01]-.*-101: Running stage 'train'", out), "a finished trial is not repeated"
    adopt: Any = re.search(r"Verdict: B is better: .*\n(?:.*\n)*?\nTo adopt B: dvc exp run -S (\S+) -S (\S+)\n$", out)
    assert adopt and adopt[1].startswith("train.batch_size=") and 5e-4 <= float(adopt[2].partition("=")[2]) <= 2e-3
    assert re.search(r"^ *trial +validation F1 +train\.batch_size +train\.lr$", out, re.M)
    table = pd.read_csv("searches/killed.csv")
    assert table["trial"].sort_values().tolist() == [0, 1, 2, 3]
    assert toy.git("status", "--porcelain", "--untracked-files=no") == ""
    assert "searches/" not in toy.git("status", "--porcelain"), "git ignores the results"
