"""`make verify`: the committed result is reproduced, or the command says why not."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, Project

from pipeline.core.messages import UserError
from pipeline.verify import Result, compare, read_result, verify

OUTS = {
    "download": ["data/raw"],
    "pretrained": ["models/pretrained"],
    "tokenize": ["data/tokenized"],
    "train": ["models/classifier", "metrics/environment.json"],
    "predict": ["data/predictions"],
    "evaluate": ["metrics/evaluation.json"],
    "report": ["metrics/report.html"],
}


class Checkout:
    """The compared parts of a checkout: dvc.lock, environment and scores."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "metrics").mkdir(parents=True)
        self.hashes = {path: path.encode().hex().ljust(32, "0") for outs in OUTS.values() for path in outs}
        self.environment = {"cpu": "a CPU", "torch": "2.13.0", "threads": 2}
        self.scores = {split: {"accuracy": 0.86, "f1": 0.9, "loss": 0.4, "n": 408} for split in ("test", "validation")}

    def result(self) -> Result:
        stages = {
            stage: {
                "cmd": "",
                "outs": [{"path": path, "md5": self.hashes[path]} for path in outs if path in self.hashes],
            }
            for stage, outs in OUTS.items()
        }
        (self.root / "dvc.lock").write_text(yaml.safe_dump({"stages": stages}))
        (self.root / "metrics" / "environment.json").write_text(json.dumps([self.environment]))
        (self.root / "metrics" / "evaluation.json").write_text(json.dumps(self.scores))
        return read_result(self.root)


@pytest.fixture
def committed(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "committed")


@pytest.fixture
def reproduced(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "reproduced")


def on_another_cpu(reproduced: Checkout) -> None:
    reproduced.environment["cpu"] = "another CPU"
    for path in reproduced.hashes:
        if path.startswith(("models/classifier", "metrics", "data/predictions")):
            reproduced.hashes[path] = "f" * 32


@pytest.mark.slow
def test_a_fresh_clone_at_another_path_gives_the_committed_bytes(project: Project) -> None:
    project.repro()
    project.commit("a result")
    out = project.run("python", "-m", "pipeline.verify")
    assert re.search(r"All \d+ outputs are the committed ones, byte for byte\.", out)
    assert "DIFFERS" not in out
    assert project.git("status", "--porcelain") == ""


def test_identical_results_are_reported_as_the_same(
    committed: Checkout, reproduced: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(committed.result(), reproduced.result())
    out = capsys.readouterr().out
    assert out.count("same\n") == 8
    assert "All 8 outputs are the committed ones, byte for byte." in out


def test_on_another_cpu_the_scores_are_compared_and_differences_reported(
    committed: Checkout, reproduced: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    on_another_cpu(reproduced)
    reproduced.scores["test"]["accuracy"] += 0.006
    reproduced.scores["validation"]["f1"] -= 0.0299
    compare(committed.result(), reproduced.result())
    out = capsys.readouterr().out
    assert "from another environment than this one:" in out
    assert re.search(r"^cpu +a CPU +another CPU$", out, re.M)
    assert not re.search("^torch", out, re.M), "it is the same"
    assert re.search(r"^test accuracy +86\.00 +86\.60 +\+0\.60$", out, re.M)
    assert "The committed result is reproduced" in out


@pytest.mark.parametrize(
    ("split", "name", "title", "sign"), [("test", "accuracy", "accuracy", 1), ("validation", "f1", "F1", -1)]
)
def test_a_larger_difference_of_a_score_is_an_error_on_another_cpu_too(
    split: str, name: str, title: str, sign: int, committed: Checkout, reproduced: Checkout
) -> None:
    on_another_cpu(reproduced)
    reproduced.scores[split][name] += sign * 0.0301
    moved = re.escape(f"{sign * 3.01:+.2f}")
    with pytest.raises(UserError, match=rf"^{split} {title} .*{moved} points"):
        compare(committed.result(), reproduced.result())


@pytest.mark.parametrize("path", ["data/raw", "models/pretrained", "data/tokenized"])
def test_data_checkpoint_and_tokens_must_be_the_same_on_every_cpu(
    path: str, committed: Checkout, reproduced: Checkout
) -> None:
    on_another_cpu(reproduced)
    reproduced.hashes[path] = "0" * 32
    with pytest.raises(UserError, match=rf"^{path} differs .* on every CPU; .*make setup"):
        compare(committed.result(), reproduced.result())


@pytest.mark.parametrize("side", ["committed", "reproduced"])
def test_an_output_missing_on_one_side_is_an_error_on_another_cpu_too(
    side: str, committed: Checkout, reproduced: Checkout
) -> None:
    on_another_cpu(reproduced)
    del (committed if side == "committed" else reproduced).hashes["models/classifier"]
    with pytest.raises(UserError, match=r"^models/classifier of stage train is missing on one side"):
        compare(committed.result(), reproduced.result())


def test_other_bytes_in_the_same_environment_are_an_error(committed: Checkout, reproduced: Checkout) -> None:
    reproduced.hashes["models/classifier"] = "f" * 32
    with pytest.raises(UserError, match=r"1 of 8 outputs differ from the committed dvc\.lock in the same environment"):
        compare(committed.result(), reproduced.result())


def test_committed_text_forges_no_line(
    committed: Checkout, reproduced: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    on_another_cpu(reproduced)
    committed.environment["cpu"] = "x\x1b[2K\nAll 8 outputs are the committed ones, byte for byte."
    compare(committed.result(), reproduced.result())
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("All")]


def test_without_a_committed_result_there_is_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be cloned; verify runs at the top of a git repository with a commit"):
        verify(tmp_path / "nowhere")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    with pytest.raises(UserError, match=r'HEAD has no dvc\.lock to compare with; run "dvc repro"'):
        verify(tmp_path)


IDENTITY = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
COPY = """
import json, os, pathlib, shutil
shutil.copy(pathlib.Path(os.environ["MRPC_MIRROR"], "corpus.txt"), "corpus.txt")
pathlib.Path("metrics").mkdir(exist_ok=True)
pathlib.Path("metrics/evaluation.json").write_text("{}")
pathlib.Path("metrics/environment.json").write_text("[{}]")
"""


@pytest.fixture
def copying(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a repository with a stage that copies a file from the mirror, and a stage that reads it."""
    root = tmp_path / "copying"
    (root / "mirror").mkdir(parents=True)
    (root / "mirror" / "corpus.txt").write_text("as committed")
    (root / ".gitignore").write_text("/mirror\n")
    (root / "mirrored.py").write_text(COPY)
    metrics = [{f"metrics/{name}.json": {"cache": False}} for name in ("environment", "evaluation")]
    stage = {"cmd": f'"{sys.executable}" mirrored.py', "deps": ["mirrored.py"], "outs": ["corpus.txt", *metrics]}
    deps = ["corpus.txt", "packages.lock"]
    score = {"cmd": "wc corpus.txt > words.txt", "deps": deps, "params": ["train.lr"], "outs": ["words.txt"]}
    (root / "packages.lock").write_text("torch==1\n")
    (root / "params.yaml").write_text("train: {lr: 1}\n")
    (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"download": stage, "score": score}}))
    # A mirror relative to the repository, and the variable that DVC sets for a stage.
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MRPC_MIRROR": "mirror", "DVC_ROOT": str(root)}
    env["GIT_CONFIG_GLOBAL"] = os.devnull  # the user's may sign commits, or name hooks

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)

    for command in (
        ["git", "init", "--quiet"],
        ["dvc", "init", "--quiet"],
        ["dvc", "config", "core.check_update", "false"],  # as in the project: no process that outlives the command
        ["dvc", "repro", "--quiet"],
        ["git", "add", "--all"],
        ["git", *IDENTITY, "commit", "--quiet", "--message", "a result"],
    ):
        done = run(*command)
        assert done.returncode == 0, done.stderr
    return run


def test_head_is_run_in_a_clone_and_compared(
    copying: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    verifying = [sys.executable, "-m", "pipeline.verify"]
    corpus = tmp_path / "copying" / "mirror" / "corpus.txt"
    done = copying(*verifying)
    assert done.returncode == 0, done.stderr
    assert "All 4 outputs are the committed ones, byte for byte." in done.stdout
    committed = re.search(r"corpus\.txt +(\w{12})", done.stdout)
    assert committed

    corpus.write_text("another")
    done = copying(*verifying)
    assert done.returncode == 1
    assert re.search(rf"corpus\.txt +{committed[1]} +(?!{committed[1]})\w{{12}} +DIFFERS", done.stdout)
    assert "error: corpus.txt differs from the committed dvc.lock" in done.stderr

    corpus.unlink()
    done = copying(*verifying)
    assert done.returncode == 1
    assert "error: dvc repro fails in a fresh clone of HEAD" in done.stderr
    assert copying("git", "status", "--porcelain").stdout == ""


def commit(copying: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    copying("git", "add", "--all")
    assert copying("git", *IDENTITY, "commit", "--quiet", "--allow-empty", "--message", "a change").returncode == 0


@pytest.mark.parametrize(
    ("file", "text", "change"),
    [
        ("mirrored.py", COPY + "# a change\n", "mirrored.py"),
        ("params.yaml", "train: {lr: 2}\n", "train.lr in params.yaml"),
        ("packages.lock", "torch==2\n", "packages.lock"),
        ("metrics/evaluation.json", '{"test": {}}', "metrics/evaluation.json"),
        ("dvc.yaml", "--fast", "changed command of stage download"),
    ],
)
def test_a_commit_without_a_run_is_reported_before_anything_runs(
    file: str, text: str, change: str, copying: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    changed = tmp_path / "copying" / file
    if file == "dvc.yaml":
        text = changed.read_text().replace("mirrored.py", "mirrored.py --fast", 1)
    changed.write_text(text)
    commit(copying)
    done = copying(sys.executable, "-m", "pipeline.verify")
    assert done.returncode == 1
    assert re.fullmatch(
        rf'error: HEAD .*dvc\.lock.*: {re.escape(change)}; run "dvc repro" and commit .*\n', done.stderr
    )
    assert "Running stage" not in done.stdout


def test_a_commit_is_verified_after_its_run_has_been_committed_too(
    copying: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "copying" / "mirrored.py").write_text(COPY + "# a change\n")
    commit(copying)
    assert copying("dvc", "repro").returncode == 0
    done = copying(sys.executable, "-m", "pipeline.verify")
    assert '; run "dvc repro" and commit' in done.stderr, "the new dvc.lock is not committed"
    commit(copying)
    done = copying(sys.executable, "-m", "pipeline.verify")
    assert done.returncode == 0, done.stderr


def test_a_commit_after_a_run_of_some_stages_is_named(
    copying: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "copying" / "mirror" / "corpus.txt").write_text("another")
    assert copying("dvc", "repro", "--force", "--single-item", "download").returncode == 0
    commit(copying)
    done = copying(sys.executable, "-m", "pipeline.verify")
    assert done.returncode == 1
    assert "dvc.lock records: corpus.txt;" in done.stderr
    assert "Running stage" not in done.stdout


def test_a_file_that_git_stores_with_other_line_endings_is_named(
    copying: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    copying("git", "config", "core.autocrlf", "input")
    (tmp_path / "copying" / "mirrored.py").write_bytes(COPY.replace("\n", "\r\n").encode())
    assert copying("dvc", "repro").returncode == 0
    commit(copying)
    done = copying(sys.executable, "-m", "pipeline.verify")
    assert done.returncode == 1
    assert re.fullmatch(r"error: mirrored\.py has other line endings .*\n", done.stderr)
    remedy = re.search('run "(.*)"', done.stderr)
    assert remedy
    assert copying("sh", "-c", remedy[1]).returncode == 0
    commit(copying)
    assert copying(sys.executable, "-m", "pipeline.verify").returncode == 0


@pytest.mark.parametrize("added", ["data/custom/train.csv", "data/custom"])
def test_data_that_dvc_tracks_come_from_the_users_cache(
    added: str, copying: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    root = tmp_path / "copying"
    (root / "data" / "custom").mkdir(parents=True)
    (root / "data" / "custom" / "train.csv").write_text("text,label\n")
    (root / "unrelated.bin").write_text("no stage reads it")
    for path in (added, "unrelated.bin"):
        assert copying("dvc", "add", path).returncode == 0
    pipeline = yaml.safe_load((root / "dvc.yaml").read_text())
    pipeline["stages"]["download"]["deps"].append("data/custom")
    (root / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    assert copying("dvc", "repro").returncode == 0
    commit(copying)
    shutil.rmtree(root / "data" / "custom")
    (root / "unrelated.bin").unlink()
    done = copying(sys.executable, "-m", "pipeline.verify")
    assert done.returncode == 0, done.stderr

    shutil.rmtree(root / ".dvc" / "cache")
    done = copying(sys.executable, "-m", "pipeline.verify")
    assert done.returncode == 1
    assert re.fullmatch(
        rf'error: {re.escape(added)} is not in the DVC cache .*"dvc pull {re.escape(added)}".*\n', done.stderr
    )
    assert "Running stage" not in done.stdout
