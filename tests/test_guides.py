"""The commands in the guides that no other test runs."""

import copy
import shlex
from pathlib import Path

import pytest
from conftest import Project
from test_tutorial import commands


@pytest.mark.slow
def test_a_clone_gets_the_results_from_a_remote(project: Project, tmp_path: Path) -> None:
    project.repro()
    remote = tmp_path / "shared dvc"
    project.run("dvc", "remote", "add", "-d", "storage", str(remote))
    project.commit("A result")
    project.run("dvc", "push", "--run-cache")

    clone = copy.copy(project)
    clone.root = tmp_path / "clone"
    project.git("clone", "--quiet", ".", str(clone.root))
    clone.run("dvc", "pull", "--run-cache")
    assert clone.repro() == []
    clone.set("predict.max_samples", "100")
    assert clone.repro() == ["check", "predict", "evaluate", "report"]
    out = clone.run("python", "-m", "pipeline.compare", "main", "main")
    assert "the predictions are identical" in out


@pytest.mark.slow
def test_the_commands_in_the_guides_work(project: Project) -> None:
    def run_commands(page: str, start: str, **replacements: str) -> list[str]:
        outputs = []
        for command in commands(page, start):
            for old, new in replacements.items():
                command = command.replace(old, new)
            outputs.append(project.run("bash", "-ec", command if "dvc gc" not in command else f"yes | {command}"))
        return outputs

    *_, second, _, _ = run_commands("docs/your_repository.md", "dvc repro\ncp")
    assert "Running stage 'report'" in second and "Running stage 'train'" not in second
    assert project.git("status", "--porcelain") == ""

    project.commit("nothing is left to add")
    *_, experiment, diff, verdict = run_commands("docs/quick_start.md", "dvc exp run -S train.lr=5e-5")
    assert "Running stage 'train'" in experiment and "Running stage 'tokenize'" not in experiment
    assert "metrics/evaluation.json" in diff
    assert "Verdict:" in verdict
    project.run(*shlex.split("dvc plots diff main"))
    project.run(*shlex.split("git checkout params.yaml"))
    assert "Running stage 'train'" not in project.run("dvc", "repro"), "the earlier result comes from the cache"

    out = project.root.parent / "model"
    tag, get = commands("docs/data_and_models.md", "git tag -a classifier@v1.0.0")
    project.run(*shlex.split(tag))
    project.run(*shlex.split(get.replace("URL-OF-YOUR-REPOSITORY", ".")), "--out", str(out))
    assert (out / "model.safetensors").is_file()

    [name] = project.git("for-each-ref", "--format=%(refname:lstrip=4)", "refs/exps/*/*/*").split()
    cache = project.root / ".dvc" / "cache"
    before = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    run_commands("docs/costs.md", "dvc exp remove NAME", NAME=name)
    assert sum(file.stat().st_size for file in cache.rglob("*") if file.is_file()) < before
    assert project.repro() == [], "the data that HEAD needs is still in the cache"
