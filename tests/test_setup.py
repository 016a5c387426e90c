"""`make setup`: the virtual environment that it makes. pip is replaced by a program that records how it was called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git repository with what `make setup` reads."""
    root = tmp_path / "a checkout"
    root.mkdir()
    for name in ("Makefile", ".gitignore", ".dvcignore", "compute.lock", "requirements.lock"):
        shutil.copy(ROOT / name, root)
    pip = root / "stand-in" / "pip"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text("import sys; print('pip', *sys.argv[1:], 'by', sys.prefix)")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def make_setup(checkout: Path, *arguments: str, ok: bool = True) -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "VIRTUAL_ENV")}
    # venv, which brings the real pip, does not look there; should the real one be called, it must not download.
    env |= {"PYTHONPATH": str(checkout / "stand-in"), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    command = ["make", f"PYTHON={sys.executable}", "setup", *arguments]
    done = subprocess.run(command, cwd=checkout, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert (done.returncode == 0) == ok, done.stdout
    return done.stdout


@pytest.mark.parametrize("behind", ["an environment", "an empty directory", "nothing"])
def test_a_virtual_environment_may_lie_behind_a_symbolic_link(behind: str, checkout: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "venv"
    if behind != "nothing":
        elsewhere.mkdir(parents=True)
    if behind == "an environment":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", elsewhere], check=True)
    (checkout / ".venv").symlink_to(Path("..", "elsewhere", "venv"))
    installed = f"pip install --quiet --requirement requirements.lock by {checkout / '.venv'}\n"
    assert installed in make_setup(checkout)
    assert (checkout / ".venv").is_symlink()
    assert {"pyvenv.cfg", "ready"} <= {path.name for path in elsewhere.iterdir()}
    assert "pip" not in make_setup(checkout), "the second time there is nothing to do"
    assert subprocess.run(["git", "check-ignore", "--quiet", ".venv"], cwd=checkout).returncode == 0
    assert subprocess.run(["dvc", "init", "--quiet"], cwd=checkout).returncode == 0
    ignored = subprocess.check_output(["dvc", "check-ignore", ".venv"], cwd=checkout, text=True)
    assert ignored.strip() == ".venv"
