"""Run DVC experiments in temporary directories, one or several at a time."""

import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TextIO

from filelock import FileLock

from pipeline.core.messages import UserError, log
from pipeline.experiments.child_processes import ChildProcesses, forwarding_signals
from pipeline.experiments.dvc_command import DVC, dvc_environ
from pipeline.experiments.identity import SEED, identity
from pipeline.experiments.revisions import experiment_commits

if sys.platform != "win32":
    import fcntl

_OUTPUTS = Path(".dvc", "tmp", "pipeline")  # DVC's .gitignore covers it.
_SET_UP = "Reproducing experiment"  # DVC prints it when the files of an experiment are in its temporary directory.
_DVC_IS_LOCKED = ("Unable to acquire lock", "is busy, it is being blocked by")
_READ_SECONDS = 0.1
_RETRY_SECONDS = 2


class Experiment(NamedTuple):
    """What to run.

    Attributes:
        overrides: as for `dvc exp run -S`.
        title: starts each line about its progress, such as "seed 2 of 5".
        stages: the stages to run, with those that they need; none means all stages.
    """

    name: str
    overrides: list[str]
    title: str
    stages: Sequence[str] = ()


class Outcome(NamedTuple):
    """How a run ended.

    Attributes:
        error: why there is no experiment, for people; empty if there is one.
        reason: the error line of the stage that failed; empty if there is none, for example after a kill.
    """

    name: str
    error: str = ""
    reason: str = ""


def run_all(experiments: Sequence[Experiment], jobs: int) -> Generator[Outcome, None, None]:
    """Run the experiments that are not finished, `jobs` at a time, and yield the outcome of each one as it ends.

    The command exits after a signal, when the runs have saved their work.

    Raises:
        UserError: Git does not know who commits.
    """
    if not experiments:
        return
    for key in ("user.name", "user.email"):
        if subprocess.run(["git", "config", key], stdout=subprocess.DEVNULL).returncode:
            raise UserError(f'git has no {key}, and DVC commits each experiment; git config {key} "..."')
    _OUTPUTS.mkdir(parents=True, exist_ok=True)
    queue, running = list(experiments), set[Future[Outcome]]()
    with forwarding_signals() as children, ThreadPoolExecutor(jobs) as pool:
        try:
            while queue or running:
                # Not all at once: after a failure, the pool would start the next run before the caller can stop.
                while queue and len(running) < jobs:
                    running.add(pool.submit(_run, queue.pop(0), children))
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for outcome in [run.result() for run in ended]:
                    if children.signals:
                        return
                    yield outcome
        finally:  # Also if the caller stops at a failure.
            if running and not children.signals:
                log.info("waiting for the other runs to end; Ctrl-C interrupts them")


def _run(experiment: Experiment, children: ChildProcesses) -> Outcome:
    output_file = _OUTPUTS / f"{experiment.name}.log"
    # Not a pipe: if this command is killed, its runs go on, and would fail at the next line that they print.
    with output_file.open("a") as output, output_file.open(errors="replace") as reader:
        _wait_for_lock(experiment, output, children)
        lines: list[str] = []
        finished = experiment.name in experiment_commits()
        while not finished and not children.signals:
            lines = _attempt(experiment, output, reader, children)
            finished = experiment.name in experiment_commits()
            if finished or not any(message in line for line in lines for message in _DVC_IS_LOCKED):
                break
            log.info("%s: another process uses DVC; trying again until it is free", experiment.title)
            time.sleep(_RETRY_SECONDS)
    if finished:
        log.info("%s: done", experiment.title)
        output_file.unlink(missing_ok=True)
        return Outcome(experiment.name)
    if children.signals:
        return Outcome(experiment.name, f"{experiment.name} was interrupted")
    errors = [line.strip() for line in lines if line.startswith("error: ")]  # DVC's own errors are in capitals.
    reason = errors[-1] if errors else ""
    return Outcome(experiment.name, f"{experiment.name} failed ({reason or 'see above'}); see {output_file}", reason)


def _wait_for_lock(experiment: Experiment, output: TextIO, children: ChildProcesses) -> None:
    """Lock the output file of an experiment, if need be after a run that another command started.

    All processes of a run inherit the file and with it the lock, which ends with the last of them. So a run that a
    killed command has left behind is not run twice at the same time.
    """
    if sys.platform != "win32":  # Windows has no lock that other processes inherit.
        waiting = False
        while not children.signals:
            try:
                fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not waiting:
                    log.info("%s: already running, from another command; waiting for its end", experiment.title)
                waiting = True
                time.sleep(_RETRY_SECONDS)


def _attempt(experiment: Experiment, output: TextIO, reader: TextIO, children: ChildProcesses) -> list[str]:
    """Run an experiment, log what it prints, and return the lines."""
    settings = [argument for override in experiment.overrides for argument in ("--set-param", override)]
    command = [*DVC, "exp", "run", "--temp", "--name", experiment.name, *settings, *experiment.stages]
    lines: list[str] = []
    output.truncate(0)
    reader.seek(0)
    # While DVC sets up an experiment, params.yaml in the workspace has its parameters. A second DVC would take them for
    # the user's, and could even run the experiment of the first.
    # https://github.com/treeverse/dvc/blob/3.67.0/dvc/repo/experiments/queue/base.py
    with FileLock(_OUTPUTS / "setup.lock"):
        if children.signals:
            return []
        _require_unchanged(experiment)
        began = time.monotonic()
        process = children.start(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=dvc_environ()
        )
        printed = _lines(process, reader)
        for line in printed:
            lines.append(line)
            if line.startswith(_SET_UP):
                break
    for line in printed:
        lines.append(line)
        if line.strip():
            elapsed = timedelta(seconds=int(time.monotonic() - began))
            log.info("%s, %s: %s", experiment.title, elapsed, line.rstrip())
    return lines


def _require_unchanged(experiment: Experiment) -> None:
    """Raise UserError if DVC would now run other files than the name of the experiment stands for."""
    overrides = [override for override in experiment.overrides if not override.startswith(f"{SEED}=")]
    if identity(overrides) not in experiment.name:
        raise UserError(
            "params.yaml, the code or the data has changed since this command began; finished runs stay: run it again"
        )


def _lines(process: "subprocess.Popen[bytes]", reader: TextIO) -> Iterator[str]:
    """Yield the lines that a process writes to a file, as they come, until it has ended."""
    line, ended = "", False
    while not ended:
        ended = process.poll() is not None  # Before the last look at the file.
        while part := reader.readline():
            line += part
            if line.endswith("\n"):
                yield line
                line = ""
        time.sleep(_READ_SECONDS)
    if line:
        yield line
