"""Trackers: what TensorBoard and MLflow, really installed, have of each run."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import Project, with_extras

from pipeline.core.details import parse_details

Points = dict[str, list[list[float]]]

# Each prints what is in a directory: {run: {metric: [[step, value], ...]}}.
READERS = {
    "tensorboard": """
import json
import sys
from pathlib import Path
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

found = {}
for place in Path(sys.argv[1]).glob("*/"):
    events = EventAccumulator(str(place)).Reload()
    series = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    if series:
        found[place.name] = {tag: [(point.step, point.value) for point in points] for tag, points in series.items()}
print(json.dumps(found))
""",
    "mlflow": """
import json
import sys
from mlflow import MlflowClient

found = {}
client = MlflowClient(f"sqlite:///{sys.argv[1]}/mlflow.db")
for run in client.search_runs([experiment.experiment_id for experiment in client.search_experiments()]):
    name = run.info.run_name
    assert name not in found and run.info.status == "FINISHED", name
    series = {metric: client.get_metric_history(run.info.run_id, metric) for metric in run.data.metrics}
    found[name] = {metric: [(point.step, point.value) for point in points] for metric, points in series.items()}
print(json.dumps(found))
""",
}
CURVE = {"tensorboard": ("train/loss", "eval/loss"), "mlflow": ("loss", "eval_loss")}


@pytest.fixture(scope="module")
def with_trackers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH whose python has the packages of this environment, TensorBoard and MLflow, as docs/trackers.md says."""
    python = with_extras(tmp_path_factory.mktemp("trackers"), "tensorboard", "mlflow")
    return f"{python.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tracker", "lr", "command", "experiments"),
    [
        ("tensorboard", "1e-3", "dvc exp run --temp --name apart --set-param train.seed=7", "apart"),
        ("mlflow", "2e-3", "python -m pipeline.seeds --n 2", r"seeds-\w+-[12]"),  # else DVC restores the other's model
    ],
)
def test_every_run_leaves_its_curve_and_scores_in_a_place_of_its_own(
    tracker: str, lr: str, command: str, experiments: str, project: Project, with_trackers: str
) -> None:
    """A run that is stopped and resumed under another name, a queued one, and one in a temporary directory."""

    def run(*command: str) -> str:
        return project.run(*command, PATH=with_trackers)

    for key, value in {
        "runtime.report_to": tracker, "runtime.save_steps": "3",
        "train.lr": lr, "train.epochs": "6", "train.logging_steps": "4",
    }.items():  # fmt: skip
        project.set(key, value)
    project.git("config", "user.name", "A")
    project.git("config", "user.email", "a@example.org")
    project.commit("before the runs")

    _stop("dvc exp run --name stopped", project, with_trackers)
    assert "resuming from" in run("dvc", "repro")
    project.commit("a result")
    run("dvc", "exp", "run", "--queue", "--name", f"queued-{tracker}", "--set-param", "train.seed=8")
    run("dvc", "queue", "start")
    run(*command.split())
    deadline = time.monotonic() + 300
    while not (queued := _commits(project, f"queued-{tracker}")):
        assert time.monotonic() < deadline, run("dvc", "queue", "logs", f"queued-{tracker}")
        time.sleep(0.5)

    commits = {"workspace": "HEAD", **queued, **_commits(project, experiments)}
    found = _read(tracker, "runs", project, with_trackers)
    assert sorted(place.rpartition("-")[0] for place in found) == sorted(commits)
    for place, metrics in found.items():
        _check(metrics, CURVE[tracker], project, commits[place.rpartition("-")[0]])
    assert project.git("status", "--porcelain") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tracker", "variable", "value"),
    [("tensorboard", "TENSORBOARD_LOGGING_DIR", "{}/own"), ("mlflow", "MLFLOW_TRACKING_URI", "sqlite:///{}/mlflow.db")],
)
def test_the_users_own_place_wins(
    tracker: str, variable: str, value: str, project: Project, with_trackers: str, tmp_path: Path
) -> None:
    project.set("runtime.report_to", tracker)
    project.run("dvc", "repro", PATH=with_trackers)
    before = _read(tracker, "runs", project, with_trackers)
    for stage in (["pipeline.train", "--fresh"], ["pipeline.report"]):
        project.run(
            "python", "-m", *stage, PATH=with_trackers, DVC_EXP_NAME="own", **{variable: value.format(tmp_path)}
        )
    ((_, metrics),) = _read(tracker, str(tmp_path), project, with_trackers).items()
    assert {CURVE[tracker][1], "test/f1"} <= metrics.keys()
    assert _read(tracker, "runs", project, with_trackers).keys() == before.keys()


def _read(tracker: str, directory: str, project: Project, path: str) -> dict[str, Points]:
    found: dict[str, Points] = json.loads(
        project.run("python", "-c", READERS[tracker], directory, PATH=path).splitlines()[-1]
    )
    return found


def _stop(command: str, project: Project, path: str) -> None:
    """Stop a run with SIGINT once it has a checkpoint."""
    env = {**project.env, "PATH": path}
    with subprocess.Popen(command.split(), cwd=project.root, env=env, start_new_session=True) as process:
        while not list(project.root.glob("models/.checkpoints/*/*/files.json")):
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
    assert process.returncode


def _commits(project: Project, names: str) -> dict[str, str]:
    """The references of experiments by name."""
    references = project.git("for-each-ref", "--format=%(refname)", "refs/exps").split()
    named = {reference.rpartition("/")[2]: reference for reference in references}
    return {name: reference for name, reference in named.items() if re.fullmatch(names, name)}


def _check(metrics: Points, curve: tuple[str, str], project: Project, commit: str) -> None:
    """Compare what a tracker has of a run with the metrics that the run's commit has."""

    def read(name: str) -> str:
        return project.git("show", f"{commit}:metrics/{name}")

    history = list(csv.DictReader(io.StringIO(read("plots/history.csv"))))
    for name, split in zip(curve, ("train", "validation"), strict=True):
        rows = [(int(row["step"]), float(row["loss"])) for row in history if row["split"] == split]
        assert len(rows) > 2
        assert metrics[name] == [[step, pytest.approx(value, abs=1e-5)] for step, value in rows]
    evaluation = json.loads(read("evaluation.json"))
    last = parse_details(read("train.json"))["steps"]
    for split in ("validation", "test"):
        for name in ("accuracy", "f1", "loss"):
            assert metrics[f"{split}/{name}"] == [[last, pytest.approx(evaluation[split][name], abs=1e-5)]]
