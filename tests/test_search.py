"""`python -m pipeline.search` runs trials as real experiments of a toy pipeline and reuses them after a kill."""

import csv
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from conftest import ROOT, Project, keys_of
from toy import experiment, restore

from pipeline.core.messages import UserError
from pipeline.experiments.identity import identity, load_overridden_params
from pipeline.experiments.revisions import experiment_commits
from pipeline.experiments.search import Study
from pipeline.experiments.space import Sampler, read_space
from pipeline.params import load_params
from pipeline.search import _command_override, search

SPACE = """\
train.lr: log(1e-4, 1e-2)
train.batch_size: [8, 16]
train.max_grad_norm: uniform(0.5, 2)
"""


def space(text: str) -> list[Any]:
    Path("space.yaml").write_text(text)
    return read_space(Path("space.yaml"))


def rows(directory: str) -> list[dict[str, str]]:
    with Path("searches", directory, "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["tpe", "random", "grid"])
def test_a_sampler_proposes_the_same_trials_for_the_same_results(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = SPACE if name != "grid" else "train.epochs: int(1, 3)\ntrain.batch_size: [8, 16]\n"

    def proposals(sign: int) -> list[dict[str, str]]:
        sampler, points = Sampler(space(text), name), []
        for _ in range(sampler.size or 20):
            number, values = sampler.ask()
            points.append(values)
            sampler.tell(number, sign * float(values["train.batch_size"]) if number % 5 else None)
        return points

    points = proposals(1)
    assert points == proposals(1)
    assert (points != proposals(-1)) == (name == "tpe"), "only tpe learns from the results"
    if name == "grid":
        assert [(point["train.batch_size"], point["train.epochs"]) for point in points] == [
            (size, epochs) for size in ("8", "16") for epochs in ("1", "2", "3")
        ]
    else:
        assert all(1e-4 <= float(point["train.lr"]) <= 1e-2 and len(point["train.lr"]) < 11 for point in points)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "train.lr: around(1, 2)",
            r"space\.yaml: train\.lr must be .*, got around\(1, 2\) .*\. Write log\(1e-5, 1e-4\)",
        ),
        ("train.lr: log(0, 1)", r"space\.yaml: train\.lr must be .*, got log\(0, 1\) .*\. Write"),
        (
            "train.lr: [1e-5]",
            r"space\.yaml: train\.lr must be .* two or more different values, got \[1e-05\]\. .* params\.yaml",
        ),
        (
            "train.batch_size: [8, 16, 8]",
            r"space\.yaml: train\.batch_size must be .* different values, got \[8, 16, 8\]\. ",
        ),
        ("- train.lr", r"space\.yaml must have a line for each parameter, .*\. Write"),
        ("train.lr: [", r"space\.yaml cannot be read"),
    ],
)
def test_an_invalid_search_space_is_reported_in_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        space(text)


def test_choices_are_passed_to_params_yaml_unchanged(toy: Project) -> None:
    Path("choices.yaml").write_text(
        "train.class_weights: [balanced, {bad: 2, good: 1}, null]\nmodel.checkpoint: [modèle/a, 'C:\\b \"c\"']\n"
    )
    checkpoint, weights = (parameter.values_to_check() for parameter in read_space(Path("choices.yaml")))
    checkpoints = [load_overridden_params([f"model.checkpoint={text}"]).model.checkpoint for text in checkpoint]
    assert checkpoints == ["modèle/a", 'C:\\b "c"']
    class_weights = [load_overridden_params([f"train.class_weights={text}"]).train.class_weights for text in weights]
    assert class_weights == ["balanced", {"bad": 2, "good": 1}, None]


def test_the_printed_command_can_set_the_weight_of_a_class_that_has_none(toy: Project) -> None:
    assert load_params().train.class_weights is None
    override = _command_override("train.class_weights.good=2")
    assert load_overridden_params([override]).train.class_weights == {"good": 2}


def test_a_search_ends_if_params_yaml_has_changed_since_it_began(toy: Project) -> None:
    study = Study(Sampler(space("train.lr: [1e-3, 2e-3]\n"), "grid"), 1)
    toy.set("train.epochs", "3")
    with pytest.raises(UserError, match="has changed since this command began"):
        study.run(2)


def test_the_projects_search_space_uses_parameters_of_the_train_section() -> None:
    names = {parameter.key for parameter in read_space(ROOT / "search.yaml")}
    assert names and names <= keys_of("train")


@pytest.mark.slow
def test_trials_are_experiments_that_end_with_train_and_only_failures_are_repeated(
    toy: Project, caplog: pytest.LogCaptureFixture
) -> None:
    """The toy scores best with an lr of 1e-3 and with more epochs. Seed 102 fails with 4 epochs."""
    parameters = space("train.epochs: [1, 4]\ntrain.lr: [1e-3, 2.0]\n")

    def ranked() -> list[tuple[str, str, int, bool]]:
        trials = Study(Sampler(parameters, "grid"), 1).run(10)
        return [(*trial.values.values(), len(trial.scores), trial.score is not None) for trial in trials]

    ranking = ranked()
    assert ranking == [
        ("1", "0.001", 2, True),
        ("4", "0.001", 2, False),
        ("1", "2.0", 1, False),
        ("4", "2.0", 1, False),
    ]
    failures = [message for message in caplog.messages if message.endswith("failed (error: the loss is not a number)")]
    assert len(failures) == 3
    scored = yaml.safe_load(toy.git("show", "HEAD:dvc.lock"))["stages"]["predict"]
    for name, commit in experiment_commits().items():
        assert name.startswith("trial-")
        stages = yaml.safe_load(toy.git("show", f"{commit}:dvc.lock"))["stages"]
        assert stages["train"]["params"]["params.yaml"]["train"]["seed"] in (101, 102)
        assert stages["predict"] == scored, "a trial does not score test"
    caplog.clear()
    assert ranked() == ranking
    repeated = {message.partition(", 0:")[0] for message in caplog.messages if "Running stage 'train'" in message}
    assert repeated == {"trial 2, seed 101", "trial 4, seed 101", "trial 3, seed 102"}


def test_two_distinct_points_get_a_second_seed_even_if_the_best_one_is_proposed_again(toy: Project) -> None:
    """Six trials of a space with two points propose both points several times."""
    for lr in ("9e-4", "1e-4"):
        for seed in ("101", "102"):
            experiment(toy, f"trial-{identity([f'train.lr={lr}'])}-{seed}", train__lr=lr, train__seed=seed)
    restore(toy)
    trials = Study(Sampler(space("train.lr: [9e-4, 1e-4]\n"), "tpe"), 1).run(6)
    assert {trial.values["train.lr"]: len(trial.scores) for trial in trials} == {"0.0009": 2, "0.0001": 2}


def run(project: Project, *arguments: str) -> str:
    return project.run(sys.executable, "-m", "pipeline.search", *arguments)


@pytest.mark.parametrize(
    ("text", "n", "sampler", "message"),
    [
        (
            "train.learning_rate: [1, 2]",
            2,
            "tpe",
            r"train\.learning_rate is not a parameter\. Did you mean \"train\.lr\"",
        ),
        ("train.seed: [1, 2]", 2, "tpe", r"train\.seed is chosen for each run"),
        ("train.lr: log(1e-5, 1e-4)", 2, "grid", r"train\.lr has a range, but a grid needs values to choose from"),
        ("train.lr: log(1e-5, 1e-4)", 1, "tpe", r"--n must be at least 2, got 1"),
        (
            "train.metric_for_best_model: [f1, loss]",
            2,
            "tpe",
            r"train\.metric_for_best_model chooses the score .* Remove it\.$",
        ),
        ("data.split.seed: [1, 2]", 2, "tpe", r"data\.split\.seed decides which examples are scored"),
        ("predict.max_samples: [200, 400]", 2, "tpe", r"predict\.max_samples decides which examples are scored"),
        ("train.warmup_ratio: uniform(0, 1.2)", 2, "tpe", r"train\.warmup_ratio.* 1\.2"),
        ("train.batch_size: [8, 16, 2.5]", 2, "tpe", r"train\.batch_size.* 2\.5"),
    ],
)
def test_an_impossible_search_is_reported_before_anything_runs(
    text: str, n: int, sampler: str, message: str, toy: Project
) -> None:
    Path("bad.yaml").write_text(f"{text}\n")
    with pytest.raises(UserError, match=message):
        search(Path("bad.yaml"), n, sampler, 1)
    assert not Path("searches", "bad").exists()


def kill_at_line(project: Project, command: list[str], line: str, *, children: bool) -> list[str]:
    """Kill a command, and its children if wanted, when it prints a line. Returns the lines up to that one."""
    lines = []
    with subprocess.Popen(command, cwd=project.root, env=project.env, stderr=subprocess.PIPE, text=True) as process:
        for output in process.stderr or ():
            lines.append(output)
            if line in output and "Running stage 'train'" in output:
                for child in psutil.Process(process.pid).children(recursive=True) if children else ():
                    child.kill()
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL, lines
    return lines


@pytest.mark.slow
def test_a_killed_search_and_a_parallel_search_end_with_the_same_bytes(toy: Project) -> None:
    toy.set("train.epochs", "3")
    toy.set("train.lr", "2.0e-4")
    toy.commit("other parameters")
    for name in ("killed", "whole"):
        Path(f"{name}.yaml").write_text("train.lr: log(1e-4, 1e-2)\ntrain.weight_decay: [0.0, 0.1]\n")
    arguments = ["--n", "4", "--sampler", "random"]
    command = [sys.executable, "-m", "pipeline.search", "killed.yaml", *arguments]
    kill_at_line(toy, command, "trial 2, seed 101", children=False)
    lines = kill_at_line(toy, command, "seed 2 of 5", children=True)
    assert not [line for line in lines if line.startswith("trial 1, seed 101, 0:")], "a finished run is not repeated"
    out = run(toy, "killed.yaml", *arguments)
    assert "Running stage" in out
    assert "seed 101, 0:" not in out
    adopt = re.search(r"Verdict: B is better: .*\n\nTo adopt B: dvc exp run -S (train\.lr=\S+) -S \S+$", out)
    assert adopt, out
    assert abs(np.log10(float(adopt[1].partition("=")[2])) + 3) < 0.5, "1e-3 is best"
    table = re.findall(r"^ *trial +validation F1 +seeds +train\.lr +train\.weight_decay$", out, re.M)
    assert table

    trials = [name for name in experiment_commits() if name.startswith("trial-")]
    toy.run("dvc", "exp", "remove", *trials)
    shutil.rmtree(toy.root / ".dvc" / "cache" / "runs")
    output = run(toy, "whole.yaml", *arguments, "--jobs", "2")
    assert "trial 4, seed 101, 0:" in output
    assert Path("searches/killed/trials.csv").read_bytes() == Path("searches/whole/trials.csv").read_bytes()
    assert sorted(row["seeds"] for row in rows("whole")) == ["1", "1", "2", "2"]
    assert toy.git("status", "--porcelain", "--untracked-files=no") == ""
    assert "searches/" not in toy.git("status", "--porcelain"), "git ignores the results"
