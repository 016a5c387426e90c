"""An edit while a stage runs is an error, because DVC reads parameters and code only after the stage has ended."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ROOT, Project, edit, params_file

from pipeline.core.messages import UserError
from pipeline.core.stage import unchanged


@pytest.fixture
def project_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with a params.yaml, in which the code of the stages is a copy."""
    shutil.copytree(ROOT / "pipeline", tmp_path / "pipeline")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    params_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipeline.core.stage.PROJECT", tmp_path)
    return tmp_path


def test_an_edit_of_what_the_stage_reads_is_named(project_copy: Path) -> None:
    with pytest.raises(UserError, match=r"params\.yaml: train\.lr was changed .*stage train"), unchanged("train"):
        edit(project_copy / "params.yaml", "train.lr", "2e-3")
    with pytest.raises(UserError, match=r"data\.split\.seed"), unchanged("download"):
        edit(project_copy / "params.yaml", "data.split.seed", 7)
    with pytest.raises(UserError, match=r"code in pipeline/ was changed"), unchanged("train"):
        (project_copy / "pipeline" / "training" / "losses.py").open("a").write("# a comment\n")


def test_an_edit_that_does_not_concern_the_stage_is_allowed(project_copy: Path) -> None:
    with unchanged("train"):
        edit(project_copy / "params.yaml", "predict.batch_size", 1)
        (project_copy / "pipeline" / "report.py").open("a").write("# a comment\n")


@pytest.mark.slow
def test_training_continues_after_the_undo(project: Project) -> None:
    project.set("train.epochs", "20")
    path = project.root / "params.yaml"
    original = path.read_text()
    command = ("dvc", "repro", "train")
    with subprocess.Popen(
        command, cwd=project.root, env=project.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        while not list(project.root.glob("models/.checkpoints/*/checkpoint-*/trainer_state.json")):
            assert process.poll() is None
            time.sleep(0.01)
        path.write_text(original.replace("lr: 1.0e-3", "lr: 2.0e-3"))
        printed = process.communicate()[0]
    assert process.returncode and "Traceback" not in printed
    assert re.search(r"^error: params\.yaml: train\.lr was changed", printed, re.M), printed
    path.write_text(original)
    assert "resuming from" in project.run(*command)
    assert project.repro("train") == []
