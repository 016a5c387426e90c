"""`python -m pipeline.seeds` runs, reuses and interrupts real experiments of a toy pipeline."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml
from conftest import Project
from toy import experiment, restore
from zc.lockfile import LockFile

from pipeline.core.messages import UserError
from pipeline.experiments.render import SCORE_UNITS
from pipeline.experiments.revisions import experiment_commits, group_commits
from pipeline.experiments.running import Experiment, run_all
from pipeline.experiments.seed_groups import run_seeds, seed_group_name


def seeds(project: Project, *arguments: str, ok: bool = True) -> str:
    return project.run("python", "-m", "pipeline.seeds", *arguments, ok=ok)


def numbers(table: str, title: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", re.findall(rf"^{title}( .*)$", table, re.M)[0])]


def test_finished_runs_are_reused_and_the_table_summarizes_their_scores(
    toy: Project, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    group = seed_group_name(["train.epochs=7"])
    experiment(toy, f"{group}-1", train__epochs="7", train__seed="1")
    restore(toy)
    run_seeds(2, ["train.epochs=7"], 1)
    assert f"{group}: 1 of 2 runs are finished" in caplog.messages
    assert any(re.match(r"seed 2 of 2, 0:\d\d:\d\d: epoch 7/7: training loss 0\.5", line) for line in caplog.messages)
    assert not [line for line in caplog.messages if line.startswith("seed 1")]
    assert list(group_commits(group)) == [1, 2]
    assert toy.git("status", "--porcelain") == "", "the workspace is unchanged"

    table = capsys.readouterr().out
    run_seeds(2, ["train.epochs=7"], 1)  # reuses both runs; a new run would be logged and take seconds
    assert table.endswith(capsys.readouterr().out)
    scores = [
        100 * json.loads(toy.git("show", f"{commit}:metrics/evaluation.json"))["test"]["f1"]
        for commit in group_commits(group).values()
    ]
    n, mean, deviation, lowest, highest = numbers(table, "test F1")
    assert n == 2
    assert [mean, lowest, highest] == pytest.approx([np.mean(scores), min(scores), max(scores)], abs=0.01)
    assert deviation == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5, abs=0.01)
    assert f"Warning: {group} is degenerate in 1 of 2 runs ({group}-2)," in table
    assert re.search(r"^Signature: task:demo\|.*\|seed:1,2\|checkpoint:a checkpoint@", table, re.M)
    assert f"python -m pipeline.compare {group} OTHER" in table


def test_a_regression_without_test_labels_is_summarized_by_validation_scores(
    toy: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = ["data.task=stsb"]
    for seed in "12":
        experiment(toy, f"{seed_group_name(overrides)}-{seed}", data__task="stsb", train__seed=seed)
    restore(toy)
    run_seeds(2, overrides, 1)
    table = capsys.readouterr().out
    assert numbers(table, "validation Spearman correlation")[0] == 2
    assert f"{SCORE_UNITS}\nNo test labels are available, so the validation scores are used instead" in table


def test_a_groups_name_depends_on_everything_that_determines_its_results_except_the_seed(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = seed_group_name([])
    toy.set("train.seed", "7")
    assert seed_group_name([]) == name
    toy.git("checkout", "--quiet", "params.yaml")
    assert seed_group_name(["train.lr=1e-3"]) == name, "this is the current value"
    assert seed_group_name(["runtime.save_steps=7"]) == name, "this setting cannot change a result"
    with Path("requirements.lock").open("a") as packages:
        packages.write("# a change\n")
    assert seed_group_name([]) == name, "only the check and the report depend on these packages"
    toy.git("checkout", "--quiet", "requirements.lock")
    changed = {seed_group_name(["train.lr=2e-3"]), seed_group_name(["+train.training_args.note=1"])}
    assert seed_group_name(["train.training_args.note=1"]) in changed, "the plus before a new key is optional"
    assert seed_group_name(["train.lr=0.002"]) in changed, "the same number in another notation"
    for file in ("toy.py", "dvc.yaml", "data/corrections.csv"):
        with Path(file).open("a") as code:
            code.write("# a change\n")
        changed.add(seed_group_name([]))
        toy.git("checkout", "--quiet", file)
    assert len(changed - {name}) == 5
    Path("mine").mkdir()
    local = seed_group_name(["model.checkpoint=./mine"])
    Path("mine", ".git").mkdir()
    for name_of_file in (".git/index", "Thumbs.db", "config.json~"):
        Path("mine", name_of_file).touch()
    assert seed_group_name(["model.checkpoint=./mine"]) == local, (
        "git, systems and editors write their files even if the base model is the same"
    )
    Path("mine", "config.json").write_text("{}")
    assert seed_group_name(["model.checkpoint=./mine"]) != local, "a file of the base model has changed"
    assert seed_group_name([]) == name
    data, data_of_dvc = Path("data/custom/train.csv"), Path("data/custom/train.csv.dvc")
    data.write_text("text,label\n")
    custom = seed_group_name(["data.task=custom"])
    data_of_dvc.touch()
    assert seed_group_name(["data.task=custom"]) == custom, "a file of DVC is not data"
    data.write_text("text,label\na,b\n")
    assert seed_group_name(["data.task=custom"]) != custom, "a data file has changed"
    assert seed_group_name([]) == name, "other tasks do not read this file"
    data.unlink()
    data_of_dvc.unlink()
    lock = Path("dvc.lock").read_text()
    Path("dvc.lock").write_text(f"{lock}  pretrained:\n    outs:\n    - path: models/pretrained\n      md5: new.dir\n")
    assert seed_group_name(["model.checkpoint=./mine"]) not in (local, name), (
        "DVC trains on another copy of the base model"
    )
    Path("dvc.lock").write_text(lock)
    shutil.rmtree("mine")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert seed_group_name([]) != name, "the environment has changed"
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")

    with Path("dvc.yaml").open("a") as stages:
        stages.write("  look:\n    cmd: wc metrics/evaluation.json\n    deps: [metrics/evaluation.json]\n")
        stages.write("  report:\n    cmd: wc page.css\n    deps: [page.css]\n")
        stages.write("  notify:\n    cmd: echo done\n")  # no dependencies
    name = seed_group_name([])
    Path("metrics/evaluation.json").write_text("{}")
    Path("page.css").write_text("* {}")
    assert seed_group_name([]) == name, "the name depends neither on outputs in the workspace nor on the report"
    Path("page.css").unlink()
    toy.git("checkout", "--quiet", "dvc.yaml", "metrics/evaluation.json")


def test_experiments_are_not_reused_if_code_in_a_subpackage_has_changed(toy: Project) -> None:
    """The toy pipeline depends on all of pipeline/core, as real stages do."""
    group = seed_group_name([])
    experiment(toy, f"{group}-1", train__seed="1")
    core = Path("pipeline/core")
    (core / ".paths.py.swp").touch()
    assert seed_group_name([]) == group, "an editor's swap file is not code"
    (core / ".paths.py.swp").unlink()
    (core / "paths.py").rename(core / "places.py")
    assert not group_commits(seed_group_name([]))
    (core / "places.py").rename(core / "paths.py")
    assert list(group_commits(seed_group_name([]))) == [1]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lrr=1", r'^params\.yaml with train\.lrr=1: train\.lrr is not a parameter\. Did you mean "train\.lr"\?'),
        ("train.lr", r"^-S train\.lr: .* key=value with a key of params\.yaml\. "),
        ("train.lr=1e-5,2e-5", r"^-S train\.lr=1e-5,2e-5: .* key=value with a key of params\.yaml\. "),
        ("train.lr=${train.nope}", r"^-S train\.lr=\$\{train\.nope\}: .* key=value "),
        ("train.lr=fast", r'^params\.yaml with train\.lr=fast: train\.lr.*, got "fast"\.$'),
        ("train.seed=3", r"^train\.seed=3: .*chosen for each run\. Remove it\.$"),
    ],
)
def test_a_bad_override_is_rejected_before_anything_runs(override: str, message: str, toy: Project) -> None:
    with pytest.raises(UserError, match=message):
        run_seeds(2, [override], 1)


def test_an_experiment_does_not_run_if_files_have_changed_since_the_command_began(toy: Project) -> None:
    name = f"{seed_group_name(['train.lr=3e-4'])}-1"
    toy.set("train.epochs", "9")
    try:
        with pytest.raises(UserError, match="has changed since this command began"):
            run_all([Experiment(name, ["train.lr=3e-4"], "train.seed=1", "seed 1")], jobs=1)
    finally:
        toy.git("checkout", "--quiet", "params.yaml")
    assert name not in experiment_commits()


def test_a_subdirectory_of_a_repository_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "inner" / ".dvc").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "inner")
    with pytest.raises(UserError, match=r"inner is not the top level of a git repository that uses DVC\. "):
        group_commits("seeds-00000000")


def test_the_reason_of_git_is_a_part_of_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    assert group_commits("seeds-00000000") == {}
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UserError, match=r"its repository\. Git says: fatal: detected dubious ownership in repo.*'$"):
        group_commits("seeds-00000000")


def test_a_failed_run_ends_the_command_with_the_error_of_its_stage(
    toy: Project, caplog: pytest.LogCaptureFixture
) -> None:
    group = seed_group_name(["train.lr=2"])
    experiment(toy, f"{group}-1", train__lr="2", train__seed="1")
    with pytest.raises(UserError, match=rf"^{group}-2 failed \(error: the loss is not a number\)$"):
        run_seeds(3, ["train.lr=2"], 1)
    assert any(re.match("seed 2 of 3, .*: error: the loss is not a number", line) for line in caplog.messages)
    assert list(group_commits(group)) == [1]


def test_the_messages_of_dvc_are_logged_if_it_fails_before_the_first_stage(
    toy: Project, caplog: pytest.LogCaptureFixture
) -> None:
    file = Path("dvc.yaml")
    file.write_text(file.read_text().replace("    params:", "    parameters:", 1))
    try:
        with pytest.raises(UserError, match=r"-1 failed \(see above\)$"):
            run_seeds(2, ["train.epochs=5"], 1)
    finally:
        toy.git("checkout", "--quiet", "dvc.yaml")
    assert [line for line in caplog.messages if line.startswith("seed 1 of 2: ") and "parameters" in line]


@pytest.mark.slow
def test_parallel_runs_keep_their_own_parameters(toy: Project) -> None:
    """This holds even if another process locks DVC for longer than DVC is willing to wait."""
    command = [sys.executable, "-m", "pipeline.seeds", "--n", "3", "--jobs", "3", "-S", "train.lr=6e-4"]
    lock = LockFile(str(toy.root / ".dvc" / "tmp" / "lock"))
    with subprocess.Popen(command, cwd=toy.root, env=toy.env, stderr=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stderr or ():
            lines.append(line)
            if "another process is using DVC; trying again until it has finished" in line:
                lock.close()
    assert process.returncode == 0, lines
    assert sorted(line for line in lines if line.endswith(": done\n")) == [
        f"seed {n} of 3: done\n" for n in range(1, 4)
    ]
    assert any(re.match(r"seed \d of 3, 0:0\d:\d\d: epoch 1/", line) for line in lines), lines
    for seed, commit in group_commits(seed_group_name(["train.lr=6e-4"])).items():
        recorded = yaml.safe_load(toy.git("show", f"{commit}:dvc.lock"))["stages"]["train"]["params"]["params.yaml"]
        assert (recorded["train"]["seed"], recorded["train"]["lr"]) == (seed, 6e-4)
    assert len(group_commits(seed_group_name(["train.lr=6e-4"]))) == 3
    assert toy.git("status", "--porcelain") == ""


def lines_until_both_train(process: "subprocess.Popen[str]") -> list[str]:
    lines: list[str] = []
    for line in process.stderr or ():
        lines.append(line)
        if all(any(line.startswith(f"seed {seed} ") and "epoch 2/" in line for line in lines) for seed in (1, 2)):
            return lines
    raise AssertionError(lines)


@pytest.mark.slow
def test_ctrl_c_stops_all_runs_and_leaves_the_workspace_unchanged(toy: Project) -> None:
    arguments = ["--n", "3", "--jobs", "2", "-S", "train.epochs=500", "-S", "train.warmup_ratio=0.5"]
    command = [sys.executable, "-m", "pipeline.seeds", *arguments]
    with subprocess.Popen(command, cwd=toy.root, env=toy.env, stderr=subprocess.PIPE, text=True) as process:
        lines_until_both_train(process)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        remaining = list(process.stderr or ())
    assert process.returncode == 130
    assert len(children) >= 4, "each of the two runs has dvc and its stage"
    assert not psutil.wait_procs(children, timeout=5)[1]
    assert not [line for line in remaining if line.startswith("seed 3")], "the third run does not start"
    assert not [line for line in remaining if line.startswith("error:")], remaining
    assert not group_commits(seed_group_name(arguments[5::2]))
    assert toy.git("status", "--porcelain") == ""


@pytest.mark.slow
def test_after_a_kill_the_same_command_finishes_the_runs(toy: Project) -> None:
    """The processes that the killed command leaves behind fail when they print a line that nobody reads anymore."""
    arguments = ["--n", "2", "--jobs", "2", "-S", "train.epochs=20", "-S", "train.warmup_ratio=0.8"]
    command = [sys.executable, "-m", "pipeline.seeds", *arguments]
    with subprocess.Popen(command, cwd=toy.root, env=toy.env, stderr=subprocess.PIPE, text=True) as process:
        lines_until_both_train(process)
        left_behind = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    out = seeds(toy, *arguments)
    for seed in (1, 2):
        assert f"seed {seed} of 2: done" in out
    assert list(group_commits(seed_group_name(arguments[5::2]))) == [1, 2]
    assert not psutil.wait_procs(left_behind, timeout=5)[1]
    assert toy.git("status", "--porcelain") == ""


def test_without_a_git_user_nothing_runs(
    toy: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", toy.env["HOME"])
    toy.git("config", "--unset", "user.email")
    try:
        with pytest.raises(UserError, match=r'user\.email.* Run: git config user\.email "\.\.\."$'):
            run_seeds(5, ["train.epochs=5"], 1)
    finally:
        toy.git("config", "user.email", "a@example.org")
    assert not [message for message in caplog.messages if message.startswith("seed 1")]


def test_a_single_seed_is_rejected(toy: Project) -> None:
    assert re.match("error: --n must be at least 2, got 1", seeds(toy, "--n", "1", ok=False))
