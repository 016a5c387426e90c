"""The pipeline without what only POSIX systems have. It stands in for Windows, where nothing was run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, TinyMaker, params_file
from test_cli import STAGES
from test_declarations import ALL, TOP
from without_posix import PEAK


def run_hidden(code: str, cwd: Path) -> str:
    """Run code in a process where modules of `pipeline` see no more than they would on Windows."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-c", f"import importlib, without_posix\nwithout_posix.hide()\n{code}"]
    done = subprocess.run(command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_what_is_hidden_is_hidden_from_the_pipeline_alone(tmp_path: Path) -> None:
    package = tmp_path / "pipeline"
    package.mkdir()
    for name, line in (
        ("one", "import fcntl"), ("two", "import os; os.fork"), ("three", "from signal import SIGKILL"),
        ("four", "def f():\n    import resource\nf()"), ("five", "import sys; assert sys.platform != 'win32'"),
    ):  # fmt: skip
        (package / f"{name}.py").write_text(line)
    names = [path.stem for path in package.glob("*.py")]
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import fcntl, multiprocessing.popen_fork, os, signal
os.fork, signal.SIGKILL
for name in {names}:
    try:
        importlib.import_module("pipeline." + name)
    except (ImportError, AttributeError, AssertionError):
        print(name)
"""
    assert run_hidden(code, tmp_path).split() == names


@pytest.mark.slow
def test_every_module_is_imported_without_posix(tmp_path: Path) -> None:
    run_hidden(f"for name in {ALL}: importlib.import_module('pipeline.' + name)", tmp_path)


def test_every_command_shows_its_help_without_posix(tmp_path: Path) -> None:
    commands = sorted(TOP - {"cli", "params"})
    out = run_hidden(
        f"""
import pipeline
for name in {commands}:
    try:
        without_posix.run("pipeline." + name, "--help")
    except SystemExit as end:
        assert not end.code, name
""",
        tmp_path,
    )
    assert out.count("usage: ") == len(commands) - 1  # the list of commands has no usage


@pytest.mark.slow
def test_every_stage_runs_without_posix(tiny: TinyMaker, tmp_path: Path) -> None:
    params_file(tmp_path, {"model.checkpoint": tiny()})
    (tmp_path / "metrics").mkdir()
    for name in ("metrics/baseline.json", "dvc.yaml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    run_hidden(f"import pipeline\nfor name in {STAGES}: without_posix.run('pipeline.' + name)", tmp_path)
    timing = json.loads((tmp_path / "metrics" / "timing.json").read_text())
    assert {entry["peak_memory_mib"] for entry in timing.values()} == {PEAK / 2**20}
