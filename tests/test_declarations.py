"""dvc.yaml declares everything that a stage depends on, imports point down only, and params.yaml explains every key."""

import ast
import re
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

STAGES: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PIPELINE = ROOT / "pipeline"
MODULES = [".".join(path.relative_to(PIPELINE).with_suffix("").parts) for path in PIPELINE.rglob("*[!_].py")]

# A package may import itself and the ones before it. A command may import all of them, but no other command.
LAYERS = [
    "core", "params", "cli", "sources", "modeling", "evaluation", "training", "reporting", "experiments",
]  # fmt: skip


@cache
def imports(module: str) -> set[str]:
    """Return the modules of the pipeline that a module imports, even in functions, without the prefix `pipeline.`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source_file(module).read_text())):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("pipeline."):
            inner = {f"{node.module}.{alias.name}".removeprefix("pipeline.") for alias in node.names}
            names |= {name for name in inner if source_file(name).exists()} or {str(node.module)[len("pipeline.") :]}
    return names


def source_file(module: str) -> Path:
    return PIPELINE / f"{module.replace('.', '/')}.py"


def reachable_modules(module: str) -> set[str]:
    """Return a module and all modules that it imports, directly or indirectly."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        if (name := todo.pop()) not in seen:
            seen.add(name)
            todo += imports(name)
    return seen


def module_of(stage: str) -> str:
    return str(STAGES[stage]["cmd"].rpartition(" pipeline.")[2])


def test_imports_point_down_only_and_have_no_cycles() -> None:
    for module in MODULES:
        package = module.split(".")[0]
        allowed = LAYERS[: LAYERS.index(package) + 1] if package in LAYERS else LAYERS
        assert {name.split(".")[0] for name in imports(module)} <= {*allowed}, module
        assert not any(module in reachable_modules(name) for name in imports(module)), module


def test_the_init_file_of_every_subpackage_is_empty() -> None:
    assert [path for path in PIPELINE.glob("*/__init__.py") if path.stat().st_size] == []


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - {"check"}))  # It reads nothing but params.yaml.
def test_a_stage_depends_on_the_locked_packages_and_on_the_code_that_it_imports(stage: str) -> None:
    deps = {Path(dep) for dep in STAGES[stage]["deps"]}
    foundations = {"cli", "params"}  # DVC tracks the values in params.yaml, not how they are read.
    code = {source_file(module).relative_to(ROOT) for module in reachable_modules(module_of(stage)) - foundations}
    assert {file for file in code if deps.isdisjoint([file, *file.parents])} == set()
    used = {dep for file in code for dep in (file, *file.parents)}
    assert {dep for dep in deps if dep.parts[0] == "pipeline"} - used == set()
    assert Path("compute.lock") in deps


class Recorder:
    """Stands in for the parameters, and records the keys that are read."""

    def __init__(self, keys: set[str], key: str = "") -> None:
        self._keys, self._key = keys, key

    def __getattr__(self, name: str) -> "Recorder":
        key = f"{self._key}.{name}".lstrip(".")
        self._keys.add(key)
        return Recorder(self._keys, key)


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - {"check"}))
def test_a_stage_declares_the_parameters_that_it_reads(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys: set[str] = set()
    with pytest.raises(Exception):  # noqa: B017 - Its inputs are missing.
        import_module(f"pipeline.{module_of(stage)}").main(Recorder(keys))
    read = {key for key in keys if not any(longer.startswith(f"{key}.") for longer in keys)}
    declared = ("runtime", *STAGES[stage].get("params", []))
    assert {key for key in read if not any(f"{key}.".startswith(f"{name}.") for name in declared)} == set()
    assert read, "the stage reads a parameter before its inputs"


def test_no_stage_depends_on_part_of_another_stages_output_directory() -> None:
    """DVC could not restore it in a clone that never had HEAD's list of the files in that directory."""
    outs = {Path(out) for stage in STAGES.values() for out in stage.get("outs", [])}
    assert not [dep for stage in STAGES.values() for dep in stage["deps"] if not outs.isdisjoint(Path(dep).parents)]


def test_params_yaml_explains_every_key() -> None:
    for before, line in pairwise((ROOT / "params.yaml").read_text().splitlines()):
        assert not re.match(r" +\w+:", line) or "# " in line or before.lstrip().startswith("# "), line
