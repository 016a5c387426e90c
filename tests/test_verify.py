"""`make verify`: the committed result can be had again, or it is said why not."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import Project, committed

from pipeline.stage import UserError
from pipeline.verify import compare, verify


def checkout(directory: Path) -> Path:
    """What of this project's own committed result is compared."""
    (directory / "metrics").mkdir(parents=True)
    for name in ("dvc.lock", "metrics/environment.json", "metrics/evaluation.json"):
        (directory / name).write_text(committed(name))
    return directory


def changed(path: Path, **entries: str) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def other_weights(here: Path) -> None:
    lock = yaml.safe_load((here / "dvc.lock").read_text())
    lock["stages"]["train"]["outs"][-1]["md5"] = "0" * 32
    (here / "dvc.lock").write_text(yaml.safe_dump(lock))


@pytest.mark.slow
def test_a_fresh_clone_at_another_path_gives_the_committed_bytes(project: Project) -> None:
    project.repro()
    project.commit("a result")
    out = project.run("python", "-m", "pipeline.verify")
    assert "All 17 outputs are the committed ones, byte for byte." in out
    assert "DIFFERS" not in out
    assert out.count("same\n") == 17
    assert project.git("status", "--porcelain") == ""


def test_other_bits_in_the_same_environment_are_an_error(tmp_path: Path) -> None:
    here = checkout(tmp_path / "here")
    other_weights(here)
    with pytest.raises(UserError, match=r"1 of 17 outputs differ from the committed dvc\.lock in the same environment"):
        compare(checkout(tmp_path / "committed"), here)


def test_other_bits_in_another_environment_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = checkout(tmp_path / "here")
    other_weights(here)
    changed(here / "metrics" / "environment.json", torch="9.9.9")
    evaluation = json.loads((here / "metrics" / "evaluation.json").read_text())
    before = evaluation["test"]["f1"]
    evaluation["test"]["f1"] = 0.5
    (here / "metrics" / "evaluation.json").write_text(json.dumps(evaluation))
    compare(checkout(tmp_path / "committed"), here)
    out = capsys.readouterr().out
    assert "DIFFERS" in out
    assert "when committed, 9.9.9 here" in out
    assert f"test.f1: {before} -> 0.5" in out


def test_without_a_committed_result_there_is_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be cloned; verify runs in a git repository with a commit"):
        verify(tmp_path / "nowhere")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    with pytest.raises(UserError, match=r'HEAD has no dvc\.lock to compare with; run "dvc repro"'):
        verify(tmp_path)
