"""dvc.yaml says all that a stage depends on, and the README says what dvc.yaml and params.yaml say."""

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, committed
from packaging.requirements import Requirement

from pipeline.params import Params

DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STAGES: dict[str, Any] = DVC["stages"]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PIPELINE = ROOT / "pipeline"
TOP = {path.stem for path in PIPELINE.glob("*.py")} - {"__init__"}
FOUNDATIONS = {"cli", "params"}  # of every command; DVC tracks the values of params.yaml, and no stage its reader

# What each part may import beside itself. Stages and commands, on top, import any of them, and none of each other.
BELOW = {
    "core": set(),
    "params": {"core"},
    "cli": {"core"},
    "sources": {"core"},
    "evaluation": {"core"},
    "modeling": {"core", "params"},
    "training": {"core", "params", "modeling", "evaluation"},
    "reporting": {"core", "evaluation"},
    "experiments": {"core", "params", "modeling", "evaluation"},
}


def sections() -> dict[str, list[str]]:
    hints = typing.get_type_hints(Params)
    return {name: [f"{name}.{entry.name}" for entry in dataclasses.fields(kind)] for name, kind in hints.items()}


def keys_read(stage: str) -> set[str]:
    """The keys that `main` hands to its stage: `params.predict` is a whole section, `params.train.precision` a key."""
    tree = ast.parse(file(module_of(stage)).read_text())
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


def imports(module: str) -> set[str]:
    """The modules of `pipeline` that one imports, also inside functions, without `pipeline.` before their names."""
    found = set()
    for node in ast.walk(ast.parse(file(module).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pipeline":
            base = str(node.module).removeprefix("pipeline").lstrip(".")
            inner = {f"{base}.{alias.name}".lstrip(".") for alias in node.names}
            found |= {name for name in inner if file(name).exists()} or {base}
        assert not (isinstance(node, ast.Import) and any(alias.name.startswith("pipeline.") for alias in node.names))
    return found


def file(module: str) -> Path:
    return PIPELINE / f"{module.replace('.', '/')}.py"


def reached(module: str) -> set[str]:
    """The modules that one runs: its own and all that it imports."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        if (name := todo.pop()) not in seen:
            seen.add(name)
            todo += imports(name)
    return seen


def part(module: str) -> str:
    return module.partition(".")[0]


ALL = [
    ".".join(path.relative_to(PIPELINE).with_suffix("").parts) for path in PIPELINE.rglob("*.py") if path.stat().st_size
]


@pytest.mark.parametrize("module", ALL)
def test_arrows_point_down(module: str) -> None:
    below = BELOW.get(part(module), BELOW.keys())
    assert {part(name) for name in imports(module)} - {part(module)} <= set(below)


@pytest.mark.parametrize("module", ALL)
def test_no_module_imports_itself_by_way_of_others(module: str) -> None:
    assert not any(module in reached(name) for name in imports(module))


def test_every_package_that_is_imported_is_declared() -> None:
    declared = {Requirement(line).name.lower() for line in PROJECT["project"]["dependencies"]}
    names = {"vl_convert": "vl-convert-python", "ruamel": "ruamel.yaml"}  # modules that are not called as their package
    for module in ALL:
        for node in ast.walk(ast.parse(file(module).read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            tops = {part(name) for name in modules} - sys.stdlib_module_names - {"pipeline"}
            assert {names.get(top, top) for top in tops} <= declared, f"pipeline.{module}"


def test_what_people_run_hides_no_module_of_the_standard_library() -> None:
    """`python pipeline/train.py` puts the directory of train.py before the standard library."""
    assert TOP.isdisjoint(sys.stdlib_module_names)


@pytest.mark.parametrize("stage", STAGES)
def test_every_key_that_a_stage_reads_is_declared(stage: str) -> None:
    read = {key for key in keys_read(stage) if not key.startswith("runtime.")}
    declared = set(STAGES[stage].get("params", []))
    assert {key for key in read if declared.isdisjoint([key, key.split(".")[0]])} == set()
    assert {key for key in declared if not any(key in (of, of.split(".")[0]) for of in read)} == set()


@pytest.mark.parametrize("stage", STAGES)
def test_every_module_that_a_stage_imports_is_a_dependency_and_no_other_is(stage: str) -> None:
    deps = {Path(dep) for dep in STAGES[stage]["deps"] if dep.startswith("pipeline/")}
    files = {file(module).relative_to(ROOT) for module in reached(module_of(stage)) if module not in FOUNDATIONS}
    assert {path for path in files if deps.isdisjoint([path, path.parent])} == set()
    assert {dep for dep in deps if not any(dep in (path, path.parent) for path in files)} == set()


def module_of(stage: str) -> str:
    return str(STAGES[stage]["cmd"].rpartition(" pipeline.")[2])


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_computes_depends_on_the_lock_of_the_packages(stage: str) -> None:
    """Of download and pretrained the content is pinned; the report only shows."""
    computes = stage not in ("download", "pretrained", "report")
    assert ("compute.lock" in STAGES[stage]["deps"]) == computes
    assert ("require_locked()" in file(module_of(stage)).read_text()) == computes


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
    lock = (ROOT / "requirements.lock").read_text()
    assert "-r compute.lock" in lock
    lock += (ROOT / "compute.lock").read_text()
    assert "://" not in lock
    locked = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", lock, re.M))
    versions = {name.lower().replace("_", "-"): version for name, version in locked.items()}
    for line in PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]:
        requirement = Requirement(line)
        assert versions[requirement.name.lower().replace("_", "-")] in requirement.specifier, line


def test_files_the_readme_names_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or Path(ROOT, target).exists(), target
