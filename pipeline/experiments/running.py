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
from pipeline.experiments.child_processes import DVC, ChildProcesses, dvc_environ, forwarding_signals
from pipeline.experiments.identity import SEED, identity
from pipeline.experiments.revisions import experiment_commits

if sys.platform != "win32":
    import fcntl

_OUTPUTS = Path(".dvc", "tmp", "pipeline")  # DVC's own .gitignore covers this directory.
_SET_UP = "Reproducing experiment"  # DVC prints this once the files of an experiment are in its temporary directory.
_DVC_IS_LOCKED = ("Unable to acquire lock", "is busy, it is being blocked by")
_READ_SECONDS = 0.1
_RETRY_SECONDS = 2


class Experiment(NamedTuple):
    """An experiment to run.

    Attributes:
        overrides: Parameters as for `dvc exp run -S`.
        title: The beginning of each log line about the experiment, such as "seed 2 of 5".
        stages: The stages to run, together with the stages that they need. Empty means all stages.
    """

    name: str
    overrides: list[str]
    title: str
    stages: Sequence[str] = ()


class Outcome(NamedTuple):
    """How a run ended.

    Attributes:
        error: The message for people if the run did not finish, and empty otherwise.
        reason: The error line of the stage that failed. Empty if there is none, for example after a kill.
    """

    name: str
    error: str = ""
    reason: str = ""


def run_all(experiments: Sequence[Experiment], jobs: int) -> Generator[Outcome, None, None]:
    """Run experiments that are not finished, `jobs` at a time, and yield the outcome of each one as it ends.

    After a signal, the command exits as soon as the runs have saved their work.

    Raises:
        UserError: Git has no user name or email, which a commit needs.
    """
    if not experiments:
        return
    for key in ("user.name", "user.email"):
        if subprocess.run(["git", "config", key], stdout=subprocess.DEVNULL).returncode:
            raise UserError(f'git has no {key}, but DVC commits each experiment. Run: git config {key} "..."')
    _OUTPUTS.mkdir(parents=True, exist_ok=True)
    queue, running = list(experiments), set[Future[Outcome]]()
    with forwarding_signals() as children, ThreadPoolExecutor(jobs) as pool:
        try:
            while queue or running:
                # If all runs were submitted at once, the pool would start the next run after a failure, before the
                # caller could stop.
                while queue and len(running) < jobs:
                    running.add(pool.submit(_run, queue.pop(0), children))
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for outcome in [run.result() for run in ended]:
                    if children.signals:
                        return
                    yield outcome
        finally:  # This is also reached if the caller stops at a failure.
            if running and not children.signals:
                log.info("waiting for the other runs to finish; press Ctrl-C to interrupt them")


def _run(experiment: Experiment, children: ChildProcesses) -> Outcome:
    output_file = _OUTPUTS / f"{experiment.name}.log"
    # The output goes to a file, because the runs continue if this command is killed. With a pipe, they would fail at
    # the next line that they print.
    with output_file.open("a") as output, output_file.open(errors="replace") as reader:
        _wait_for_lock(experiment, output, children)
        lines: list[str] = []
        finished = experiment.name in experiment_commits()
        while not finished and not children.signals:
            lines = _attempt(experiment, output, reader, children)
            finished = experiment.name in experiment_commits()
            if finished or not any(message in line for line in lines for message in _DVC_IS_LOCKED):
                break
            log.info("%s: another process is using DVC; trying again until it has finished", experiment.title)
            time.sleep(_RETRY_SECONDS)
    if finished:
        log.info("%s: done", experiment.title)
        output_file.unlink(missing_ok=True)
        return Outcome(experiment.name)
    if children.signals:
        return Outcome(experiment.name, f"{experiment.name} was interrupted")
    if not any(line.startswith(_SET_UP) for line in lines):  # DVC failed while it set up the experiment.
        for line in filter(str.strip, lines):
            log.info("%s: %s", experiment.title, line.rstrip())
    errors = [line.strip() for line in lines if line.startswith("error: ")]  # DVC's own errors start with "ERROR: ".
    reason = errors[-1] if errors else ""
    return Outcome(experiment.name, f"{experiment.name} failed ({reason or 'see above'}); see {output_file}", reason)


def _wait_for_lock(experiment: Experiment, output: TextIO, children: ChildProcesses) -> None:
    """Lock the output file of an experiment. Wait if another command is still running the same experiment.

    All processes of a run inherit the open file, and with it the lock, which is released when the last process ends. So
    a run that a killed command has left behind is never started a second time while it is still going.
    """
    if sys.platform != "win32":  # Windows has no lock that child processes inherit.
        waiting = False
        while not children.signals:
            try:
                fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not waiting:
                    log.info("%s: already running, started by another command; waiting for it", experiment.title)
                waiting = True
                time.sleep(_RETRY_SECONDS)


def _attempt(experiment: Experiment, output: TextIO, reader: TextIO, children: ChildProcesses) -> list[str]:
    """Run an experiment, log the lines that it prints after its set-up, and return all lines."""
    settings = [argument for override in experiment.overrides for argument in ("--set-param", override)]
    command = [*DVC, "exp", "run", "--temp", "--name", experiment.name, *settings, *experiment.stages]
    lines: list[str] = []
    output.truncate(0)
    reader.seek(0)
    # While DVC sets up an experiment, params.yaml in the workspace contains its parameters. A second DVC process would
    # mistake them for the user's, and could even run the first experiment again.
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
    """Raise UserError if the files that DVC would run now no longer match the name of the experiment."""
    overrides = [override for override in experiment.overrides if not override.startswith(f"{SEED}=")]
    if identity(overrides) not in experiment.name:
        raise UserError(
            "params.yaml, the code or the data has changed since this command began. Run the command again. "
            "Finished runs are kept."
        )


def _lines(process: "subprocess.Popen[bytes]", reader: TextIO) -> Iterator[str]:
    """Yield the lines that a process writes to a file, as they appear, until the process has ended."""
    line, ended = "", False
    while not ended:
        ended = process.poll() is not None  # Poll before the last look at the file.
        while part := reader.readline():
            line += part
            if line.endswith("\n"):
                yield line
                line = ""
        time.sleep(_READ_SECONDS)
    if line:
        yield line
