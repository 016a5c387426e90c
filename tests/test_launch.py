"""Experiments run in clones: their names, their inputs, their errors, and what is left after a kill."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import dvc.api
import psutil
import pytest
import yaml
from conftest import Project

from pipeline.core.messages import UserError
from pipeline.experiments.launch import FOLD, experiments, git, group_name, run_experiments
from pipeline.experiments.runs import BASELINE_STAGES

CLONES = Path(".dvc/tmp/runs")


def test_the_name_of_a_group_depends_on_everything_that_can_change_a_prediction(toy: Project) -> None:
    """Code of sub-packages, such as pipeline/core, is code of the stages."""
    name = group_name([])
    for key, value in {"train.seed": "7", "evaluate.metrics": "[f1]", "runtime.num_proc": "2"}.items():
        toy.set(key, value)
        assert group_name([]) == name, f"{key} cannot change a result, or differs between the runs of a group"
    toy.git("checkout", "--quiet", "params.yaml")
    names = {name, group_name(["train.lr=2e-3"]), group_name(["train.seed=2"], FOLD)}
    assert re.fullmatch("checkpoint=a-b-[0-9a-f]{6}", group_name(["model.checkpoint=../a..b"])), "git allows no .."
    for file in (
        "params.yaml", "pipeline/core/paths.py", "compute.lock", "data/corrections.csv", "data/custom/train.csv",
    ):  # fmt: skip
        content = Path(file).read_bytes() if Path(file).exists() else None
        Path(file).write_bytes((content or b"").replace(b"epochs: 1", b"epochs: 2") + b"# a change\n")
        names.add(group_name([]))
        Path(file).unlink() if content is None else Path(file).write_bytes(content)
    override = ["model.checkpoint=mine"]
    names.add(group_name(override))
    Path("mine").mkdir()
    Path("mine", "config.json").write_text("{}")
    names.add(group_name(override))
    Path("mine", "config.json").unlink()
    Path("mine").rmdir()
    assert len(names) == 10
    folds = group_name([], FOLD, BASELINE_STAGES)
    Path("pipeline/baseline.py").write_text("# a change\n")
    assert (group_name([]), group_name([], FOLD, BASELINE_STAGES) == folds) == (name, False), "seeds do not read it"
    toy.git("checkout", "--quiet", "pipeline")
    assert re.fullmatch("base-[0-9a-f]{6}", name)
    readable = group_name(["+train.lr=1e-4", 'data.id2label={"0": no, "1": yes}', f"data.name={60 * 'x'}"])
    assert re.fullmatch(r"lr=1e-4\+id2label=-0-no-1-yes-\+name=x+-[0-9a-f]{6}", readable) and len(readable) <= 47


def test_runs_use_the_users_files_and_leave_them_alone(
    toy: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repository has a detached HEAD, no git user, a cache elsewhere, and changes that are not committed."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for key in ("user.name", "user.email"):
        toy.git("config", "--unset", key)
    toy.git("config", "diff.noprefix", "true")
    toy.git("checkout", "--quiet", "--detach")
    Path(".dvc/cache").rename("../elsewhere")
    toy.run("dvc", "cache", "dir", "--local", "../../elsewhere")
    Path("data/custom/train.csv").write_text("text,label\n")
    toy.run("dvc", "add", "--quiet", "data/custom/train.csv")
    Path("data/custom/umlaut.txt").write_bytes("größer\r\n".encode("latin-1"))
    toy.git("add", "data/custom")
    Path("data/corrections.csv").unlink()
    toy.set("train.epochs", "2")
    status = toy.git("status", "--porcelain")
    run_experiments({"mine": ["train.lr=3e-4", "+train.training_args.note=x"]}, 1, ["predict"])
    assert toy.git("status", "--porcelain") == status
    assert not CLONES.exists()
    commit = experiments()["mine"]
    params = yaml.safe_load(git("show", f"{commit}:params.yaml"))["train"]
    assert (params["epochs"], params["lr"], params["training_args"]) == (2, 3e-4, {"note": "x"})
    assert "data/corrections.csv" not in git("ls-tree", "-r", "--name-only", commit)
    files = json.loads(dvc.api.read("data/raw/source.json", rev=commit))["files"]
    assert {"train.csv", "umlaut.txt"} <= set(files), "the data that DVC or git tracks"


def test_a_failed_run_is_named_with_its_error(toy: Project, caplog: pytest.LogCaptureFixture) -> None:
    runs = {"fine": ["train.epochs=2"], "typo": ["train.lrr=1"], "later": ["train.epochs=3"]}
    with pytest.raises(UserError, match=r'typo failed: .*train\.lrr.*"train\.lr"'):
        run_experiments(runs, 1, ["train"])
    assert "0 of 3 runs are finished" in caplog.messages
    assert "fine: epoch 2/2: training loss 0.5" in caplog.messages
    assert any(re.match(r"runs to go: 2, about 0:\d\d:\d\d", message) for message in caplog.messages)
    assert experiments().keys() & runs.keys() == {"fine", "later"}
    files = git("ls-tree", "-r", "--name-only", experiments()["fine"])
    assert "metrics/train.json" in files and "evaluation.json" not in files, "a run has no scores of another model"
    assert not CLONES.exists()


def start_seeds(toy: Project, arguments: list[str]) -> "subprocess.Popen[str]":
    """Start the command, and return it when both of its runs train."""
    command = [sys.executable, "-m", "pipeline.seeds", *arguments]
    process = subprocess.Popen(command, cwd=toy.root, env=toy.env, stderr=subprocess.PIPE, text=True)
    training = set()
    for line in process.stderr or ():
        training |= {match[1] for match in re.finditer(r"-(\d): epoch 2/", line)}
        if training == {"1", "2"}:
            return process
    raise AssertionError(training)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_repeated_command_continues_where_it_was_stopped(number: signal.Signals, toy: Project) -> None:
    arguments = ["--n", "2", "--jobs", "2", "-S", f"train.epochs={10 + number}", "-S", "train.warmup_ratio=0.8"]
    with start_seeds(toy, arguments) as process:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert "error:" not in (process.stderr.read() if process.stderr else "")
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        assert not psutil.wait_procs(children, timeout=5)[1]
        assert not (toy.root / CLONES).exists()
    out = toy.run("python", "-m", "pipeline.seeds", *arguments)
    for seed in (1, 2):
        assert f"-{seed}: epoch {10 + number}/" in out
        assert f"-{seed}: epoch 1/" not in out, "it continues from its checkpoint"
    assert not psutil.wait_procs(children, timeout=5)[1]
    assert not (toy.root / CLONES).exists()
    assert toy.git("status", "--porcelain") == ""
