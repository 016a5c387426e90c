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
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Event, Lock

from pipeline.core.messages import UserError, log
from pipeline.core.paths import PARAMS, users_path
from pipeline.core.stage import code_digest, digest, leaves
from pipeline.core.yaml12 import read_yaml
from pipeline.params import load_params

SEED = "train.seed"
FOLD = "data.split.fold"
STAGES = ("download", "pretrained", "tokenize", "train", "predict")  # the stages that lead to a model's predictions
DVC = (sys.executable, "-m", "dvc")  # the DVC of this Python environment, even if the environment is not activated
_CLONES = Path(".dvc/tmp/runs")  # DVC's own .gitignore covers this directory.
_FILES = ("data.directory", "data.corrections", "model.checkpoint")  # keys that may name files of the user


def git(*arguments: str | Path) -> str:
    """Return what a git command prints. Raises UserError with git's own words if it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"git {' '.join(map(str, arguments))} failed: {' '.join(done.stderr.split())}")
    return done.stdout


def experiments() -> dict[str, str]:
    """Return the commit of each DVC experiment, keyed by name. If several have the same name, the newest one counts."""
    # DVC keeps an experiment in refs/exps/<2 digits>/<38 digits>/<name>. "dvc exp list" does not show full hashes.
    listing = git("for-each-ref", "--sort=creatordate", "--format=%(objectname) %(refname)", "refs/exps")
    references = re.findall("^(.+) refs/exps/[0-9a-f]{2}/[0-9a-f]+/(.+)$", listing, re.M)
    return {name: commit for commit, name in references}


def group_name(overrides: Sequence[str], varied: str = SEED) -> str:
    """Return the name of a group of runs, such as "lr=1e-4-3f2a1c", or "base-3f2a1c" without overrides.

    The digits are a hash of everything that can change a prediction: the settings, the code and the user's files.

    Args:
        overrides: Parameters as for `dvc exp run -S`. They must not contain the varied key.
        varied: The key that differs between the runs of the group: SEED or FOLD.
    """
    load_params()  # raises UserError if params.yaml has an error
    values, changed = dict(leaves(read_yaml(PARAMS))), split_overrides(overrides)
    if varied in changed:
        raise UserError(f"-S {varied}={changed[varied]}: this command chooses {varied} for each run. Remove it.")
    unimportant = (varied, "data.name", "evaluate.", "runtime.")
    settings = {key: value for key, value in values.items() if not key.startswith(unimportant)}
    files = [users_path(str((values | changed).get(key))) for key in _FILES]
    stages = [*STAGES, "baseline"] if varied == FOLD else STAGES
    code = [code_digest(stage) for stage in stages]
    content = [settings, sorted(overrides), code, digest([Path("dvc.yaml"), Path("compute.lock"), *files])]
    digits = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6]
    title = "+".join(f"{key.rpartition('.')[2]}={value}" for key, value in changed.items()) or "base"
    return f"{re.sub('[^a-zA-Z0-9=+.-]+', '-', title)[:40].strip('.-')}-{digits}"


def split_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """Return the values of parameters such as "train.lr=1e-4" by their keys. "++" before a key is left out."""
    return dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)


def run_experiments(runs: Mapping[str, Sequence[str]], jobs: int, stages: Sequence[str]) -> dict[str, str]:
    """Run the experiments that are not finished, and return the errors of those that failed, by name.

    Args:
        runs: Parameters as for `dvc exp run -S`, keyed by the name of the experiment.
        stages: The stages to run, together with the stages that they need.
    """
    return _Launcher(stages, stop_at_failure=False).run(runs, jobs)


def require_experiments(runs: Mapping[str, Sequence[str]], jobs: int, stages: Sequence[str]) -> None:
    """Do the same as `run_experiments`, but start no further run after a failure, and raise it as a UserError."""
    for name, error in _Launcher(stages, stop_at_failure=True).run(runs, jobs).items():
        raise UserError(f"{name} failed: {error}")


def clone_repository(clone: Path) -> dict[str, str]:
    """Clone the repository in the working directory, and let DVC use the same cache in the clone.

    Returns:
        Environment variables for DVC in the clone. Its stages run the current Python as `python`.
    """
    # DVC commits an experiment, which needs a user.
    user = [f"--config={key}={git('config', '--default=pipeline', key).strip()}" for key in ("user.name", "user.email")]
    git("clone", "--quiet", *user, Path.cwd(), clone)
    subprocess.run([*DVC, "cache", "dir", "--local", cache_directory()], cwd=clone, check=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # Otherwise, DVC leaves a directory for each clone in /var/tmp.
    return {**os.environ, "PATH": path, "DVC_SITE_CACHE_DIR": str((clone / ".dvc" / "tmp").absolute())}


def cache_directory() -> str:
    """Return the absolute path of the DVC cache of the repository in the working directory."""
    from dvc.repo import Repo

    with closing(Repo()) as repo:
        return str(repo.cache.local_cache_dir)


class _Launcher:
    """Runs experiments in clones, so that the user may edit files at the same time."""

    def __init__(self, stages: Sequence[str], *, stop_at_failure: bool) -> None:
        self._stages, self._stop_at_failure = stages, stop_at_failure
        # All runs use the commit and the files as they are now. The options override the user's configuration of git.
        self._base = git("rev-parse", "HEAD").strip()
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
        self._edits = subprocess.check_output(["git", "diff", "HEAD", "--binary", *options])
        self._children: list[subprocess.Popen[str]] = []
        self._stopping = Event()
        self._lock = Lock()  # so that no child starts after an interruption

    def run(self, runs: Mapping[str, Sequence[str]], jobs: int) -> dict[str, str]:
        if runs.keys() <= experiments().keys():
            log.info("all %d runs are finished", len(runs))
            return {}
        _CLONES.parent.mkdir(exist_ok=True)
        # DVC inherits the lock and keeps it until it ends, even if this command is killed.
        with _CLONES.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("waiting until another command, or the runs of a killed command, have ended")
                fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.rmtree(_CLONES, ignore_errors=True)  # what a killed command has left
            try:
                return self._run_missing(runs, jobs, lock.fileno())
            finally:
                shutil.rmtree(_CLONES, ignore_errors=True)

    def _run_missing(self, runs: Mapping[str, Sequence[str]], jobs: int, lock: int) -> dict[str, str]:
        finished = experiments()
        missing = [name for name in runs if name not in finished]
        log.info("%d of %d runs are finished", len(runs) - len(missing), len(runs))
        errors: dict[str, str] = {}
        began = time.monotonic()
        pool = ThreadPoolExecutor(jobs)
        try:
            names = {pool.submit(self._run, name, runs[name], lock): name for name in missing}
            for count, future in enumerate(as_completed(names), 1):
                if error := future.result():
                    errors[names[future]] = error
                if (to_go := len(missing) - count) and not self._stopping.is_set():
                    seconds = round((time.monotonic() - began) / count * to_go)
                    log.info("runs to go: %d, about %s", to_go, timedelta(seconds=seconds))
        except BaseException:  # such as SystemExit after a signal
            with self._lock:
                self._stopping.set()
                for child in self._children:
                    if child.poll() is None:
                        os.killpg(child.pid, signal.SIGINT)  # SIGTERM would end DVC before its stage.
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return errors

    def _run(self, name: str, overrides: Sequence[str], lock: int) -> str | None:
        """Run an experiment. Returns an error, or None if it has finished, or if no more runs are to start."""
        if self._stopping.is_set():
            return None
        clone = _CLONES / name
        environ = clone_repository(clone) | {"USERS_REPOSITORY": str(Path.cwd())}
        git("-C", clone, "reset", "--quiet", "--hard", self._base)
        if self._edits:
            subprocess.run(["git", "apply", "--whitespace=nowarn"], cwd=clone, input=self._edits, check=True)
        # "++" also adds a new key. The stage check rejects an unknown key.
        settings = [f"--set-param=++{override.lstrip('+')}" for override in overrides]
        with self._lock:
            if self._stopping.is_set():
                return None
            child = subprocess.Popen(
                [*DVC, "exp", "run", "--name", name, *settings, *self._stages], cwd=clone, env=environ,
                process_group=0, pass_fds=[lock], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
            )  # fmt: skip
            self._children.append(child)
        lines = []
        for line in map(str.rstrip, filter(str.strip, child.stdout or ())):
            lines.append(line)
            if line != "Experiment results have been applied to your workspace.":  # but to the clone
                log.info("%s: %s", name, line)
        if child.wait() == 0:
            experiment = f"refs/exps/{self._base[:2]}/{self._base[2:]}/{name}"
            git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", clone, f"{experiment}:{experiment}")
        elif self._stop_at_failure:
            self._stopping.set()
        shutil.rmtree(clone, ignore_errors=True)
        # The error of a stage, which starts with "error: ", comes before the error of DVC.
        errors = [line for line in lines if line.lower().startswith("error: ")]
        return None if child.returncode == 0 else next(iter(errors or reversed(lines)), "it printed nothing")
