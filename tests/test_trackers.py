"""TensorBoard and MLflow, installed in a separate environment, record the curves of every run."""

import csv
import io
import json
import os
import shutil
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
@pytest.mark.parametrize(
    ("tracker", "variable", "value"),
    [
        ("tensorboard", "TENSORBOARD_LOGGING_DIR", "{}/mine"),
        ("mlflow", "MLFLOW_TRACKING_URI", "sqlite:///{}/mlflow.db"),
    ],
)
def test_every_run_is_recorded_in_the_users_repository(
    tracker: str, variable: str, value: str, project: Project, with_trackers: str, tmp_path: Path
) -> None:
    """One run is in the workspace, and one in a temporary directory, which DVC removes.

    An environment variable of the user takes precedence.
    """
    project.set("runtime.report_to", tracker)
    project.set("train.seed", f"{len(tracker)}")  # a different tracker alone does not cause a run
    project.run("dvc", "repro", "train", PATH=with_trackers)
    project.commit("a result")
    name = f"apart-{tracker}"
    seed = f"train.seed=1{len(tracker)}"
    project.run("dvc", "exp", "run", "--temp", "--name", name, "--set-param", seed, "train", PATH=with_trackers)
    [reference] = project.git("for-each-ref", "--format=%(refname)", f"refs/exps/**/{name}").split()
    commits = {"workspace": "HEAD", name: reference}
    runs = read_runs(tracker, project.root / "runs", project, with_trackers)
    assert sorted(run.rpartition("-")[0] for run in runs) == sorted(commits)
    for run, series in runs.items():
        commit = commits[run.rpartition("-")[0]]
        history = list(csv.DictReader(io.StringIO(project.git("show", f"{commit}:metrics/plots/history.csv"))))
        for metric, split in zip(CURVES[tracker], ("train", "validation"), strict=True):
            rows = [(int(row["step"]), float(row["loss"])) for row in history if row["split"] == split]
            assert rows
            assert series[metric] == [[step, pytest.approx(loss, abs=1e-5)] for step, loss in rows]
    assert project.git("status", "--porcelain") == ""

    shutil.rmtree(project.root / "models" / ".checkpoints")  # otherwise, the run would resume at its last step
    command = ("python", "-m", "pipeline.train")
    project.run(*command, PATH=with_trackers, **{variable: value.format(tmp_path)})
    ((_, series),) = read_runs(tracker, tmp_path, project, with_trackers).items()
    assert CURVES[tracker][1] in series
    assert read_runs(tracker, project.root / "runs", project, with_trackers).keys() == runs.keys()


def read_runs(tracker: str, directory: Path, project: Project, path: str) -> dict[str, Points]:
    printed = project.run("python", "-c", READERS[tracker], str(directory), PATH=path)
    runs: dict[str, Points] = json.loads(printed.splitlines()[-1])
    return runs
