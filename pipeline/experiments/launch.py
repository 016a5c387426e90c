"""Run DVC experiments, each in a clone of the repository, and find finished ones again by name."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError, log, one_line
from pipeline.core.packages import require_locked
from pipeline.core.paths import METRICS_DIR, PARAMS, users_path
from pipeline.core.stage import digest, leaves, stage_inputs
from pipeline.core.yaml12 import read_yaml
from pipeline.params import load_params

SEED = "train.seed"
FOLD = "data.split.fold"
STAGES = ("download", "pretrained", "tokenize", "train", "predict")  # the stages that lead to a model's predictions
DVC = (sys.executable, "-m", "dvc")  # the DVC of this Python environment, even if the environment is not activated
_RUNS = Path(".dvc/tmp/runs")  # DVC's own .gitignore covers this directory.
_CLONE = _RUNS / "clone"  # of the repository when a command starts; each run gets a copy
_FILES = ("data.directory", "data.corrections", "model.checkpoint")  # keys that may name files of the user


def git(*arguments: str | Path) -> str:
    """Return what a git command prints. Raises UserError with git's own words if it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"git {' '.join(map(str, arguments))} failed: {one_line(done.stderr)}")
    return done.stdout


def experiments() -> dict[str, str]:
    """Return the commit of each DVC experiment, keyed by name. If several have the same name, the newest one counts."""
    # DVC keeps an experiment in refs/exps/<2 digits>/<38 digits>/<name>. "dvc exp list" does not show full hashes.
    refs = git("for-each-ref", "--sort=creatordate", "--format=%(refname:lstrip=4) %(objectname)", "refs/exps/??/*/*")
    return dict(line.split() for line in refs.splitlines())


def group_name(overrides: Sequence[str], varied: str = SEED, stages: Sequence[str] = STAGES) -> str:
    """Return the name of a group of runs, such as "lr=1e-4-3f2a1c", or "base-3f2a1c" without overrides.

    The digits are a hash of everything that can change a prediction (the settings and the code of the stages, and the
    user's files), except for the key that varies within the group.
    """
    load_params()  # raises UserError if params.yaml has an error
    values, changed = dict(leaves(read_yaml(PARAMS))), split_overrides(overrides)
    inputs = [stage_inputs(stage) for stage in stages]
    for parameters in inputs:
        parameters.pop(f"{PARAMS}: {varied}", None)
    files = [users_path(str((values | changed).get(key))) for key in _FILES]
    content = [inputs, sorted(overrides), digest([Path("dvc.yaml"), Path("compute.lock"), *files])]
    title = "+".join(f"{key.rpartition('.')[2]}={value.rpartition('/')[2]}" for key, value in changed.items()) or "base"
    title = re.sub(r"([^a-zA-Z0-9=+.-]|\.\.)+", "-", title)  # what git allows in the name of a reference
    return f"{title[:40].strip('.-')}-{hash_record(content)[:6]}"


def hash_record(record: Any) -> str:
    """Return a short hash of a JSON value, such as the content of a source.json."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]


def split_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """Return the values of parameters such as "train.lr=1e-4" by their keys. "++" before a key is left out."""
    return dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)


def run_experiments(runs: Mapping[str, Sequence[str]], jobs: int, stages: Sequence[str]) -> None:
    """Run the experiments that are not finished. When all have ended, raises the error of the first one that failed.

    Args:
        runs: Parameters as for `dvc exp run -S`, keyed by the name of the experiment.
        stages: The stages to run, together with the stages that they need.
    """
    require_locked()
    if runs.keys() <= experiments().keys():
        log.info("all %d runs are finished", len(runs))
        return
    # All runs use the commit and the files as they are now, so that the user may edit files at the same time.
    base = git("rev-parse", "HEAD").strip()
    # Otherwise, the user's settings of git may lead to a diff that "git apply" cannot read.
    options = ("--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--no-prefix")
    edits = subprocess.check_output(["git", "diff", "HEAD", *options])
    _RUNS.parent.mkdir(exist_ok=True)
    with _RUNS.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting until another command, or the runs of a killed command, have ended")
            fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(_RUNS, ignore_errors=True)  # what a killed command has left
        finished = experiments()
        missing = [name for name in runs if name not in finished]
        log.info("%d of %d runs are finished", len(runs) - len(missing), len(runs))
        try:
            environ = clone_repository(_CLONE) | {"USERS_REPOSITORY": str(Path.cwd())}
            git("-C", _CLONE, "reset", "--quiet", "--hard", base)
            if edits:
                subprocess.run(["git", "apply", "-p0", "--whitespace=nowarn"], cwd=_CLONE, input=edits, check=True)
            # These are the scores of another model. If DVC restores train from its cache, train does not remove them.
            (_CLONE / METRICS_DIR / "evaluation.json").unlink(missing_ok=True)
            # "++" also adds a new key. The stage check rejects an unknown key.
            settings = {name: [f"--set-param=++{override.lstrip('+')}" for override in runs[name]] for name in missing}
            commands = {name: [*DVC, "exp", "run", "--name", name, *settings[name], *stages] for name in missing}
            # DVC keeps the lock until it ends, even if this process is killed.
            _run_commands(commands, jobs, env=environ, pass_fds=[lock.fileno()])
        finally:
            shutil.rmtree(_RUNS, ignore_errors=True)


def clone_repository(clone: Path) -> dict[str, str]:
    """Clone the repository in the working directory, and return environment variables for DVC in the clone."""
    # DVC commits an experiment, which needs a user.
    user = [f"--config={key}={git('config', '--default=pipeline', key).strip()}" for key in ("user.name", "user.email")]
    git("clone", "--quiet", *user, Path.cwd(), clone)
    subprocess.run([*DVC, "cache", "dir", "--local", cache_directory()], cwd=clone, check=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # Stages run this Python.
    # Otherwise, DVC leaves a directory for each clone in /var/tmp.
    return {**os.environ, "PATH": path, "DVC_SITE_CACHE_DIR": str((clone / ".dvc" / "tmp").absolute())}


def cache_directory() -> str:
    """Return the absolute path of the DVC cache of the repository in the working directory."""
    from dvc.repo import Repo

    with Repo() as repo:
        return str(repo.cache.local_cache_dir)


def _run_commands(commands: Mapping[str, list[str]], jobs: int, **options: Any) -> None:
    """Run the commands of DVC, `jobs` at a time. Raises the first error when all of them have ended."""
    children: list[subprocess.Popen[str]] = []
    began = time.monotonic()
    with ThreadPoolExecutor(jobs) as threads:
        runs = [threads.submit(_run, name, command, children, **options) for name, command in commands.items()]
        try:
            for count, run in enumerate(runs, 1):
                run.exception()  # waits for the run
                if to_go := len(runs) - count:
                    seconds = round((time.monotonic() - began) / count * to_go)
                    log.info("runs to go: %d, about %s", to_go, timedelta(seconds=seconds))
        except BaseException:  # such as SystemExit after a signal
            threads.shutdown(wait=False, cancel_futures=True)
            while not all(run.done() for run in runs):  # Until then, a run may still start its command.
                while children:
                    if (child := children.pop()).poll() is None:
                        os.killpg(child.pid, signal.SIGINT)  # SIGTERM would end DVC before its stage.
                time.sleep(0.1)
            raise
    for run in runs:
        run.result()  # raises the error of a failed run


def _run(name: str, command: list[str], children: list["subprocess.Popen[str]"], **options: Any) -> None:
    """Run a command of DVC in a copy of the clone, and fetch its experiment. Raises UserError if it fails."""
    directory = shutil.copytree(_CLONE, _RUNS / name, symlinks=True)
    child = subprocess.Popen(
        command, cwd=directory, process_group=0, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", **options,
    )  # fmt: skip
    children.append(child)
    error = "it printed nothing"
    for line in map(str.rstrip, child.stdout or ()):
        if line and line != "Experiment results have been applied to your workspace.":  # but to the clone
            log.info("%s: %s", name, line)
            if not error.lower().startswith("error: "):  # The error of a stage comes before the error of DVC.
                error = line
    if child.wait():
        raise UserError(f"{name} failed: {error}")
    git("fetch", "--quiet", "--no-tags", directory, f"refs/exps/*/{name}:refs/exps/*/{name}")
    shutil.rmtree(directory, ignore_errors=True)
