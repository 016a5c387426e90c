"""`make verify` reproduces the committed result or says why it does not."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from pipeline.core.messages import UserError
from pipeline.verify import verify

COPY = 'import os, shutil; shutil.copy(os.environ["MRPC_MIRROR"] + "/corpus.txt", "corpus.txt")'
SCORE = """
import json, os, pathlib
cpu = os.environ.get("TOY_CPU", "a CPU")
pathlib.Path("metrics").mkdir(exist_ok=True)
pathlib.Path("metrics/train.json").write_text(json.dumps([{"environment": {"cpu": cpu}}]))
pathlib.Path("metrics/evaluation.json").write_text(json.dumps({"test": {"accuracy": 0.8 if cpu == "a CPU" else 0.7}}))
"""


def git(*arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.check_output(["git", *identity, *arguments], text=True)


def commit() -> None:
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "--message", "a change")


@pytest.fixture(scope="module")
def copying_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a stage that copies a file from the mirror, a stage that scores it, and their result."""
    root = tmp_path_factory.mktemp("a project")
    for file, text in {
        ".gitignore": "/mirror\n", "mirror/corpus.txt": "as committed", "mirrored.py": COPY, "score.py": SCORE,
        "packages.lock": "torch==1\n", "params.yaml": "train: {lr: 1}\n", "data/names.txt": "a name",
        "lists/long.txt": "a list", "unrelated.bin": "no stage reads it",
    }.items():  # fmt: skip
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text(text)
    copy_command, score_command = (f'"{sys.executable}" {name}.py' for name in ("mirrored", "score"))
    stages = {
        "download": {"cmd": copy_command, "deps": ["mirrored.py", "data", "lists/long.txt"], "outs": ["corpus.txt"]},
        "score": {
            "cmd": f"wc corpus.txt > words.txt && {score_command}",
            "deps": ["corpus.txt", "packages.lock"],
            "params": ["train.lr"],
            "outs": ["words.txt"],
            "metrics": [{f"metrics/{name}.json": {"cache": False}} for name in ("train", "evaluation")],
        },
    }
    with chdir(root), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRPC_MIRROR", "mirror")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # the user's configuration may sign commits or set hooks
        git("init", "--quiet")
        Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
        with Repo.init() as repo:
            with repo.config.edit("repo") as config:
                config["core"]["check_update"] = False  # the check would start a process that outlives the command
            repo.add(["data/names.txt", "lists", "unrelated.bin"])
            repo.reproduce()
        commit()
    return root


@pytest.fixture
def copying(copying_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the `copying_template` repository, entered as the working directory."""
    root = shutil.copytree(copying_template, tmp_path / "a copy")
    monkeypatch.chdir(root)
    monkeypatch.setenv("MRPC_MIRROR", "mirror")  # relative to the repository
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    return root


def test_head_is_run_in_a_clone_and_compared(copying: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The clone gets data that DVC tracks from the cache, not from the working directory. The rest may be missing."""
    for file in ("unrelated.bin", "corpus.txt", "words.txt"):
        with Path(file).open("rb") as content:
            md5 = hashlib.file_digest(content, "md5").hexdigest()
        Path(".dvc", "cache", "files", "md5", md5[:2], md5[2:]).unlink()
    for file in ("unrelated.bin", "corpus.txt", "data/names.txt", "lists/long.txt"):
        Path(file).unlink()
    verify()
    out = capfd.readouterr().out
    assert "All 4 outputs match" in out
    assert out.count("Running stage") == 2
    assert git("status", "--porcelain") == ""


def test_scores_may_differ_in_another_environment(
    copying: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_CPU", "another CPU")
    verify()
    out = capfd.readouterr().out
    assert re.search(r"^cpu +a CPU +another CPU$", out, re.M)
    assert re.search(r"test\.accuracy +0\.8 +0\.7 +-0\.1\n", out)


def test_a_different_output_is_an_error(copying: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mirror", "corpus.txt").write_text("another")
    with pytest.raises(UserError, match=r"dvc\.lock: corpus\.txt, words\.txt\."):
        verify()
    hashes = re.search(r"corpus\.txt +(\w{12}) +(\w{12})", capsys.readouterr().out)
    assert hashes and hashes[1] != hashes[2]


def test_a_change_is_reported_before_anything_runs(copying: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cache = (copying / ".dvc" / "cache").rename(copying / ".dvc" / "elsewhere")
    with pytest.raises(UserError, match=r"stage download: data .*lists/long\.txt .*dvc pull"):
        verify()
    cache.rename(copying / ".dvc" / "cache")
    Path("mirror", "corpus.txt").write_text("another")
    with Repo() as repo:
        repo.reproduce(["download"], force=True, single_item=True)  # the stage score has read the earlier corpus.txt
    for file in ("mirrored.py", "params.yaml", "packages.lock", "metrics/evaluation.json", "dvc.yaml"):
        text = Path(file).read_text()
        Path(file).write_text(text.replace("> words.txt", ">words.txt").replace("lr: 1", "lr: 2") + "\n")
    commit()
    capfd.readouterr()
    with pytest.raises(UserError) as error:
        verify()
    parts = ["changed command", "corpus.txt", "metrics/evaluation.json", "mirrored.py", "packages.lock", "train.lr"]
    assert [part for part in parts if part in str(error.value)] == parts, error.value
    assert "Running stage" not in capfd.readouterr().out
