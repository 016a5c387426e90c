"""dvc.yaml declares everything that a stage depends on, and params.yaml explains every key."""

import ast
import re
import runpy
import sys
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement

from pipeline.params import Params, keys_of

DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STAGES: dict[str, Any] = DVC["stages"]
PARAMS_YAML = (ROOT / "params.yaml").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PIPELINE = ROOT / "pipeline"
TOP_LEVEL = {path.stem for path in PIPELINE.glob("*.py")} - {"__init__"}
# Every command uses these modules. DVC tracks the values in params.yaml, not the code that reads them.
FOUNDATIONS = {"cli", "params"}

# What each package may import besides itself. Stages and commands may import all these packages, but not each other.
ALLOWED_IMPORTS = {
    "core": set(),
    "params": {"core"},
    "cli": {"core"},
    "sources": {"core", "params", "tabular"},
    "tabular": {"core"},
    "evaluation": {"core"},
    "modeling": {"core", "params"},
    "training": {"core", "params", "modeling", "evaluation"},
    "reporting": {"core", "evaluation"},
    "experiments": {"core", "params", "sources", "modeling", "evaluation"},
    "cleaning": {"core", "params", "tabular", "sources", "evaluation", "reporting"},
    "onboarding": {"core", "params", "tabular", "sources", "modeling", "training", "evaluation"},
}


def keys_read(stage: str) -> set[str]:
    """Return the keys that `main` passes to its stage. `params.predict` stands for all keys of that section."""
    tree = ast.parse(source_file(module_of(stage)).read_text())
    main = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    read = set()
    inner = set()
    for node in ast.walk(main):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            inner.add(node.value)
            read.add(f"{node.value.attr}.{node.attr}")
    for node in ast.walk(main):
        if isinstance(node, ast.Attribute) and node not in inner and ast.unparse(node.value) == "params":
            read |= set(keys_of(node.attr))
    return read


@cache
def imports(module: str) -> set[str]:
    """Return the `pipeline` modules that a module imports, even in functions, without the prefix `pipeline.`."""
    imported = set()
    for node in ast.walk(ast.parse(source_file(module).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pipeline":
            base = str(node.module).removeprefix("pipeline").lstrip(".")
            inner = {f"{base}.{alias.name}".lstrip(".") for alias in node.names}
            imported |= {name for name in inner if source_file(name).exists()} or {base}
        assert not (isinstance(node, ast.Import) and any(alias.name.startswith("pipeline.") for alias in node.names))
    return imported


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


def top_level_name(module: str) -> str:
    return module.partition(".")[0]


MODULES = [
    ".".join(path.relative_to(PIPELINE).with_suffix("").parts) for path in PIPELINE.rglob("*.py") if path.stat().st_size
]


def test_imports_follow_the_layers() -> None:
    for module in MODULES:
        allowed = ALLOWED_IMPORTS.get(top_level_name(module), ALLOWED_IMPORTS.keys())
        assert {top_level_name(name) for name in imports(module)} - {top_level_name(module)} <= set(allowed), module


def test_there_are_no_import_cycles() -> None:
    for module in MODULES:
        assert not any(module in reachable_modules(name) for name in imports(module)), module


def test_every_imported_package_is_declared() -> None:
    extras = [line for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines]
    declared = {Requirement(line).name.lower() for line in PROJECT["project"]["dependencies"] + extras}
    names = {
        "mlflow": "mlflow-skinny",
        "ruamel": "ruamel.yaml",
        "sklearn": "scikit-learn",
        "vl_convert": "vl-convert-python",
        "yaml": "pyyaml",
    }  # module -> package, if the names differ
    for module in MODULES:
        for node in ast.walk(ast.parse(source_file(module).read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            tops = {top_level_name(name) for name in modules} - sys.stdlib_module_names - {"pipeline"}
            assert {names.get(top, top) for top in tops} <= declared, f"pipeline.{module}"


def test_no_command_shadows_a_standard_library_module() -> None:
    """`python pipeline/train.py` puts pipeline/ before the standard library on sys.path."""
    assert TOP_LEVEL.isdisjoint(sys.stdlib_module_names)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_declares_exactly_the_keys_that_it_reads(stage: str) -> None:
    read = {key for key in keys_read(stage) if not key.startswith("runtime.")}
    declared = set(STAGES[stage].get("params", []))
    assert {key for key in read if declared.isdisjoint([key, key.split(".")[0]])} == set()
    assert {key for key in declared if not any(key in (name, name.split(".")[0]) for name in read)} == set()


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - {"check"}))  # check reads all keys
def test_the_help_of_a_stage_names_the_keys_that_it_declares(
    stage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tracked = {key for section in Params.model_fields.keys() - {"runtime"} for key in keys_of(section)}
    declared = STAGES[stage].get("params", [])
    monkeypatch.setattr(sys, "argv", [stage, "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(source_file(module_of(stage))), run_name="__main__")
    printed_keys = set(re.findall(r"\b[a-z]+\.[a-z0-9_]+\b", capsys.readouterr().out))
    assert printed_keys & tracked == set(keys_of(*declared))


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_exactly_the_modules_that_it_imports(stage: str) -> None:
    deps = {Path(dep) for dep in STAGES[stage]["deps"] if dep.startswith("pipeline/")}
    files = {
        source_file(module).relative_to(ROOT)
        for module in reachable_modules(module_of(stage))
        if module not in FOUNDATIONS
    }
    assert {path for path in files if deps.isdisjoint([path, path.parent])} == set()
    unused = {dep for dep in deps if not any(dep in (path, path.parent) for path in files)}
    assert unused - (model_code() if stage == "check" else set()) == set()


def model_code() -> set[Path]:
    deps = {dep for name in ("download", "pretrained", "tokenize", "train") for dep in STAGES[name]["deps"]}
    return {Path(dep) for dep in deps if dep.startswith("pipeline/")}


def test_check_runs_whenever_the_model_could_change() -> None:
    """It removes the scores of the previous model. DVC never restores a stage with a persistent output."""
    check = STAGES["check"]
    assert {STAGES["download"]["deps"][0], *map(str, model_code())} <= set(check["deps"])
    assert check["outs"] == [{"data/params_checked": {"persist": True}}]


def test_no_stage_depends_on_part_of_another_stages_output_directory() -> None:
    """To restore an experiment from the cache, DVC would look for such a part in the directory's list of files.

    It uses the list of the directory at HEAD, and fails in a clone that never had that list.
    """
    outs = {
        Path(next(iter(out)) if isinstance(out, dict) else out)
        for stage in STAGES.values()
        for out in stage.get("outs", [])
    }
    deps = {Path(dep) for stage in STAGES.values() for dep in stage["deps"]}
    assert {dep for dep in deps if not outs.isdisjoint(dep.parents)} == set()


def module_of(stage: str) -> str:
    return str(STAGES[stage]["cmd"].rpartition(" pipeline.")[2])


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_depends_on_compute_lock_and_checks_it(stage: str) -> None:
    assert "compute.lock" in STAGES[stage]["deps"]
    assert "require_locked()" in source_file(module_of(stage)).read_text()


@pytest.mark.parametrize("stage", [name for name in STAGES if name != "check" and "params" in STAGES[name]])
def test_a_stage_ends_by_checking_that_its_parameters_are_unchanged(stage: str) -> None:
    """DVC reads them again after the stage has ended, and would record the new ones for the old output."""
    tree = ast.parse(source_file(module_of(stage)).read_text())
    [main] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    last = [node for node in main.body if isinstance(node, ast.Expr)][-1]
    assert ast.unparse(last) == f"require_unchanged(params, {STAGES[stage]['params']})"


def test_params_yaml_explains_every_key() -> None:
    for before, line in pairwise(PARAMS_YAML.splitlines()):
        if re.match(r" +\w+:", line):
            assert "# " in line or before.lstrip().startswith("# "), line


def test_the_lock_files_satisfy_pyproject_and_have_no_urls() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "-r compute.lock" in lock
    lock += (ROOT / "compute.lock").read_text()
    assert "://" not in lock
    locked = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", lock, re.M))
    versions = {name.lower().replace("_", "-"): version for name, version in locked.items()}
    for line in PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]:
        requirement = Requirement(line)
        assert versions[requirement.name.lower().replace("_", "-")] in requirement.specifier, line
