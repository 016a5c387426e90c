"""A mistake in params.yaml or in the installed packages is found before DVC touches an output, with real DVC."""

import re
from importlib.metadata import version

import pytest
from conftest import Project, contents

from pipeline.core import packages
from pipeline.core.messages import UserError
from pipeline.core.packages import require_locked
from pipeline.core.paths import CHECKED


@pytest.fixture(scope="module")
def finished(project: Project) -> Project:
    """A project with the outputs of the first stages, and with committed scores."""
    project.repro("download", "pretrained")
    (project.root / "metrics" / "evaluation.json").write_text("{}")
    project.commit("a result")
    return project


@pytest.fixture(autouse=True)
def _restore_params(finished: Project) -> None:
    finished.git("checkout", "--quiet", "params.yaml")


def outputs(project: Project) -> list[dict[str, bytes]]:
    (project.root / CHECKED).unlink(missing_ok=True)  # the output of the stage that rejects the parameters
    return [contents(project.root / name) for name in ("data", "models", "metrics")]


def test_a_mistake_is_rejected_before_any_output_is_touched(finished: Project) -> None:
    before = outputs(finished)
    finished.set("train.lr", "fast")
    printed = finished.run("dvc", "repro", ok=False)
    assert re.search(r"^error: params\.yaml: train\.lr.*fast", printed, re.M) and "Traceback" not in printed
    assert outputs(finished) == before


def test_a_stage_that_fails_deletes_no_committed_scores(finished: Project) -> None:
    finished.set("data.task", "custom")  # There are no files in data/custom.
    finished.run("dvc", "repro", "download", ok=False)
    assert finished.git("status", "--porcelain", "metrics") == ""


def test_a_key_that_no_stage_tracks_records_no_experiment(finished: Project) -> None:
    printed = finished.run("dvc", "exp", "run", "-S", "+train.learning_rate=1", ok=False)
    assert re.search(r'^error: params\.yaml: train\.learning_rate .*"train\.lr"', printed, re.M)
    assert finished.git("for-each-ref", "refs/exps/*/*/*") == ""


def test_a_package_whose_version_is_not_the_locked_one_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    require_locked()
    monkeypatch.setattr(packages, "version", lambda name: "1.14.0" if name == "accelerate" else version(name))
    with pytest.raises(UserError, match=r"^compute\.lock: .*: accelerate 1\.14\.0 .*make setup"):
        require_locked()
