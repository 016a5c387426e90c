"""`python -m pipeline.search`: trials as real experiments of a toy pipeline, found again after a kill."""

import contextlib
import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import psutil
import pytest
import yaml
from conftest import ROOT, Project
from toy import toy_project

from pipeline.core.messages import UserError
from pipeline.experiments.identity import overridden
from pipeline.experiments.revisions import experiment_names, experiments
from pipeline.experiments.running import Ended, Experiment, run_all
from pipeline.experiments.search import Rung, Study, expected_best, require_same_study, rungs
from pipeline.experiments.space import Sampler, read_space
from pipeline.params import keys_of
from pipeline.search import search

SPACE = """\
train.lr: log(1e-4, 1e-2)
train.batch_size: [8, 16]
train.max_grad_norm: uniform(0.5, 2)
"""


def space(text: str) -> list[Any]:
    Path("space.yaml").write_text(text)
    return read_space(Path("space.yaml"))


def rows(directory: str) -> list[dict[str, str]]:
    with Path(directory, "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["tpe", "random", "grid"])
def test_a_sampler_proposes_the_same_for_the_same_results(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = SPACE if name != "grid" else "train.epochs: int(1, 3)\ntrain.batch_size: [8, 16]\n"

    def proposals(sign: int) -> list[dict[str, str]]:
        sampler, found = Sampler(space(text), name), []
        while (asked := sampler.ask()) is not None and len(found) < 20:
            number, values = asked
            found.append(values)
            sampler.tell(number, sign * float(values["train.batch_size"]) if number % 5 else None)
        return found

    found = proposals(1)
    assert found == proposals(1)
    assert (found != proposals(-1)) == (name == "tpe"), "it learns"
    if name == "grid":
        assert [(of["train.batch_size"], of["train.epochs"]) for of in found] == [
            (size, epochs) for size in ("8", "16") for epochs in ("1", "2", "3")
        ]
    else:
        assert all(1e-4 <= float(of["train.lr"]) <= 1e-2 and len(of["train.lr"]) < 11 for of in found)


def test_random_is_a_sequence_that_covers_the_space_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2^k points of Sobol's sequence, one lies in each of 2^k equal intervals. Optuna's first trial is not of it."""
    monkeypatch.chdir(tmp_path)
    sampler = Sampler(space("train.lr: log(1e-5, 1e-4)\ntrain.max_grad_norm: uniform(0, 1)\n"), "random")
    found = []
    for _ in range(33):
        number, values = sampler.ask() or (0, {})
        found.append((1 + np.log10(float(values["train.lr"]) / 1e-4), float(values["train.max_grad_norm"])))
        sampler.tell(number, 0.5)
    assert (np.sort(np.floor(32 * np.array(found[1:])), axis=0) == np.arange(32)[:, None]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.lr: around(1, 2)", r"space\.yaml: train\.lr is around\(1, 2\) .*; write log\(1e-5, 1e-4\)"),
        ("train.lr: log(0, 1)", r"space\.yaml: train\.lr is log\(0, 1\) .*; write"),
        ("train.lr: uniform(2, 1)", r"space\.yaml: train\.lr is uniform\(2, 1\) .*; write"),
        ("train.lr: [1e-5]", r"space\.yaml: train\.lr is \[1e-05\]; .* two or more different values.* params\.yaml"),
        ("train.optim: []", r"space\.yaml: train\.optim is \[\]; .* two or more different values"),
        ("train.batch_size: [8, 16, 8]", r"space\.yaml: train\.batch_size is \[8, 16, 8\]; .* different values"),
        ("- train.lr", r"space\.yaml has no keys; write"),
        ("train.lr: [", r"space\.yaml cannot be read"),
    ],
)
def test_a_space_that_makes_no_sense_is_told_in_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        space(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.checkpoint: [nobody/one, nobody/two]", r"model\.checkpoint is nobody/one, .*no directory .*no commit"),
        ("model.checkpoint: [./one, ./two]", r"model\.checkpoint is \./one, and there is no directory .*one"),
        ("train.optim: [adamw_torch, adam]", r'train\.optim: adam is not .*did you mean "adamw_torch"'),
    ],
)
def test_a_value_that_every_trial_would_reject_is_told_before_any_trial(text: str, message: str, toy: Project) -> None:
    Path("rejected.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as error:
        search(Path("rejected.yaml"), 2, "tpe", jobs=1, min_epochs=None)
    assert str(error.value).startswith(f"params.yaml with {text.partition(':')[0]}=")
    assert not experiment_names() and not Path("rejected").exists()


def test_choices_reach_params_yaml_as_they_are_written(toy: Project) -> None:
    Path("choices.yaml").write_text(
        "train.class_weights: [balanced, {bad: 2, good: 1}, null]\nmodel.checkpoint: [modèle/a, 'C:\\b \"c\"']\n"
    )
    checkpoint, weights = read_space(Path("choices.yaml"))
    texts = [[of.text(value) for value in of.to_check] for of in (checkpoint, weights)]
    assert [overridden([f"model.checkpoint={text}"]).model.checkpoint for text in texts[0]] == checkpoint.choices
    assert [overridden([f"train.class_weights={text}"]).train.class_weights for text in texts[1]] == weights.choices


def test_the_directory_of_the_results_is_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("search").mkdir()
    with pytest.raises(UserError, match=r"search must be a YAML file; name it search\.yaml"):
        read_space(Path("search"))


def test_the_space_beside_params_yaml_names_its_parameters() -> None:
    names = {parameter.key for parameter in read_space(ROOT / "search.yaml")}
    assert names and names <= set(keys_of("train"))


def test_rungs_triple_the_epochs_and_end_with_a_second_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lr, epochs = space("train.lr: log(1e-5, 1e-4)"), space("train.epochs: int(1, 3)")
    assert rungs(3, None, epochs) == [Rung(None, (101,)), Rung(None, (101, 102))]
    assert rungs(3, 1, lr) == [Rung(1, (101,)), Rung(None, (101,)), Rung(None, (101, 102))]
    assert [rung.epochs for rung in rungs(10, 1, lr)] == [1, 3, 9, None, None]
    assert [rung.epochs for rung in rungs(3, 3, lr)] == [None, None]
    with pytest.raises(UserError, match=r"--min-epochs makes rungs of train\.epochs"):
        rungs(3, 1, epochs)
    with pytest.raises(UserError, match=r"--min-epochs is 4; it must be 1 to 3"):
        rungs(3, 4, lr)


def test_the_expected_best_is_that_of_draws_with_replacement() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(size=7)
    for number, expected in enumerate(expected_best(scores.tolist()), 1):
        drawn = random.choice(scores, size=(200_000, number)).max(axis=1)
        assert expected == pytest.approx(drawn.mean(), abs=0.01)


@pytest.mark.slow
def test_trials_are_experiments_up_to_train_and_failures_are_not_repeated(
    toy: Project, caplog: pytest.LogCaptureFixture
) -> None:
    """The toy's score is best at 1e-3."""
    own = space("train.batch_size: [8, 16]\ntrain.lr: [1e-3, 1e-4, 2.0]\n")
    study = Study(Path("space"), own, Sampler(own, "grid"), rungs(1, None, own), 1)
    best, *others = study.run(6)
    assert best.overrides == {"train.batch_size": "8", "train.lr": "0.001"}
    assert [study.reached(trial) for trial in (best, *others)] == [2, 2, 1, 1, 1, 1]
    failed = json.loads(Path("space", "failed.json").read_text())
    assert len(failed) == 2
    assert all(re.search(r"failed \(error: .*loss", why) for why in failed.values()), failed
    table = rows("space")
    assert [row["score"] != "" for row in table if row["seed"] == "101"] == [True, True, False] * 2
    scored = yaml.safe_load(toy.git("show", "HEAD:dvc.lock"))["stages"]["predict"]
    for name, reference in experiment_names().items():
        assert name.startswith("trial-")
        stages = yaml.safe_load(toy.git("show", f"{reference}:dvc.lock"))["stages"]
        assert stages["train"]["params"]["params.yaml"]["train"]["seed"] in (101, 102)
        assert stages["predict"] == scored, "a trial does not score test"
    caplog.clear()
    began = time.monotonic()
    again = Study(Path("space"), own, Sampler(own, "grid"), rungs(1, None, own), 1)
    assert [trial.overrides for trial in again.run(6)] == [trial.overrides for trial in (best, *others)]
    assert rows("space") == table
    assert not [message for message in caplog.messages if "Running stage" in message]
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_a_trial_that_was_killed_runs_once_more_and_one_whose_second_seed_fails_is_the_last(
    toy: Project, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = toy.root / "killed"
    killed.touch()
    monkeypatch.setenv("TOY_KILLED_ONCE", str(killed))
    own = space("train.epochs: [4, 1, 2]\n")
    study = Study(Path("space"), own, Sampler(own, "grid"), rungs(1, None, own), 1)
    trials = study.run(3)
    assert not killed.exists()
    assert [message for message in caplog.messages if message.endswith("; it runs once more")], caplog.messages
    assert [trial.overrides["train.epochs"] for trial in trials] == ["2", "1", "4"]
    assert [trial.scores[None, 101] is not None for trial in trials] == [True, True, True]
    assert trials[-1].scores[None, 102] is None


@pytest.mark.slow
def test_a_run_that_a_killed_command_has_left_is_waited_for(toy: Project, caplog: pytest.LogCaptureFixture) -> None:
    command = ["dvc", "exp", "run", "--temp", "--name", "left", "--set-param", "train.seed=7"]
    caplog.set_level("INFO")
    with subprocess.Popen(command, cwd=toy.root, env=toy.env, stdout=subprocess.PIPE, text=True) as left:
        for line in left.stdout or ():
            if line.startswith("Running stage 'train'"):
                assert list(run_all([Experiment("left", ["train.seed=7"], "seed 7")], jobs=1)) == [Ended("left")]
                break
        assert left.wait() == 0
    assert any("already under way" in message for message in caplog.messages), caplog.messages
    assert caplog.messages[-1] == "seed 7: done"
    assert not [message for message in caplog.messages if "Running stage" in message]
    assert "left" in experiment_names()


def run(project: Project, *arguments: str) -> str:
    return project.run(sys.executable, "-m", "pipeline.search", *arguments)


@pytest.mark.parametrize(
    ("text", "n", "sampler", "message"),
    [
        ("train.learning_rate: [1, 2]", 2, "tpe", r"-S train\.learning_rate=1: "),
        ("train.seed: [1, 2]", 2, "tpe", r"train\.seed is chosen for each run"),
        ("train.lr: log(1e-5, 1e-4)", 2, "grid", r"a grid needs values to choose from, and train\.lr has none"),
        ("train.lr: log(1e-5, 1e-4)", 1, "tpe", r"--n is 1 .* at least 2 trials"),
        (
            "train.metric_for_best_model: [f1, loss]",
            2,
            "tpe",
            r"train\.metric_for_best_model chooses the score .* leave it out",
        ),
        ("data.split.seed: [1, 2]", 2, "tpe", r"data\.split\.seed decides which rows are scored"),
        ("predict.max_samples: [200, 400]", 2, "tpe", r"predict\.max_samples decides which rows are scored"),
        ("train.warmup_ratio: uniform(0, 1.2)", 2, "tpe", r"train\.warmup_ratio.* 1\.2"),
        ("train.batch_size: [8, 16, 2.5]", 2, "tpe", r"train\.batch_size.* 2\.5"),
    ],
)
def test_what_cannot_be_searched_is_told_before_anything_runs(
    text: str, n: int, sampler: str, message: str, toy: Project
) -> None:
    Path("bad.yaml").write_text(f"{text}\n")
    with pytest.raises(UserError, match=message):
        search(Path("bad.yaml"), n, sampler, 1, None)
    assert not Path("bad").exists()


def test_results_replace_neither_a_file_nor_a_directory(toy: Project) -> None:
    Path("taken.yaml").write_text("train.lr: log(1e-5, 1e-4)\n")
    Path("taken").write_text("a file")
    before = experiment_names()
    with pytest.raises(UserError, match=r"taken is a file.*taken\.yaml"):
        search(Path("taken.yaml"), 2, "tpe", 1, None)
    Path("taken").unlink()
    Path("taken/report.html/figures").mkdir(parents=True)
    with pytest.raises(UserError, match=r"taken/report\.html is a directory"):
        search(Path("taken.yaml"), 2, "tpe", 1, None)
    assert experiment_names() == before
    assert Path("taken/report.html/figures").is_dir()
    shutil.rmtree("taken")


@pytest.mark.parametrize(
    ("begun", "message"),
    [
        ({"jobs": 2, "optuna": optuna.__version__}, "jobs 2; jobs 1 .* --jobs 2"),
        ({"jobs": 1, "optuna": "3.0.0"}, rf"optuna 3\.0\.0; optuna {re.escape(optuna.__version__)} "),
    ],
)
def test_a_study_is_not_continued_with_other_jobs_or_another_optuna(
    begun: dict[str, Any], message: str, toy: Project
) -> None:
    Path("study.yaml").write_text("train.lr: log(1e-4, 1e-2)\n")
    Path("study").mkdir()
    record = Path("study", "study.json")
    record.write_text(json.dumps(begun))
    known = experiment_names()
    try:
        with pytest.raises(UserError, match=rf"study\.json: .*{message}.* remove study/study\.json") as error:
            search(Path("study.yaml"), 2, "tpe", 1, None)
        assert "\n" not in str(error.value)
        assert experiment_names() == known
        record.unlink()
        require_same_study(Path("study"), 1)
        require_same_study(Path("study"), 1)
        assert json.loads(record.read_text()) == {"jobs": 1, "optuna": optuna.__version__}
    finally:
        shutil.rmtree("study")
        Path("study.yaml").unlink()


def killed_at(project: Project, command: list[str], line: str, *, children: bool) -> list[str]:
    """Kill a command, and what it runs, at a line that it prints. Returns the lines until then."""
    lines = []
    with subprocess.Popen(command, cwd=project.root, env=project.env, stderr=subprocess.PIPE, text=True) as process:
        for told in process.stderr or ():
            lines.append(told)
            if line in told and "Running stage 'train'" in told:
                for child in psutil.Process(process.pid).children(recursive=True) if children else ():
                    child.kill()
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL, lines
    return lines


@pytest.mark.slow
def test_a_killed_search_comes_to_the_same_end_to_the_byte(toy: Project) -> None:
    toy.set("train.epochs", "3")
    toy.set("train.lr", "2.0e-4")
    toy.commit("other parameters")
    for name in ("whole", "killed"):
        Path(f"{name}.yaml").write_text("train.lr: log(1e-4, 1e-2)\n")
    arguments = ["--n", "6", "--min-epochs", "1"]
    command = [sys.executable, "-m", "pipeline.search", "killed.yaml", *arguments]
    killed_at(toy, command, "trial 3, seed 101, 1 epoch", children=False)
    lines = killed_at(toy, command, "seed 102", children=True)
    assert not [line for line in lines if line.startswith("trial 1, seed 101, 1 epoch, 0:")], "it is not run again"
    lines = killed_at(toy, command, "seed 2 of 5", children=True)
    assert not [line for line in lines if line.startswith("trial") and "seed 101, 0:" in line], lines
    out = run(toy, "killed.yaml", *arguments)
    assert "Running stage" in out
    assert "trial 4, seed 101, 1 epoch, 0:" not in out
    end = r"Verdict: B is better: .*\n\nThe expected best .* of 6 trials\.\nTo adopt B: dvc exp apply (seeds-\w+-1)\n"
    assert (found := re.search(end, out)), out
    assert set(experiments(found[1].removesuffix("-1"))) == {1, 2, 3, 4, 5}
    page = Path("killed", "report.html").read_text()
    assert f"dvc exp apply {found[1]}" in page
    assert len(re.findall(r"\|seed:1,2,3,4,5\|", page)) == 2, "the signatures of A and of B"
    assert "What mattered" not in page and "do not show which parameter mattered" in page, "6 trials are too few"

    for name, reference in experiment_names().items():
        if name.startswith("trial-"):
            toy.git("update-ref", "-d", reference)
    shutil.rmtree(toy.root / ".dvc" / "cache" / "runs")
    again = run(toy, "whole.yaml", *arguments)
    assert "trial 6, seed 101, 1 epoch, 0:" in again
    for name in ("trials.csv", "report.html"):
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes()
    epochs = [row["epochs"] for row in rows("whole")]
    assert [epochs.count(of) for of in ("1", "")] == [6, 4]

    Path("notes.md").write_text("more\n")
    toy.commit("notes")
    assert re.search(r"To adopt B: dvc exp run -S train\.lr=\S+$", run(toy, "whole.yaml", *arguments), re.M)
    toy.git("reset", "--quiet", "--hard", "HEAD~1")
    best = out.split("To adopt B: ")[1].splitlines()[0]
    toy.git("checkout", "--quiet", ".")
    toy.run(*best.split())
    assert abs(np.log10(toy.params()["train"]["lr"]) + 3) < 0.3


@pytest.mark.slow
def test_several_jobs_find_what_one_finds(toy: Project) -> None:
    for name, jobs in (("one", "1"), ("two", "2")):
        Path(f"{name}.yaml").write_text("train.lr: log(1e-4, 5e-3)\ntrain.weight_decay: [0.0, 0.1]\n")
        toy.git("checkout", "--quiet", ".")
        for experiment, reference in experiment_names().items():
            if experiment.startswith("trial-"):
                toy.git("update-ref", "-d", reference)
        run(toy, f"{name}.yaml", "--n", "4", "--sampler", "random", "--jobs", jobs)
    assert rows("one") == rows("two")
    assert toy.git("status", "--porcelain", "--untracked-files=no") == ""


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes(word: str, root: Path) -> list[psutil.Process]:
    """Those of a project with this word in their command."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if word in process.cmdline() and Path(process.cwd()).is_relative_to(root):
                found.append(process)
    return found


@pytest.mark.slow
def test_what_ctrl_c_leaves_in_the_queue_is_told_and_not_run_twice(tmp_path: Path) -> None:
    toy = toy_project(tmp_path)
    seeds = [sys.executable, "-m", "pipeline.seeds", "--n", "3"]
    first, second = [*seeds, "-S", "train.warmup_ratio=0.9", "-S", "train.epochs=15"], [*seeds, "-S", "train.lr=2e-4"]
    queued = [*first, "--jobs", "2"]
    with subprocess.Popen(queued, cwd=toy.root, env=toy.env, stderr=subprocess.PIPE, text=True) as stopped:
        while len(processes("toy.py", toy.root)) < 2:
            assert stopped.poll() is None
            time.sleep(0.1)
        stopped.send_signal(signal.SIGINT)
        lines = list(stopped.stderr or ())
    assert stopped.returncode == 130
    assert lines[-1] == "DVC's queue goes on without this command; to stop it: dvc queue stop --kill\n"
    out = toy.run(*second)
    assert re.search(r"^other experiments in DVC's queue, which come first: [123]; dvc queue status lists", out, re.M)
    assert "seed 3 of 3: done" in out
    toy.run(*first)
    names = [line.split()[1] for line in toy.run("dvc", "queue", "status").splitlines() if line.endswith("Success")]
    assert len(names) == len(set(names)) == 6


@pytest.mark.slow
def test_what_was_killed_or_has_failed_in_the_queue_runs_again(tmp_path: Path) -> None:
    toy = toy_project(tmp_path)
    command = [sys.executable, "-m", "pipeline.seeds", "--n", "2", "--jobs", "2", "-S", "train.warmup_ratio=0.9"]

    with subprocess.Popen(command, cwd=toy.root, env=toy.env, stderr=subprocess.DEVNULL) as process:
        while len(processes("toy.py", toy.root)) < 2:
            assert process.poll() is None
            time.sleep(0.1)
        process.kill()
        for word in ("queue-worker", "exec-run", "toy.py"):  # as where the machine goes down
            for killed in processes(word, toy.root):
                killed.kill()
    assert toy.run("dvc", "queue", "status").count("Running") == 2, "DVC does not know"
    out = toy.run(*command)
    assert "seed 1 of 2: done" in out
    assert "seed 2 of 2: done" in out

    failing = [*command, "-S", "train.lr=2", "-S", "train.epochs=70"]  # seed 2 at once, beside seed 1
    for times in (1, 2):
        out = toy.run(*failing, ok=False)
        assert re.search(r"^error: .* failed \(error: the loss is not a number\); see dvc queue logs", out, re.M)
        if times == 1:
            assert "DVC's queue goes on without this command; to stop it: dvc queue stop --kill\n" in out
        states = [line.split()[-1] for line in toy.run("dvc", "queue", "status").splitlines() if line.strip()]
        assert states.count("Failed") == times, "it has run to its end again"


@pytest.mark.slow
def test_workers_of_the_queue_that_die_are_replaced(tmp_path: Path) -> None:
    toy = toy_project(tmp_path)  # whose queue has had no other workers
    command = [sys.executable, "-m", "pipeline.seeds", "--n", "4", "--jobs", "2"]
    celery = toy.root / ".dvc" / "tmp" / "exps" / "celery"
    with subprocess.Popen(command, cwd=toy.root, env=toy.env, stderr=subprocess.PIPE, text=True) as process:
        while len(started := list(celery.glob("dvc-exp-worker-*.out"))) < 2 or not all(
            "ready." in of.read_text() for of in started
        ):
            assert process.poll() is None
            time.sleep(0.1)
        first = [psutil.Process(int(of.read_text())) for of in celery.glob("dvc-exp-worker-*.pid")]
        while any(alive(worker) for worker in first):
            assert process.poll() is None, "all was done before the workers died"
            listed = (celery / "broker" / "control" / "celery.pidbox.exchange").read_text()
            queues = re.findall(r"dvc-exp-\w+-\d@[\w.]+", listed)
            # Both workers write that list as they start, and one of them may be missing.
            for queue in {re.sub(r"-\d@", f"-{number}@", of) for of in queues for number in (1, 2)}:
                # A question that is not written yet, by a new name: the queue keeps what it has read.
                (celery / "broker" / "in" / f"{time.monotonic_ns()}_half.{queue}.msg").touch()
            time.sleep(1)
        lines = list(process.stderr or ())
    assert process.returncode == 0, lines
    # Two at a time: which of them ends first is chance.
    done = sorted(line for line in lines if "done" in line)
    assert done == [f"seed {seed} of 4: done\n" for seed in range(1, 5)], lines
