"""`make setup` creates the virtual environment. Here, pip is replaced by a program that prints its arguments."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run_command


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a git repository with the files that `make setup` reads."""
    root = tmp_path / "a checkout"
    root.mkdir()
    for name in ("Makefile", ".gitignore", ".dvcignore", "compute.lock", "requirements.lock", "setup"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / name)
    pip = root / "stand-in" / "pip"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text("import sys; print('pip', *sys.argv[1:], 'by', sys.prefix)")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def make_setup(checkout: Path, *arguments: str, python: Path = Path(sys.executable), ok: bool = True) -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "VIRTUAL_ENV")}
    # venv ignores PYTHONPATH and installs the real pip. If that pip is called, it must not download anything.
    env |= {"PYTHONPATH": str(checkout / "stand-in"), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    return run_command("make", f"PYTHON={python}", "setup", *arguments, cwd=checkout, env=env, ok=ok)


@pytest.mark.slow
def test_the_virtual_environment_may_be_a_symbolic_link(checkout: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "venv"
    (checkout / ".venv").symlink_to(Path("..", "elsewhere", "venv"))
    installed = f"pip install --requirement requirements.lock by {checkout / '.venv'}\n"
    assert installed in make_setup(checkout)
    assert (checkout / ".venv").is_symlink()
    assert {"pyvenv.cfg", "ready"} <= {path.name for path in elsewhere.iterdir()}
    assert "pip" not in make_setup(checkout), "the second run has nothing to do"
    assert subprocess.run(["git", "check-ignore", "--quiet", ".venv"], cwd=checkout).returncode == 0
    assert subprocess.run(["dvc", "init", "--quiet"], cwd=checkout).returncode == 0
    ignored = subprocess.check_output(["dvc", "check-ignore", ".venv"], cwd=checkout, text=True)
    assert ignored.strip() == ".venv"


def install_package(site: Path, name: str, version: str, *files: str) -> None:
    """Install a package that consists of empty files."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).touch()
    (site / info).mkdir(parents=True)
    (site / info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    names = [*files, f"{info}/METADATA", f"{info}/RECORD", "../../../bin/a-script"]
    (site / info / "RECORD").write_text("".join(f"{file},,\n" for file in names))


def site_packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


@pytest.fixture
def python_with_torch(tmp_path: Path) -> Path:
    """Make a separate Python environment with a CUDA build of torch and some other packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "machine"], check=True)
    site = site_packages(tmp_path / "machine")
    install_package(site, "torch", "2.11.0+cu128", "torch/__init__.py", "torchgen/__init__.py")
    install_package(site, "nvidia-cublas-cu12", "12.8.4.1", "nvidia/cublas/__init__.py")
    for name in ("triton", "peft", "numpy"):
        install_package(site, name, "1.0", f"{name}/__init__.py")
    return tmp_path / "machine"


def test_only_an_installed_torch_and_its_libraries_are_linked(checkout: Path, python_with_torch: Path) -> None:
    out = make_setup(checkout, "TORCH=installed", python=python_with_torch / "bin" / "python")
    modules = ["torch", "torchgen", "nvidia.cublas", "triton", "peft", "numpy"]
    code = f"""
import importlib.metadata, importlib.util
print(importlib.metadata.version("torch"))
print([name for name in {modules} if importlib.util.find_spec(name)])
"""
    printed = subprocess.check_output([checkout / ".venv/bin/python", "-c", code], text=True)
    assert printed == "2.11.0+cu128\n['torch', 'torchgen', 'nvidia.cublas', 'triton']\n"

    def locked(name: str, root: Path) -> set[str]:
        return set(re.findall(r"^[\w.-]+==\S+$", (root / name).read_text(), re.M))

    all_locked = locked("requirements.lock", ROOT) | locked("compute.lock", ROOT)
    torch = {line for line in all_locked if line.startswith("torch==")}
    assert locked(".venv/requirements.txt", checkout) == all_locked - torch
    assert "--requirement requirements.lock" not in out
    assert "pip install --no-deps --requirement .venv/requirements.txt" in out
    assert locked("compute.lock", checkout) == locked("compute.lock", ROOT) - torch | {"torch==2.11.0"}
    assert "compute.lock" in out, "the output names the changed file"
    assert "pip" not in make_setup(checkout), "the second run has nothing to do"
    # If pip installs another torch, it writes to site-packages, which must not lead to the other environment.
    assert not any(path.is_symlink() for path in site_packages(checkout / ".venv").iterdir())


def test_the_torch_of_an_existing_environment_is_kept_and_cannot_be_replaced(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "torch").write_text("cpu\n")
    (checkout / ".venv" / "ready").touch()
    for arguments in ([], ["TORCH=cpu"]):
        assert "pip" not in make_setup(checkout, *arguments)
    for torch in ("", "installed"):
        assert "Remove it first: rm -rf .venv" in make_setup(checkout, f"TORCH={torch}", ok=False)


def test_an_environment_that_already_has_torch_is_not_changed(checkout: Path, python_with_torch: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    install_package(site_packages(checkout / ".venv"), "torch", "2.13.0", "torch/__init__.py")
    out = make_setup(checkout, "TORCH=installed", python=python_with_torch / "bin" / "python", ok=False)
    assert re.search(r"error: .*\.venv already has its own torch\. Remove the directory first", out)
    assert (checkout / "compute.lock").read_text() == (ROOT / "compute.lock").read_text()
