"""The CI workflow: its permissions, and its pipeline job, whose shell commands run here."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, Project

FILE = ROOT / ".github" / "workflows" / "ci.yml"
JOBS: dict[str, Any] = yaml.safe_load(FILE.read_text())["jobs"]
STEPS = {step["name"]: step for step in JOBS["pipeline"]["steps"] if "name" in step}


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


def test_the_pipeline_job_uses_the_settings_of_the_demo() -> None:
    recipe = (ROOT / "Makefile").read_text()
    demo = recipe.split("\ndemo:")[1].split("\n\n")[0]
    minilm = re.findall(r"^MINILM := (.*)$", recipe, re.M)[0]
    demo_params = [param.replace("$(MINILM)", minilm) for param in re.findall(r"--set-param (\S+)", demo)]
    settings = STEPS["Run the base and the pull request"]["env"]["SETTINGS"]
    assert re.findall(r"--set-param (\S+)", settings) == demo_params


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


@pytest.mark.slow  # takes 15 seconds, and each pull request does the same
def test_the_pipeline_job_compares_a_merge_with_its_base(tmp_path: Path, module_toy: Project) -> None:
    project = module_toy
    project.git("checkout", "--quiet", "-b", "change")
    code = project.root / "toy.py"
    code.write_text(code.read_text().replace("die < 0.7 +", "die < 0.9 +"))
    project.commit("a luckier die")
    project.git("checkout", "--quiet", "main")
    project.git("merge", "--quiet", "--no-ff", "change")
    project.git("checkout", "--quiet", "--detach")  # as actions/checkout leaves it
    outputs = tmp_path / "outputs"
    env = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "RUNNER_TEMP": str(tmp_path)}
    env["GITHUB_OUTPUT"] = str(outputs)

    def run(name: str, gate: str = "", b: str = "pull-request", ok: bool = True) -> None:
        shell = STEPS[name]["run"].replace("make setup", "true")  # the packages are installed already
        shell = shell.replace("pull-request --md --gate", f"{b} --md --gate")
        project.run("bash", "-e", "-c", shell, **env, **{**STEPS[name].get("env", {}), "GATE": gate}, ok=ok)

    run("Run the base and the pull request")
    run("Compare")
    assert outputs.read_text() in ("gate=0\n", "gate=3\n")
    run("Gate", outputs.read_text().strip().removeprefix("gate="))
    text = (tmp_path / "summary.md").read_text()
    assert text == (tmp_path / "comparison.md").read_text()
    assert "**These two models differ: +" in text
    assert re.search(r"^\| test accuracy \| \d\d\.\d\d \| \d\d\.\d\d \| \+\d+\.\d\d \| ", text, re.M)
    assert re.search(r"^\| metrics/evaluation\.json +\| test\.accuracy +\|", text, re.M)
    assert text.count("<details>") == text.count("</details>")
    assert re.search(r"^The gate (passes|is undecided about) pull-request", text, re.M)
    outputs.unlink()
    run("Compare", b="nowhere")
    assert outputs.read_text() == "gate=1\n", "an error is not mistaken for a verdict, and the comment shows it"
    assert '"nowhere" is not a branch' in (tmp_path / "comparison.md").read_text()
    for failing in ("1", "4"):
        run("Gate", failing, ok=False)
    assert project.git("status", "--porcelain") == ""
