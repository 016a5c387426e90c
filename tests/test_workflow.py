"""The permissions of the CI workflow, and `make table`."""

import re
from pathlib import Path
from typing import Any

import yaml
from conftest import ROOT, Project

FILE = ROOT / ".github" / "workflows" / "ci.yml"
JOBS: dict[str, Any] = yaml.safe_load(FILE.read_text())["jobs"]


def test_only_the_job_without_code_from_the_pull_request_may_write() -> None:
    assert yaml.safe_load(FILE.read_text())["permissions"] == {"contents": "read"}
    assert {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job} == {
        "comment": {"pull-requests": "write"}
    }
    uses = [step.get("uses", "") for step in JOBS["comment"]["steps"]]
    assert not any(re.match("actions/checkout", action) for action in uses)
    for job in JOBS.values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), "an expression could inject shell commands"


def test_the_table_includes_the_experiments_of_earlier_commits(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", tmp_path / "no checkpoint", tmp_path / "home")
    for number in (1, 2):
        project.env["GIT_COMMITTER_DATE"] = f"2026-01-0{number}T12:00:00Z"  # the newest experiment comes first
        base = project.git("rev-parse", "HEAD").strip()
        project.set("train.lr", f"{number}e-4")
        project.commit("an experiment")
        project.git("update-ref", f"refs/exps/{base[:2]}/{base[2:]}/of-commit-{number}", "HEAD")
        project.git("reset", "--quiet", "--hard", base)
        project.commit(f"later {number}")
    table = project.run("make", "--old-file=setup", "table")  # setup would install the packages
    assert re.findall(r"\[(of-commit-\d)\]", table) == ["of-commit-2", "of-commit-1"]
