"""TensorBoard, installed in a separate environment, records the curves of a run."""

import csv
import json
import os
from pathlib import Path

import pytest
from conftest import Project, with_extras

# Prints the points of each curve in a directory of events as {tag: [[step, value], ...]}.
READER = """
import json
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1]).Reload()
curves = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
print(json.dumps({tag: [(point.step, point.value) for point in points] for tag, points in curves.items()}))
"""


@pytest.mark.slow
def test_tensorboard_writes_the_curves_to_runs(project: Project, tmp_path: Path) -> None:
    python = with_extras(tmp_path / "trackers", "tensorboard")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    project.set("runtime.report_to", "tensorboard")
    project.env.pop("TENSORBOARD_LOGGING_DIR", None)  # set by an earlier training in this process
    project.run("dvc", "repro", "train", PATH=path)
    [events] = (project.root / "runs").rglob("events.out.tfevents.*")
    curves = json.loads(project.run("python", "-c", READER, str(events.parent), PATH=path).splitlines()[-1])
    with (project.root / "metrics/plots/history.csv").open() as file:
        rows = list(csv.DictReader(file))
    for curve, split in (("train/loss", "train"), ("eval/loss", "validation")):
        points = [[int(row["step"]), float(row["loss"])] for row in rows if row["split"] == split]
        assert points and curves[curve] == [[step, pytest.approx(loss, abs=1e-5)] for step, loss in points]
    assert project.git("status", "--porcelain", "runs") == ""
