"""TensorBoard and MLflow, installed in a separate environment, record the curves of every run."""

import csv
import io
import json
import os
from pathlib import Path

import pytest
from conftest import Project, with_extras

Points = dict[str, list[list[float]]]

# Each script prints the content of a directory as {run: {metric: [[step, value], ...]}}.
READERS = {
    "tensorboard": """
import json
import sys
from pathlib import Path
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

runs = {}
for directory in Path(sys.argv[1]).glob("*/"):
    events = EventAccumulator(str(directory)).Reload()
    series = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    if series:
        runs[directory.name] = {tag: [(point.step, point.value) for point in points] for tag, points in series.items()}
print(json.dumps(runs))
""",
    "mlflow": """
import json
import sys
from mlflow import MlflowClient

runs = {}
client = MlflowClient(f"sqlite:///{sys.argv[1]}/mlflow.db")
for run in client.search_runs([experiment.experiment_id for experiment in client.search_experiments()]):
    assert run.info.status == "FINISHED"
    series = {metric: client.get_metric_history(run.info.run_id, metric) for metric in run.data.metrics}
    runs[run.info.run_name] = {
        metric: [(point.step, point.value) for point in points] for metric, points in series.items()
    }
print(json.dumps(runs))
""",
}
CURVES = {"tensorboard": ("train/loss", "eval/loss"), "mlflow": ("loss", "eval_loss")}


@pytest.fixture(scope="module")
def with_trackers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a PATH whose python also has TensorBoard and MLflow, installed as in docs/trackers.md."""
    python = with_extras(tmp_path_factory.mktemp("trackers"), "tensorboard", "mlflow")
    return f"{python.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
def test_tensorboard_records_every_run_in_the_users_repository(project: Project, with_trackers: str) -> None:
    """One run is in the workspace, and one in a temporary directory, which DVC removes."""
    project.set("runtime.report_to", "tensorboard")
    project.run("dvc", "repro", "train", PATH=with_trackers)
    project.commit("a result")
    command = "dvc exp run --temp --name apart --set-param train.seed=1 train"
    project.run(*command.split(), PATH=with_trackers)
    [reference] = project.git("for-each-ref", "--format=%(refname)", "refs/exps/**/apart").split()
    commits = {"workspace": "HEAD", "apart": reference}
    runs = read_runs("tensorboard", project.root / "runs", project, with_trackers)
    assert sorted(run.rpartition("-")[0] for run in runs) == sorted(commits)
    for run, series in runs.items():
        commit = commits[run.rpartition("-")[0]]
        assert_same_curves(series, "tensorboard", project.git("show", f"{commit}:metrics/plots/history.csv"))
    assert project.git("status", "--porcelain") == ""


@pytest.mark.slow
def test_mlflow_records_a_run_where_the_users_variable_says(
    project: Project, with_trackers: str, tmp_path: Path
) -> None:
    project.set("runtime.report_to", "mlflow")
    project.set("train.seed", "2")  # a different tracker alone does not cause a run
    env = {"PATH": with_trackers, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    project.run("dvc", "repro", "train", **env)
    ((_, series),) = read_runs("mlflow", tmp_path, project, with_trackers).items()
    assert_same_curves(series, "mlflow", (project.root / "metrics/plots/history.csv").read_text())


def assert_same_curves(series: Points, tracker: str, history: str) -> None:
    rows = list(csv.DictReader(io.StringIO(history)))
    for metric, split in zip(CURVES[tracker], ("train", "validation"), strict=True):
        points = [(int(row["step"]), float(row["loss"])) for row in rows if row["split"] == split]
        assert points
        assert series[metric] == [[step, pytest.approx(loss, abs=1e-5)] for step, loss in points]


def read_runs(tracker: str, directory: Path, project: Project, path: str) -> dict[str, Points]:
    printed = project.run("python", "-c", READERS[tracker], str(directory), PATH=path)
    runs: dict[str, Points] = json.loads(printed.splitlines()[-1])
    return runs
