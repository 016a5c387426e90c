"""The commands in README.md turn a CSV into a report, and all other commands still work."""

import csv
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, TinyMaker, run_command
from demo_pairs import pairs

ROWS = 200


def commands(page: str, start: str) -> list[str]:
    """Return the commands in the code block of a page that starts with the given text."""
    block = re.search(rf"```\n({re.escape(start)}.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert block
    text = re.sub(r"\s*\\\n\s*|  +#.*", " ", block[1]).replace(" && ", "\n")
    return [line.strip() for line in text.strip().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(2400)  # it runs the pipeline three times
def test_a_csv_becomes_a_report_and_all_commands_work_in_a_repository_with_the_users_data(
    tiny: TinyMaker, tmp_path: Path
) -> None:
    root = tmp_path / "a checkout"
    subprocess.run(["git", "clone", "--quiet", ROOT, root], check=True)
    (root / ".venv").symlink_to(sys.prefix)
    (tmp_path / "home").mkdir()
    env = os.environ | {"HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    for variable in ("TQDM_DISABLE", "MAKEFLAGS"):
        env.pop(variable, None)

    run = functools.partial(run_command, cwd=root, env=env)

    def make(target: str, ok: bool = True) -> str:
        return run("make", "--old-file=.venv/ready", target, ok=ok)  # installs nothing

    run("git", "config", "user.name", "A")
    run("git", "config", "user.email", "a@example.org")
    with (tmp_path / "home" / "my.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["question", "answer", "category"])
        rows.writerows((first, second, ["no", "yes"][label]) for first, second, label in pairs(ROWS))
    [dry_run] = commands("README.md", "python -m pipeline.init ~/my.csv --dry-run")
    *typed, first_look, add, commit, _classify = commands("README.md", "python -m pipeline.init ~/my.csv --fresh")
    small = f"-S 'model.checkpoint={tiny()}' -S train.epochs=1 -S train.metric_for_best_model=accuracy"
    settings = f"{small} -S 'train.class_weights={{no: 1, yes: 2}}'"
    experiment = f"{first_look.partition(' -S model.checkpoint=')[0]} {settings}"
    out = run("bash", "-ec", "\n".join([". .venv/bin/activate", dry_run, *typed, experiment]))
    assert 'Text: "question" and "answer"' in out
    assert re.search(r"^rows +160 +20 +20$", out, re.M)
    report = (root / "metrics" / "report.html").read_text()
    assert "20 test pairs" in report
    assert "yes" in report

    out = make("verify", ok=False)  # the data are committed, but not the run
    assert re.search(r'^error: HEAD has no dvc\.lock .*Run "dvc repro", and commit', out, re.M)
    assert "Running stage" not in out
    run("bash", "-ec", f"{add}\n{commit}")
    out = make("verify")
    assert re.search(r"All \d+ outputs match the committed ones byte for byte\.", out)
    assert "DIFFERS" not in out
    python = ".venv/bin/python"
    assert "Running stage" not in run(python, "-m", "dvc", "repro"), "the settings stay in params.yaml"

    out = run(python, "-m", "pipeline.seeds", "--n", "2")
    [group] = re.findall(r"pipeline\.compare (\S+) OTHER", out)
    assert f"{group}-2: epoch 1/1: training loss" in out
    out = run(python, "-m", "pipeline.compare", f"{group}-1", f"{group}-2")
    assert re.search(r"^train\.seed +1 +2$", out, re.M)
    assert re.search(r"^Verdict: (no |these two models differ)", out, re.M)
    out = run(python, "-m", "pipeline.compare", group, group, "--format", "md")
    assert out.startswith("**No difference: the predictions are identical**")

    make("demo")
    predictions = pq.read_table(root / "demo" / "data" / "predictions" / "test.parquet").to_pylist()
    accuracy = np.mean([row["prediction"] == row["label"] for row in predictions])
    assert accuracy > 0.88, "A model that only sees the proportion of shared words has at most 0.73."
    assert run("git", "status", "--porcelain", "--untracked-files=no") == ""
