"""What a change reruns, and experiments: real `dvc`, in a repository of its own, in a path with spaces."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from conftest import Project

ALL = ["download", "pretrained", "tokenize", "train", "predict", "evaluate", "report"]


def evaluation(project: Project) -> dict[str, dict[str, float]]:
    return json.loads((project.root / "metrics" / "evaluation.json").read_text())  # type: ignore[no-any-return]


def test_the_whole_pipeline_and_what_each_change_reruns(project: Project) -> None:
    assert sorted(project.repro()) == sorted(ALL)
    lock = (project.root / "dvc.lock").read_text()
    report = evaluation(project)
    assert report["test"]["n"] == 240
    assert project.repro() == [], "nothing changed, nothing runs"
    project.commit("a first result")

    project.set("train.lr", "2e-3")
    project.set("train.max_train_samples", "80")
    assert project.repro() == ["train", "predict", "evaluate", "report"]
    changed = evaluation(project)
    assert changed != report
    project.set("train.lr", "1e-3")
    project.set("train.max_train_samples", "64")
    assert project.repro() == [], "earlier values are restored from the run cache"
    assert (project.root / "dvc.lock").read_text() == lock
    assert evaluation(project) == report

    project.set("predict.batch_size", "7")
    assert project.repro() == ["predict"], "the predictions are the same, so the rest is skipped"

    for key, value in (("tokenize.num_proc", "2"), ("train.dataloader_num_workers", "1")):
        project.set(key, value)
    assert project.repro() == [], "what cannot change an output reruns nothing"

    with (project.root / "pipeline" / "evaluate.py").open("a") as code:
        code.write("# a change\n")
    assert project.repro() == ["evaluate"]

    project.set("tokenize.max_length", "24")
    assert project.repro() == ["tokenize", "train", "predict", "evaluate", "report"]

    other = project.root.parent / "other checkpoint"
    shutil.copytree(project.params()["model"]["checkpoint"], other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.3}))
    project.set("model.checkpoint", str(other))
    assert project.repro() == ["pretrained", "tokenize", "train", "predict", "evaluate", "report"]

    project.commit("another checkpoint")
    assert "metrics/evaluation.json" in project.run("dvc", "metrics", "diff", "HEAD~1", "--md")
    assert "metrics/timing.json" in project.run("dvc", "metrics", "show")
    charts = json.loads(project.run("dvc", "plots", "show", "--json"))["data"]
    assert {"Accuracy", "F1", "Learning rate", "metrics/plots/history.csv", "metrics/plots/roc.csv"} <= charts.keys()


def test_a_wrong_parameter_ends_in_one_line_and_costs_nothing(project: Project) -> None:
    lock = (project.root / "dvc.lock").read_text()
    kept = {
        name: (project.root / name).stat().st_mtime_ns for name in ("data/raw", "data/tokenized", "models/pretrained")
    }
    project.set("train.lr", "fast")
    out = project.run("dvc", "repro", ok=False)
    assert "error: params.yaml: train.lr is fast; it must be a number" in out
    assert "Traceback" not in out
    assert (project.root / "dvc.lock").read_text() == lock
    assert {name: (project.root / name).stat().st_mtime_ns for name in kept} == kept
    project.set("train.lr", "1e-3")
    assert project.repro() == [], "what DVC deleted before it ran the stage comes back from the cache"
    assert (project.root / "models" / "classifier" / "model.safetensors").exists()
    assert project.git("status", "--porcelain", "metrics", "dvc.lock", "params.yaml") == ""


@pytest.mark.slow
def test_experiments_in_place_in_a_temporary_directory_and_queued(project: Project) -> None:
    project.git("config", "user.name", "A")
    project.git("config", "user.email", "a@example.org")
    project.repro()
    project.commit("before the experiments")
    base = project.params()["train"]["lr"]

    out = project.run("dvc", "exp", "run", "--temp", "--name", "apart", "--set-param", "train.lr=3e-5")
    assert "Running stage 'train'" in out
    assert "Running stage 'tokenize'" not in out
    assert project.params()["train"]["lr"] == base, "the workspace is untouched"
    assert project.git("status", "--porcelain") == ""

    project.run("dvc", "exp", "run", "--queue", "--set-param", "train.seed=1,2", "--set-param", "train.lr=2e-5")
    project.run("dvc", "exp", "run", "--run-all", "--jobs", "2")  # two at a time
    experiments = json.loads(project.run("dvc", "exp", "show", "--json"))[1]["experiments"]
    found = [entry["revs"][0]["data"] for entry in experiments]
    assert sorted(data["params"]["params.yaml"]["data"]["train"]["seed"] for data in found) == [1, 2, 42]
    for data in found:
        assert data["metrics"]["metrics/evaluation.json"]["data"]["test"]["n"] == 240
        assert data["metrics"]["metrics/timing.json"]["data"]["train"]["seconds"] > 0

    project.run("dvc", "exp", "run", "--set-param", "train.lr=3e-5")
    assert float(project.params()["train"]["lr"]) == 3e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "number"),
    [("dvc repro", signal.SIGINT), ("dvc exp run --temp --name killed", signal.SIGKILL)],
)
def test_a_run_that_was_stopped_is_not_recorded_and_resumes(
    command: str, number: signal.Signals, project: Project
) -> None:
    """The directory of a temporary experiment is gone by then; its checkpoints lie in the user's repository."""
    project.git("config", "user.name", "A")
    project.git("config", "user.email", "a@example.org")
    project.set("train.epochs", "20")
    project.set("train.lr", "1e-3" if number == signal.SIGINT else "2e-3")
    project.set("train.save_steps", "3")
    with subprocess.Popen(command.split(), cwd=project.root, env=project.env, start_new_session=True) as process:
        while not list(project.root.glob("models/.checkpoints/*/*/files.json")):
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, number)
    assert process.returncode
    out = project.run(*command.split())
    assert "Running stage 'train'" in out
    assert re.search(r"resuming from .*models/\.checkpoints/\w+/checkpoint-\d+", out)
    assert not list((project.root / "models/.checkpoints").iterdir())
