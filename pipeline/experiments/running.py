"""Run DVC experiments in temporary directories, one after another or several at a time by DVC's queue."""

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TextIO

import psutil

from pipeline.core.messages import UserError, log
from pipeline.experiments.dvc_command import DVC, dvc_environ
from pipeline.experiments.identity import SEED, identity
from pipeline.experiments.revisions import experiment_names

_PROGRESS = re.compile(  # the lines of a run that are shown
    r"Running stage|training on|resuming|epoch \d|DEGENERATE|(validation|test)\w*: \w+ -?\d|SIG\w+:|stopped"
    r"|checkpoints are kept|error:"
)
_QUEUE = Path(".dvc", "tmp", "exps", "celery")
_POLL_SECONDS = 2
_READ_SECONDS = 0.1
# A look at DVC's queue asks its workers, and now and then one dies of reading a question that is only half written:
# https://github.com/treeverse/dvc/issues/10428. So they are rarely asked, and started again; and so may a look fail.
_LOOK_SECONDS = 30
_TRIES = 3  # of a look
_STARTS_SECONDS = 5  # from the queue's "Running" to the process
_TAIL = 20  # lines shown of a run that failed


def require_identity() -> None:
    """Raise UserError where git could not commit an experiment."""
    for key in ("user.name", "user.email"):
        if subprocess.run(["git", "config", key], stdout=subprocess.DEVNULL).returncode:
            raise UserError(f'git has no {key}, and DVC commits each experiment; git config {key} "..."')


class Experiment(NamedTuple):
    """What to run. what: it is, for the lines that tell its progress. stages: up to these; none: all."""

    name: str
    overrides: list[str]
    what: str
    stages: Sequence[str] = ()


class Ended(NamedTuple):
    """A run that has ended. error: empty where it is an experiment now. reason: the run's own line, if it had one."""

    name: str
    error: str = ""
    reason: str = ""


def run_all(experiments: Sequence[Experiment], jobs: int) -> Iterator[Ended]:
    """Run experiments that have not ended, `jobs` at a time. Yields each as it ends."""
    for experiment in experiments:
        _await_left(experiment)
    known, missing = experiment_names(), []
    for experiment in experiments:
        if experiment.name in known:
            log.info("%s: done", experiment.what)
            yield Ended(experiment.name)
        else:
            missing.append(experiment)
    if missing and (jobs > 1 or _workers()):  # which an earlier command has left, perhaps with some of the experiments
        yield from _run_queued(missing, jobs)
        return
    for experiment in missing:
        _await_left(experiment)  # which another command may have begun meanwhile
        if experiment.name in experiment_names():
            log.info("%s: done", experiment.what)
            yield Ended(experiment.name)
            continue
        _require_unchanged(experiment)
        yield _run(experiment)


def _require_unchanged(experiment: Experiment) -> None:
    """Raise UserError where DVC would take other files under this name than those that the name is a digest of."""
    overrides = [override for override in experiment.overrides if not override.startswith(f"{SEED}=")]
    if identity(overrides) not in experiment.name:
        raise UserError(
            "params.yaml, the code or the data has changed since this command began; finished runs stay: run it again"
        )


def _run(experiment: Experiment) -> Ended:
    name, overrides, what, stages = experiment
    began = time.monotonic()

    def tell(line: str) -> None:
        log.info("%s, %s: %s", what, timedelta(seconds=int(time.monotonic() - began)), line)

    command = [*DVC, "exp", "run", "--temp", "--name", name, *_settings(overrides), *stages]
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        log_file = Path(scratch, "log")
        # A file, not a pipe: a run whose parent is killed would fail at its next line. And a process group of its own:
        # a signal to this command is forwarded to all of it, once.
        with log_file.open("w") as output, log_file.open(errors="replace") as written, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=dvc_environ(), process_group=0,
        ) as process, signals_forwarded(process.pid):  # fmt: skip
            for line in _lines(process, written):
                lines.append(line)
                if _PROGRESS.match(line):
                    tell(line.rstrip())
    if process.returncode or name not in experiment_names():
        for line in lines[-_TAIL:]:
            log.error("%s", line.rstrip())
        reason = _reason(lines)
        return Ended(name, f"{name} failed ({reason or 'its last lines are above'})", reason)
    tell("done")
    return Ended(name)


def _lines(process: subprocess.Popen[bytes], written: TextIO) -> Iterator[str]:
    """Yield the lines of a file that a process writes, as they come, until the process has ended."""
    line, ended = "", False
    while not ended:
        ended = process.poll() is not None  # before the last look at the file
        while part := written.readline():
            line += part
            if line.endswith("\n"):
                yield line
                line = ""
        time.sleep(_READ_SECONDS)
    if line:
        yield line


def _reason(lines: Sequence[str]) -> str:
    """The line in which a stage says why it failed; empty for one that was killed."""
    return next((line for line in reversed(lines) if line.startswith("error: ")), "").strip()


def _await_left(experiment: Experiment) -> None:
    """Wait for the end of an experiment that another command runs, or was killed and has left, outside DVC's queue."""
    if left := _left_running(experiment.name):
        log.info(
            "%s: already under way (process %d), by another command; waiting for its end",
            experiment.what, left.pid,
        )  # fmt: skip
        while _left_running(experiment.name):  # psutil's wait never ends where nobody collects an orphan's status
            time.sleep(_POLL_SECONDS)


def _left_running(name: str) -> psutil.Process | None:
    """The process of DVC that runs an experiment of this repository already, in a temporary directory of it."""
    for process in psutil.process_iter(["cmdline", "cwd"]):  # None where it is another user's
        command = [word for word in process.info["cmdline"] or () if word in ("exp", name)]
        if command == ["exp", name] and Path(process.info["cwd"] or "/").is_relative_to(Path.cwd()):
            return process
    return None


def _run_queued(experiments: Sequence[Experiment], jobs: int) -> Iterator[Ended]:
    """By DVC's queue, whose workers go on where this process is killed: what it has of a name already is waited for."""
    under_way, lost = _queue()
    if lost or _workers():  # or just about to start
        time.sleep(_STARTS_SECONDS)
        also_under_way, still_lost = _queue()
        under_way = (under_way | also_under_way) - (lost & still_lost)
    known = experiment_names()  # what has ended in the meantime, and is not in the queue any more
    for experiment in experiments:
        if experiment.name not in under_way | known.keys():
            _require_unchanged(experiment)
            settings = _settings(experiment.overrides)
            _dvc("exp", "run", "--queue", "--name", experiment.name, *settings, *experiment.stages)
    waiting = {experiment.name: experiment for experiment in experiments}
    if others := under_way - waiting.keys():
        log.info(
            "other experiments in DVC's queue, which come first: %d; dvc queue status lists them, "
            "dvc queue remove NAME takes one out", len(others),
        )  # fmt: skip
    try:
        yield from _ended(waiting, jobs)
    except (SystemExit, GeneratorExit):  # a signal; a caller that stops at a failure
        if waiting:
            log.info("DVC's queue goes on without this command; to stop it: dvc queue stop --kill")
        raise


def _ended(waiting: dict[str, Experiment], jobs: int) -> Iterator[Ended]:
    """Keep `jobs` workers at the queue until all these experiments have ended. Yields as `run_all`."""
    next_look, gone = -math.inf, set[str]()
    while waiting:
        ended = waiting.keys() & experiment_names().keys()
        if time.monotonic() > next_look:
            if _workers() < jobs:
                _dvc("queue", "start", "--jobs", str(jobs), tries=_TRIES)  # those that do not run
            under_way, lost = _queue()
            before, gone = gone, waiting.keys() - (under_way - lost)
            ended |= gone & before
            next_look = time.monotonic() + (_STARTS_SECONDS if gone - ended else _LOOK_SECONDS)
        for name in [name for name in waiting if name in ended]:
            failed = name not in experiment_names()
            log.info("%s: %s", waiting.pop(name).what, "failed" if failed else "done")
            yield _failed_in_queue(name) if failed else Ended(name)
        time.sleep(_POLL_SECONDS)


def _failed_in_queue(name: str) -> Ended:
    lines: list[str] = []
    with suppress(UserError):  # DVC has no log of one that was killed early, or removed
        lines = _dvc("queue", "logs", name).splitlines()
    reason = _reason(lines)
    return Ended(name, f"{name} failed ({reason or 'it did not say why'}); see dvc queue logs {name}", reason)


def _workers() -> int:
    """How many of the queue's workers run. DVC takes one that is too busy to answer for none, and starts another."""
    running = 0
    for file in _QUEUE.glob("dvc-exp-worker-*.pid"):
        with suppress(OSError, ValueError, psutil.Error):
            running += "queue-worker" in psutil.Process(int(file.read_text())).cmdline()
    return running


def _queue() -> tuple[set[str], set[str]]:
    """The names of the experiments in DVC's queue that wait or run; and of these, those that no process runs.

    DVC takes what a worker has begun for running, also where that worker was killed. It lists an experiment that is
    queued again beside its failure. It looks for what runs before what waits, and misses what starts in between: only
    what two looks miss has ended.
    """
    rows = [line.split() for line in _dvc("queue", "status", tries=_TRIES).splitlines()]
    names = {state: {(row[0], row[1]) for row in rows if row[-1:] == [state]} for state in ("Queued", "Running")}
    running = {name for _, name in names["Running"]}
    alive = {name for _, name in names["Queued"]} | {name for task, name in names["Running"] if _executes(task)}
    return running | alive, running - alive


def _executes(task: str) -> bool:
    """Whether a process runs this task of the queue."""
    commands = (process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"]))
    return any("exec-run" in command and any(f"{os.sep}{task}" in word for word in command) for command in commands)


def _dvc(*arguments: str, tries: int = 1) -> str:
    for _ in range(tries):
        # Files, not pipes: the workers that "queue start" leaves behind would keep a pipe open, and be waited for.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(
                [*DVC, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dvc_environ()
            )
            out.seek(0), err.seek(0)
            printed, errors = out.read(), err.read().splitlines()
        if done.returncode == 0:
            return printed
    reason = next((line for line in errors if line.startswith("ERROR: ")), f"status {done.returncode}")
    raise UserError(f"dvc {' '.join(arguments[:2])} fails: {reason.removeprefix('ERROR: ')}")


def _settings(overrides: list[str]) -> list[str]:
    return [argument for override in overrides for argument in ("--set-param", override)]


@contextmanager
def signals_forwarded(group: int) -> Iterator[None]:
    """Forward SIGINT, SIGTERM and SIGHUP to a process group while the block waits for its end; then exit as they do.

    The train stage saves a checkpoint first; at a second signal it ends at once.
    """
    received = []

    def forward(number: int, _: object) -> None:
        received.append(number)
        if hasattr(os, "killpg"):  # a console of Windows has sent Ctrl-C to all processes itself
            os.killpg(group, signal.SIGINT)  # SIGTERM would end dvc before its stage

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        sys.exit(128 + received[0])
