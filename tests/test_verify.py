"""`make verify` reproduces the committed result or says why it does not."""

import json
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
from pipeline.verify import Result, compare_results, read_result, verify

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
    """The parts of a checkout that are compared: dvc.lock and the environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "metrics").mkdir(parents=True)
        self.hashes = {path: path.encode().hex().ljust(32, "0") for outs in OUTS.values() for path in outs}
        self.environment = {"cpu": "a CPU", "torch": "2.13.0", "threads": 2}

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
        return read_result(self.root)


@pytest.fixture
def committed(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "committed")


@pytest.fixture
def reproduced(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "reproduced")


@pytest.mark.parametrize(
    "lock", ["", "stages:\n  train:\n", "stages:\n  train:\n    outs:\n    - path: models/classifier\n"]
)
def test_an_incomplete_dvc_lock_is_reported_in_one_line(lock: str, committed: Checkout) -> None:
    committed.result()
    (committed.root / "dvc.lock").write_text(lock)
    with pytest.raises(UserError, match=r'^dvc\.lock is incomplete\. Run "dvc repro"'):
        read_result(committed.root)


def test_a_stage_may_have_no_outputs(committed: Checkout) -> None:
    outputs = committed.result().outputs
    with (committed.root / "dvc.lock").open("a") as lock:
        lock.write("  notify:\n    cmd: echo done\n")
    assert read_result(committed.root).outputs == outputs


def use_another_cpu(reproduced: Checkout) -> None:
    reproduced.environment["cpu"] = "another CPU"
    for path in reproduced.hashes:
        if path.startswith(("models/classifier", "metrics", "data/predictions")):
            reproduced.hashes[path] = "f" * 32


def test_on_another_cpu_the_outputs_of_training_and_of_added_stages_may_differ(
    committed: Checkout, reproduced: Checkout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OUTS, "added_by_the_user", ["predictions.csv"])
    committed.hashes["predictions.csv"], reproduced.hashes["predictions.csv"] = "0" * 32, "1" * 32
    use_another_cpu(reproduced)
    compare_results(committed.result(), reproduced.result())
    out = capsys.readouterr().out
    assert "comes from a different environment:" in out
    assert re.search(r"^cpu +a CPU +another CPU$", out, re.M)
    assert not re.search("^torch", out, re.M), "torch has not changed"


@pytest.mark.parametrize("path", ["data/raw", "models/pretrained", "data/tokenized"])
def test_data_checkpoint_and_tokens_must_be_the_same_on_every_cpu(
    path: str, committed: Checkout, reproduced: Checkout
) -> None:
    use_another_cpu(reproduced)
    reproduced.hashes[path] = "0" * 32
    with pytest.raises(UserError, match=rf"^{path} differs .* on every CPU\. .*make setup"):
        compare_results(committed.result(), reproduced.result())


@pytest.mark.parametrize("side", ["committed", "reproduced"])
def test_an_output_missing_on_one_side_is_an_error_even_on_another_cpu(
    side: str, committed: Checkout, reproduced: Checkout
) -> None:
    use_another_cpu(reproduced)
    del (committed if side == "committed" else reproduced).hashes["models/classifier"]
    with pytest.raises(UserError, match=r"^models/classifier of stage train is missing on one side"):
        compare_results(committed.result(), reproduced.result())


def test_different_bytes_in_the_same_environment_are_an_error(committed: Checkout, reproduced: Checkout) -> None:
    reproduced.hashes["models/classifier"] = "f" * 32
    with pytest.raises(UserError, match=r"1 of 8 outputs differ from the committed dvc\.lock in the same environment"):
        compare_results(committed.result(), reproduced.result())


def test_without_a_committed_result_there_is_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be cloned\. Run verify at the top of a git repository with a commit"):
        verify(tmp_path / "nowhere")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    with pytest.raises(UserError, match=r'HEAD has no dvc\.lock to compare with\. Run "dvc repro"'):
        verify(tmp_path)


IDENTITY = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
COPY = """
import os, pathlib, shutil
shutil.copy(pathlib.Path(os.environ["MRPC_MIRROR"], "corpus.txt"), "corpus.txt")
"""
SCORE = """
import json, os, pathlib
cpu = os.environ.get("TOY_CPU", "a CPU")
pathlib.Path("metrics").mkdir(exist_ok=True)
pathlib.Path("metrics/environment.json").write_text(json.dumps([{"cpu": cpu}]))
pathlib.Path("metrics/evaluation.json").write_text(json.dumps({"test": {"accuracy": 0.8 if cpu == "a CPU" else 0.7}}))
"""


def git(*arguments: str) -> str:
    return subprocess.check_output(["git", *IDENTITY, *arguments], text=True)


def reproduce(*stages: str, **options: bool) -> None:
    with Repo() as repo:
        repo.reproduce(stages or None, **options)


def commit() -> None:
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "--message", "a change")


@pytest.fixture(scope="module")
def copying_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a stage that copies a file from the mirror, a stage that scores it, and their result.

    In the commit after the tag `no-data`, the first stage also depends on data that DVC tracks.
    """
    root = tmp_path_factory.mktemp("copying")
    for file, text in {
        ".gitignore": "/mirror\n",
        "mirror/corpus.txt": "as committed",
        "mirrored.py": COPY,
        "score.py": SCORE,
        "packages.lock": "torch==1\n",
        "params.yaml": "train: {lr: 1}\n",
        "data/names.txt": "a name",
        "lists/long.txt": "a list",
        "unrelated.bin": "no stage reads it",
    }.items():
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text(text)
    metrics = [{f"metrics/{name}.json": {"cache": False}} for name in ("environment", "evaluation")]
    download = {"cmd": f'"{sys.executable}" mirrored.py', "deps": ["mirrored.py"], "outs": ["corpus.txt"]}
    score = {
        "cmd": f'wc corpus.txt > words.txt && "{sys.executable}" score.py',
        "deps": ["corpus.txt", "packages.lock"],
        "params": ["train.lr"],
        "outs": ["words.txt"],
        "metrics": metrics,
    }
    stages = {"download": download, "score": score}
    with chdir(root), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRPC_MIRROR", "mirror")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # the user's configuration may sign commits or set hooks
        git("init", "--quiet")
        with Repo.init() as repo:
            with repo.config.edit("repo") as config:
                config["core"]["check_update"] = False  # the check would start a process that outlives the command
            repo.add(["data/names.txt", "lists", "unrelated.bin"])
        Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
        reproduce()
        commit()
        git("tag", "no-data")
        download["deps"] = ["mirrored.py", "data", "lists/long.txt"]
        Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
        reproduce()
        commit()
    return root


@pytest.fixture
def copying(copying_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the `copying_template` repository, entered as the working directory."""
    root = tmp_path / "copying"
    shutil.copytree(copying_template, root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("MRPC_MIRROR", "mirror")  # relative to the repository
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    return root


def test_head_is_run_in_a_clone_and_compared(copying: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The clone gets data that DVC tracks from the cache, not from the working directory. Other data may be missing."""
    unrelated = yaml.safe_load(Path("unrelated.bin.dvc").read_text())["outs"][0]["md5"]
    Path(".dvc", "cache", "files", "md5", unrelated[:2], unrelated[2:]).unlink()
    shutil.rmtree("lists")
    Path("data", "names.txt").unlink()
    Path("unrelated.bin").unlink()
    verify(copying)
    out = capsys.readouterr().out
    assert out.count("same\n") == 4
    assert "All 4 outputs match the committed ones byte for byte." in out
    assert git("status", "--porcelain") == ""


def test_in_another_environment_the_scores_that_differ_are_printed(
    copying: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_CPU", "another CPU")
    verify(copying)
    assert re.search(r"a different seed does\.\n(.*\n)+.* test\.accuracy +0\.8 +0\.7 +-0\.1\n", capfd.readouterr().out)


def test_a_different_output_or_a_failed_run_is_an_error(copying: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git("checkout", "--quiet", "no-data")
    corpus = Path("mirror", "corpus.txt")
    corpus.write_text("another")
    with pytest.raises(UserError, match=r"^corpus\.txt differs from the committed dvc\.lock"):
        verify(copying)
    hashes = re.search(r"corpus\.txt +(\w{12}) +(\w{12}) +DIFFERS", capsys.readouterr().out)
    assert hashes and hashes[1] != hashes[2]
    corpus.unlink()
    with pytest.raises(UserError, match="dvc repro failed in a fresh clone of HEAD"):
        verify(copying)


def test_the_error_names_data_missing_from_the_users_cache(copying: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(copying / ".dvc" / "cache")
    with pytest.raises(UserError, match=r'the DVC cache does not have its data: data, lists/long\.txt\. .*"dvc pull"'):
        verify(copying)
    assert "Running stage" not in capfd.readouterr().out


def test_a_commit_that_was_never_run_is_reported_before_anything_runs(
    copying: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    git("checkout", "--quiet", "no-data")
    Path("mirror", "corpus.txt").write_text("another")
    reproduce("download", force=True, single_item=True)  # the stage score has read the earlier corpus.txt
    changed = {
        "mirrored.py": COPY + "# a change\n",
        "params.yaml": "train: {lr: 2}\n",
        "packages.lock": "torch==2\n",
        "metrics/evaluation.json": '{"test": {}}',
        "dvc.yaml": Path("dvc.yaml").read_text().replace("> words.txt", ">words.txt"),
    }
    for file, text in changed.items():
        Path(file).write_text(text)
    commit()
    capfd.readouterr()
    changes = "changed command of stage score, corpus.txt, metrics/evaluation.json, mirrored.py, packages.lock"
    with pytest.raises(
        UserError, match=rf'its data: {changes}, train\.lr in params\.yaml\. Run "dvc repro", and commit'
    ):
        verify(copying)
    assert "Running stage" not in capfd.readouterr().out
