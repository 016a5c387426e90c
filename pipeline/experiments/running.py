"""Run DVC experiments in temporary directories, one or several at a time."""

import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from pipeline.core.messages import UserError, log
from pipeline.experiments.child_processes import DVC, ChildProcesses, dvc_environ, forwarding_signals
from pipeline.experiments.identity import as_dvc_override, identity
from pipeline.experiments.revisions import experiment_commits

_SETUP_LOCK = Path(".dvc", "tmp", "pipeline-setup.lock")  # DVC's own .gitignore covers this directory.
_SET_UP = "Reproducing experiment"  # DVC prints this once the files of an experiment are in its temporary directory.
_DVC_IS_LOCKED = ("Unable to acquire lock", "is busy, it is being blocked by")
_RETRY_SECONDS = 2
INPUTS_CHANGED = (
    "params.yaml, the code or the data has changed since this command began. To continue, undo the change and run the "
    "command again. With the change, all runs start again."
)


class Experiment(NamedTuple):
    """An experiment to run.

    Attributes:
        overrides: Parameters as for `dvc exp run -S`. All runs of a group have the same ones.
        varied_override: The override that differs between the runs of a group, such as "train.seed=2".
        title: The beginning of each log line about the experiment, such as "seed 2 of 5".
        stages: The stages to run, together with the stages that they need. Empty means all stages.
        fraction: The proportion of the training examples that it learns from, to estimate its time.
    """

    name: str
    overrides: list[str]
    varied_override: str
    title: str
    stages: Sequence[str] = ()
    fraction: float = 1.0


def run_group(group: str, experiments: Sequence[Experiment], jobs: int) -> None:
    """Run the experiments of a seed group, a fold group or a learning curve that are not finished, `jobs` at a time.

    Raises:
        UserError: A run failed. The other runs that have started end first.
    """
    finished = experiment_commits()
    missing = [experiment for experiment in experiments if experiment.name not in finished]
    log.info("%s: %d of %d runs are finished", group, len(experiments) - len(missing), len(experiments))
    run_all(missing, jobs)


def run_all(experiments: Sequence[Experiment], jobs: int, *, stop_at_failure: bool = True) -> None:
    """Run all of these experiments, `jobs` at a time.

    After a signal, the command exits as soon as the runs have saved their work.

    Args:
        stop_at_failure: Whether a failure keeps further runs from starting, and is raised at the end. A search sets
            this to False: all of its trials run, and the remaining time is not logged, because more trials follow.

    Raises:
        UserError: `jobs` is less than 1, git has no user name or email, which a commit needs, or a run failed and
            `stop_at_failure` is True. The runs that had already started are finished first.
    """
    if jobs < 1:
        raise UserError(f"--jobs must be at least 1, got {jobs}.")
    if not experiments:
        return
    for key in ("user.name", "user.email"):
        if subprocess.run(["git", "config", key], stdout=subprocess.DEVNULL).returncode:
            raise UserError(f'git has no {key}, but DVC commits each experiment. Run: git config {key} "..."')
    remaining = list(experiments)
    failures: list[str] = []
    began = time.monotonic()

    def run(experiment: Experiment) -> None:
        if failures and stop_at_failure:
            return
        failure = _run(experiment, children)
        remaining.remove(experiment)
        if failure:
            failures.append(failure)
            if not stop_at_failure:
                log.warning("%s", failure)
            elif jobs > 1:
                log.info("waiting for the runs that have already started; press Ctrl-C to interrupt them")
        if remaining and stop_at_failure and not failures and not children.signals:
            work = sum(experiment.fraction for experiment in remaining)
            finished = sum(experiment.fraction for experiment in experiments) - work
            seconds = (time.monotonic() - began) / finished * work
            log.info("runs to go: %d, about %s", len(remaining), timedelta(seconds=round(seconds)))

    with forwarding_signals() as children, ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, experiments))
    if failures and stop_at_failure:
        raise UserError(failures[0])


def _run(experiment: Experiment, children: ChildProcesses) -> str | None:
    """Run an experiment. Returns a message for people if it fails, and None if it finishes or is interrupted."""
    lines: list[str] = []
    while not children.signals:
        lines = _attempt(experiment, children)
        if experiment.name in experiment_commits():
            log.info("%s: done", experiment.title)
            return None
        if not any(message in line for line in lines for message in _DVC_IS_LOCKED):
            break
        log.info("%s: another process is using DVC; trying again until it has finished", experiment.title)
        time.sleep(_RETRY_SECONDS)
    if children.signals:
        return None
    if not any(line.startswith(_SET_UP) for line in lines):  # DVC failed while it set up the experiment.
        for line in filter(str.strip, lines):
            log.info("%s: %s", experiment.title, line.rstrip())
    errors = [line.strip() for line in lines if line.startswith("error: ")]  # DVC's own errors start with "ERROR: ".
    return f"{experiment.name} failed ({errors[-1] if errors else 'see above'})"


def _attempt(experiment: Experiment, children: ChildProcesses) -> list[str]:
    """Run an experiment, log the lines that it prints after its set-up, and return all lines.

    If this command is killed, DVC ends when it prints its next line. The next call for the same experiment then resumes
    from the checkpoints. If the training is still running, the next one waits for it.
    """
    overrides = [*experiment.overrides, experiment.varied_override]
    settings = [f"--set-param={as_dvc_override(override)}" for override in overrides]
    command = [*DVC, "exp", "run", "--temp", "--name", experiment.name, *settings, *experiment.stages]
    lines: list[str] = []
    # While DVC sets up an experiment, params.yaml in the workspace contains its parameters. A second DVC process would
    # mistake them for the user's, and could even run the first experiment again.
    # https://github.com/treeverse/dvc/blob/3.67.1/dvc/repo/experiments/queue/base.py
    with FileLock(_SETUP_LOCK):
        _require_unchanged(experiment)
        if children.signals:
            return []
        began = time.monotonic()
        process = children.start(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dvc_environ(),
            text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith(_SET_UP):
                break
    for line in process.stdout:
        lines.append(line)
        if line.strip():
            elapsed = timedelta(seconds=int(time.monotonic() - began))
            log.info("%s, %s: %s", experiment.title, elapsed, line.rstrip())
    process.wait()
    return lines


def _require_unchanged(experiment: Experiment) -> None:
    """Raise UserError if the files that DVC would run now no longer match the name of the experiment."""
    if identity(experiment.overrides, experiment.varied_override.partition("=")[0]) not in experiment.name:
        raise UserError(INPUTS_CHANGED)
