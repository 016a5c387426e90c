"""Groups of experiments, one configuration over several seeds: their name, their runs, the table of their scores."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import numpy as np

from pipeline.core.columns import aligned
from pipeline.core.messages import UserError, log
from pipeline.core.yaml12 import read_yaml
from pipeline.evaluation.metrics import Metric, by_title
from pipeline.evaluation.uncertainty import mean_interval
from pipeline.experiments.comparison import OPTIMISTIC
from pipeline.experiments.render import in_units
from pipeline.experiments.revisions import experiments, opened
from pipeline.params import PARAMS, Params, load_params

_SEED = "train.seed"
_PIPELINE = Path("dvc.yaml")
_CODE = {".py", ".jinja", ".js"}  # of a sub-package's files, those that are DVC's: see .dvcignore
_PROGRESS = re.compile(  # the lines of a run that are shown
    r"Running stage|training on|resuming|epoch \d|DEGENERATE|(validation|test)\w*: \w+ -?\d|SIG\w+:|stopped"
    r"|checkpoints are kept|error:"
)
_TAIL = 20  # lines shown of a run that failed


def group_name(overrides: list[str]) -> str:
    """`seeds-<digest>`, a digest of all that may determine the results except the seed.

    That is the parameters, dvc.yaml, the code and the lock file that it names, the user's own data, and the environment
    of this machine.
    overrides: as for `dvc exp run -S`. Raises UserError for one that DVC or `load_params` refuses.
    """
    from pipeline.modeling.device import usable_device
    from pipeline.modeling.environment import environment

    params = asdict(_overridden(overrides))
    surroundings = environment(usable_device(params["train"]["precision"]))
    del params["train"]["seed"]
    params["runtime"] = params["runtime"]["launcher"]  # the other keys cannot change a result
    digest = hashlib.sha256(json.dumps([params, surroundings], sort_keys=True).encode())
    for file in _code() + (_own_data(Path(params["data"]["directory"])) if params["data"]["task"] == "own" else []):
        with file.open("rb") as content:
            digest.update(f"{file} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return f"seeds-{digest.hexdigest()[:8]}"


def _overridden(overrides: list[str]) -> Params:
    """params.yaml with the overrides of a run. Raises UserError as `group_name`."""
    from dvc.exceptions import InvalidArgumentError
    from dvc.utils.hydra import apply_overrides  # private to DVC; no public way applies -S without a run

    load_params()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, PARAMS)
        shutil.copy(PARAMS, copy)
        for override in overrides:
            if re.match(rf"\+*{re.escape(_SEED)}=", override):
                raise UserError(f"-S {override}: the seeds are 1 to n; leave {_SEED} to --n")
            try:
                apply_overrides(copy, [override])
            except InvalidArgumentError as error:
                reason = str(error.__cause__).splitlines()[0]
                raise UserError(f"-S {override}: {reason} Use key=value, with a key of {PARAMS}") from None
        try:
            return load_params(copy)
        except UserError as error:
            raise UserError(str(error).replace(f"{copy}", f"{PARAMS} with {' '.join(overrides)}")) from None


def _code() -> list[Path]:
    """dvc.yaml and the dependencies of its stages that no stage writes: code, and the lock file of the packages.

    Without those of the report, which only shows results, and without params.yaml, which holds the seed.
    """
    stages = read_yaml(_PIPELINE)["stages"]
    stages = [stage for name, stage in stages.items() if name != "report"]
    outs = [out for stage in stages for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
    written = {Path(out if isinstance(out, str) else next(iter(out))) for out in outs}
    deps = {Path(dep) for stage in stages for dep in stage["deps"]} - {PARAMS}
    sources = [dep for dep in deps if written.isdisjoint([dep, *dep.parents])]
    files = {file for dep in sources if dep.is_dir() for file in dep.rglob("*") if file.suffix in _CODE}
    return [_PIPELINE, *sorted(files | {dep for dep in sources if dep.is_file()})]


def _own_data(directory: Path) -> list[Path]:
    """The files of `data.directory`, but git's and DVC's own."""
    files = (file for file in directory.rglob("*") if file.is_file())
    return sorted(file for file in files if not file.name.startswith(".") and file.suffix != ".dvc")


def run_seeds(n: int, overrides: list[str]) -> None:
    """Run the seeds 1 to n that have no experiment yet, and print the table. Raises UserError where a run fails."""
    group = group_name(overrides)
    finished = experiments(group)
    missing = [seed for seed in range(1, n + 1) if seed not in finished]
    log.info("%s: %d of %d seeds are finished", group, n - len(missing), n)
    if missing:
        _require_identity()
    for seed in missing:
        _run(group, seed, n, overrides)
    print("\n".join(_summary(group, n)))


def _require_identity() -> None:
    for key in ("user.name", "user.email"):
        if subprocess.run(["git", "config", key], stdout=subprocess.DEVNULL).returncode:
            raise UserError(f'git has no {key}, and DVC commits each experiment; git config {key} "..."')


def _run(group: str, seed: int, n: int, overrides: list[str]) -> None:
    """Run one experiment, and log its progress."""
    name, began = f"{group}-{seed}", time.monotonic()

    def tell(line: str) -> None:
        log.info("seed %d of %d, %s: %s", seed, n, timedelta(seconds=int(time.monotonic() - began)), line)

    command = ["dvc", "exp", "run", "--temp", "--name", name]
    for override in (*overrides, f"{_SEED}={seed}"):
        command += ["--set-param", override]
    lines = []
    # A process group of its own: a signal to this command is forwarded to all of it, once.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", process_group=0,
    ) as process, _signals_forwarded(process.pid):  # fmt: skip
        for line in process.stdout or ():
            lines.append(line)
            if _PROGRESS.match(line):
                tell(line.rstrip())
    if process.returncode or seed not in experiments(group):
        for line in lines[-_TAIL:]:
            log.error("%s", line.rstrip())
        raise UserError(f"{name} failed; see its last lines above")
    tell("done")


@contextmanager
def _signals_forwarded(group: int) -> Iterator[None]:
    """Forward SIGINT and SIGTERM to a process group while the block waits for its end; then exit with their status.

    The train stage saves a checkpoint first; at a second signal it ends at once.
    """
    received = []

    def forward(number: int, _: object) -> None:
        received.append(number)
        if hasattr(os, "killpg"):  # a console of Windows has sent Ctrl-C to all processes itself
            os.killpg(group, signal.SIGINT)  # SIGTERM would end dvc before its stage

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        sys.exit(128 + received[0])


def _summary(group: str, n: int) -> list[str]:
    """The lines of the table over the seeds 1 to n, of the degenerate runs, and of the command to type next."""
    scores: dict[str, tuple[Metric, list[float]]] = {}
    degenerate = []
    for seed, reference in experiments(group).items():
        if seed > n:
            continue
        with opened(f"{group}-{seed}", reference) as revision:
            evaluation = revision.evaluation()
            if revision.details("train")["degenerate"]:
                degenerate.append(revision.name)
        for title, (metric, score) in by_title(evaluation).items():
            scores.setdefault(title, (metric, []))[1].append(score)
    rows = [["", "n", "mean", "std. dev.", "lowest", "highest", "95 % interval of the mean"]]
    for title, (metric, values) in scores.items():
        numbers = (float(np.mean(values)), float(np.std(values, ddof=1)), min(values), max(values))
        interval = " to ".join(metric.shown(limit, 2) for limit in mean_interval(values))
        rows.append([title, str(n), *(metric.shown(number, 2) for number in numbers), interval])
    return [
        *aligned(rows, "right"),
        in_units(metric for metric, _ in scores.values()),
        *([] if any(title.startswith("test ") for title in scores) else [OPTIMISTIC]),
        f"Degenerate, one prediction for all of validation: {len(degenerate)} of {n}"
        + (f" ({', '.join(degenerate)}), counted above" if degenerate else ""),
        f"To compare: python -m pipeline.compare {group} OTHER",
    ]
