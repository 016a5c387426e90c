"""dvc.yaml says all that a stage depends on, and the README says what dvc.yaml and params.yaml say."""

import ast
import dataclasses
import re
import subprocess
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, committed

from pipeline import train
from pipeline.params import Params

DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STAGES: dict[str, Any] = DVC["stages"]
README = (ROOT / "README.md").read_text()

# Keys that cannot change an output of a stage that reads them, so that changing them reruns nothing.
HARMLESS = {
    "tokenize.num_proc": "the rows are put together in order; test_tokenize holds the bytes equal",
    "train.dataloader_num_workers": "the batches are drawn in the main process; test_train holds the weights equal",
    "train.report_to": "only where the curves are sent to",
    "launch.timeout": "only when a run is given up",
    "train.save_steps": "a run resumes to the same bytes from any checkpoint; test_resume holds them equal",
}


def sections() -> dict[str, list[str]]:
    hints = typing.get_type_hints(Params)
    return {name: [f"{name}.{entry.name}" for entry in dataclasses.fields(kind)] for name, kind in hints.items()}


def keys_read(stage: str) -> set[str]:
    """The keys that `main` hands to its stage: `params.predict` is a whole section, `params.train.precision` a key."""
    tree = ast.parse((ROOT / "pipeline" / f"{stage}.py").read_text())
    main = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    read = set()
    inner = set()
    for node in ast.walk(main):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            inner.add(node.value)
            read.add(f"{node.value.attr}.{node.attr}")
    for node in ast.walk(main):
        if isinstance(node, ast.Attribute) and node not in inner and ast.unparse(node.value) == "params":
            read |= set(sections()[node.attr])
    return read


def modules(stage: str) -> set[str]:
    """The files of `pipeline` that a stage runs: its own and all that it imports, also inside functions."""
    seen: set[str] = set()
    todo = [stage]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in ast.walk(ast.parse((ROOT / "pipeline" / f"{name}.py").read_text())):
            if isinstance(node, ast.Import):
                todo += [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("pipeline.")]
            elif isinstance(node, ast.ImportFrom) and node.module == "pipeline":
                todo += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pipeline."):
                todo.append(str(node.module).split(".")[1])
    return {f"pipeline/{name}.py" for name in seen}


def beside(stage: str) -> set[str]:
    """The files of `pipeline` that are no modules and bear the stage's name: its page, the script of its page."""
    return {f"pipeline/{path.name}" for path in (ROOT / "pipeline").glob(f"{stage}.*") if path.suffix != ".py"}


@pytest.mark.parametrize("stage", STAGES)
def test_every_key_that_a_stage_reads_is_declared(stage: str) -> None:
    assert set(STAGES[stage].get("params", [])) == keys_read(stage) - set(HARMLESS)


def test_no_key_but_those_that_rerun_nothing_may_change_before_a_run_resumes() -> None:
    assert {f"train.{name}" for name in train._HARMLESS} == {key for key in HARMLESS if key.startswith("train.")}


@pytest.mark.parametrize("stage", STAGES)
def test_every_module_that_a_stage_imports_is_a_dependency(stage: str) -> None:
    assert {dep for dep in STAGES[stage]["deps"] if dep.startswith("pipeline/")} == modules(stage) | beside(stage)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_computes_depends_on_the_lock_of_the_packages(stage: str) -> None:
    """Of download and pretrained the content is pinned; the report only shows."""
    computes = stage not in ("download", "pretrained", "report")
    assert ("compute.lock" in STAGES[stage]["deps"]) == computes
    assert ("require_locked()" in (ROOT / "pipeline" / f"{stage}.py").read_text()) == computes


def test_params_yaml_says_what_each_key_means() -> None:
    for line in committed("params.yaml").splitlines():
        if re.match("  [a-z]", line):
            assert "#" in line or "checkpoint" in line or line.split(":")[0].strip() in SELF_EXPLAINING, line


SELF_EXPLAINING = {"epochs", "weight_decay", "torch_compile"}


def table(heading: str, readme: str = README) -> list[list[str]]:
    """The cells of the first table below a heading of the README, without its own heading and rule."""
    section = readme.split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_readmes_stages_are_those_of_dvc_yaml() -> None:
    rows = {cells[0].strip("`"): cells[1:] for cells in table("The pipeline")}
    assert list(rows) == list(STAGES)
    for name, (desc, outs) in rows.items():
        assert desc == STAGES[name]["desc"]
        stage = STAGES[name]
        entries = [out for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
        written = [out if isinstance(out, str) else next(iter(out)) for out in entries]
        assert re.findall("`([^`]+)`", outs) == written


def test_the_readmes_picture_is_that_of_dvc_dag() -> None:
    drawn = set(re.findall(r"^    (\w+)-->(\w+)$", README, re.M))
    lines = subprocess.check_output(["dvc", "dag", "--dot"], cwd=ROOT, text=True).splitlines()
    assert drawn == {tuple(re.findall(r'"(\w+)"', line)) for line in lines if "->" in line}


def test_the_readmes_parameters_are_those_of_params_yaml() -> None:
    rows = table("Parameters")
    assert [cells[0].strip("`") for cells in rows] == [key for keys in sections().values() for key in keys]
    assert all(len(meaning) > 10 for _, _, meaning in rows)


def test_the_readmes_defaults_are_those_of_params_yaml() -> None:
    tree = yaml.safe_load(committed("params.yaml"))
    for key, default, _ in table("Parameters", committed("README.md")):
        section, name = key.strip("`").split(".")
        assert yaml.safe_load(default.strip("`")) == tree[section][name], key


def test_the_lock_has_what_pyproject_asks_for_and_no_addresses() -> None:
    import tomllib

    from packaging.requirements import Requirement

    lock = (ROOT / "requirements.lock").read_text()
    assert "-r compute.lock" in lock
    lock += (ROOT / "compute.lock").read_text()
    assert "://" not in lock
    locked = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", lock, re.M))
    versions = {name.lower().replace("_", "-"): version for name, version in locked.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for line in project["project"]["dependencies"] + project["dependency-groups"]["dev"]:
        requirement = Requirement(line)
        assert versions[requirement.name.lower().replace("_", "-")] in requirement.specifier, line


def test_files_the_readme_names_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or Path(ROOT, target).exists(), target
