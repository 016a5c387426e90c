"""`python -m pipeline.seeds` runs what is missing, and summarizes the scores. Wrong arguments of all group commands."""

import re
import sys
from importlib import import_module

import numpy as np
import pytest
from conftest import Project
from toy import experiment, restore

from pipeline.experiments.groups import run_seeds
from pipeline.experiments.launch import experiments, group_name
from pipeline.seeds import summary


def numbers(lines: list[str], title: str) -> list[float]:
    [row] = [line for line in lines if line.startswith(title)]
    return [float(number) for number in re.findall(r"[\d.]+", row.removeprefix(title))]


def test_finished_runs_are_reused_and_the_table_summarizes_their_scores(
    toy: Project, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = ["train.epochs=7"]
    group = group_name(overrides)
    experiment(toy, f"{group}-1", train__epochs="7", train__seed="1")
    restore(toy)
    [side] = run_seeds(2, [overrides], 1)
    assert "1 of 2 runs are finished" in caplog.messages
    assert f"{group}-2: epoch 7/7: training loss 0.5" in caplog.messages
    assert not [line for line in caplog.messages if line.startswith(f"{group}-1")]
    assert {f"{group}-1", f"{group}-2"} <= experiments().keys()
    lines = summary(side)
    scores = [100 * run.predictions["test"].score("f1") for run in side.runs]
    expected = [2, np.mean(scores), np.std(scores, ddof=1), min(scores), max(scores)]
    assert numbers(lines, "test F1") == pytest.approx(expected, abs=0.01)
    assert [line for line in lines if line.startswith("Warning") and f"{group}-2" in line and f"{group}-1" not in line]
    assert f"python -m pipeline.compare {group} OTHER" in lines[-1]


def test_a_regression_without_test_labels_is_summarized_by_validation_scores(toy: Project) -> None:
    overrides = ["data.task=stsb"]
    for seed in "12":
        experiment(toy, f"{group_name(overrides)}-{seed}", data__task="stsb", train__seed=seed)
    restore(toy)
    lines = summary(*run_seeds(2, [overrides], 1))
    assert numbers(lines, "validation Spearman correlation")[0] == 2
    assert not [line for line in lines if line.startswith("test")]


@pytest.mark.parametrize(
    ("command", "arguments", "expected"),
    [
        ("seeds", "", "--n"), ("seeds", "--n 1", "--n: must be at least 2, got 1"),
        ("seeds", "--n 2 --jobs 0", "--jobs: must be at least 1, got 0"),
        ("folds", "--k 1", "--k: must be at least 2, got 1"),
        ("folds", "--k many", "--k: invalid integer value: 'many'"),
        ("learning_curve", "--points 2", "--points: must be at least 3, got 2"),
        ("learning_curve", "--seeds 1", "--seeds: must be at least 2, got 1"),
        ("search", "space.yaml --n 1", "--n: must be at least 2, got 1"),
    ],
)  # fmt: skip
def test_wrong_arguments_have_status_2_and_a_line_that_names_the_option(
    command: str, arguments: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = import_module(f"pipeline.{command}").main
    monkeypatch.setattr(sys, "argv", [command, *arguments.split()])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]
