"""Run one configuration over the seeds 1 to n, and print what its scores scatter around.

Each seed is a DVC experiment of its own, run in a temporary directory: the workspace and the queue are left alone.
Finished ones are found again by their name, and not repeated; Ctrl-C stops, and the next call goes on.
"""

import argparse
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
from itertools import chain
from pathlib import Path

import numpy as np
import yaml

from pipeline.cli import as_command
from pipeline.core.columns import aligned
from pipeline.core.messages import UserError, log
from pipeline.core.packages import require_locked
from pipeline.core.paths import SCORED
from pipeline.evaluation.uncertainty import SCORES, mean_interval
from pipeline.experiments.revisions import experiments, opened
from pipeline.params import PARAMS, load_params

_SEED = "train.seed"
_PIPELINE = Path("dvc.yaml")
_TOLD = re.compile(  # of a run's lines
    r"Running stage|training on|resuming|epoch \d|DEGENERATE|(validation|test): accuracy|SIG\w+:|stopped|what is done"
    r"|error:"
)
_LAST = 20  # lines of a run that failed


def group_name(overrides: list[str]) -> str:
    """`seeds-<digest>` of what may determine the results beside the seed.

    That is the parameters, dvc.yaml, the code and the lock that it names, and the environment of this machine.
    overrides: as after `dvc exp run -S`. Raises UserError for one that DVC or `load_params` refuses.
    """
    from dvc.exceptions import InvalidArgumentError
    from dvc.utils.hydra import apply_overrides

    from pipeline.modeling.environment import environment

    load_params()
    with tempfile.TemporaryDirectory() as scratch:
        params = Path(scratch, PARAMS)
        shutil.copy(PARAMS, params)
        for override in overrides:
            if re.match(rf"\+*{re.escape(_SEED)}=", override):
                raise UserError(f"-S {override}: the seeds are 1 to n; leave {_SEED} to --n")
            try:
                apply_overrides(params, [override])
            except InvalidArgumentError as error:
                reason = str(error.__cause__).splitlines()[0]
                raise UserError(f"-S {override}: {reason} Use key=value, with a key of {PARAMS}") from None
        try:
            asked = load_params(params)
        except UserError as error:
            raise UserError(str(error).replace(f"{params}", f"{PARAMS} with {' '.join(overrides)}")) from None
    tree = asdict(asked)
    del tree["train"]["seed"]
    surroundings = environment(asked.train.precision)
    digest = hashlib.sha256(json.dumps([tree, surroundings], sort_keys=True).encode())
    for file in _code():
        digest.update(file.read_bytes())
    return f"seeds-{digest.hexdigest()[:8]}"


def _code() -> list[Path]:
    """dvc.yaml, and the files that its stages depend on and none of them makes: code, and the lock of the packages.

    Without those of the report, which only shows the results, and without params.yaml, in which the seed stands.
    """
    stages = yaml.safe_load(_PIPELINE.read_text(encoding="utf-8"))["stages"]
    stages = [stage for name, stage in stages.items() if name != "report"]
    outs = [out for stage in stages for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
    made = {Path(out if isinstance(out, str) else next(iter(out))) for out in outs}
    deps = sorted({Path(dep) for stage in stages for dep in stage["deps"]} - {PARAMS})
    sources = [dep for dep in deps if made.isdisjoint([dep, *dep.parents])]
    # A sub-package is one dependency; its other files are not DVC's, see .dvcignore.
    modules = [sorted(dep.glob("*.py")) if dep.is_dir() else [dep] for dep in sources]
    return [_PIPELINE, *chain.from_iterable(modules)]


def run_seeds(n: int, overrides: list[str]) -> None:
    """Run what has not been run yet, and print the table. Raises UserError where a run fails."""
    group = group_name(overrides)
    finished = experiments(group)
    missing = [seed for seed in range(1, n + 1) if seed not in finished]
    log.info("%s: %d of %d seeds are there", group, n - len(missing), n)
    if missing:
        _require_identity()
    for seed in missing:
        _run(group, seed, n, overrides)
    print("\n".join(_report(group, n)))


def _require_identity() -> None:
    for key in ("user.name", "user.email"):
        if subprocess.run(["git", "config", key], stdout=subprocess.DEVNULL).returncode:
            raise UserError(f'git has no {key}, and DVC commits each experiment; git config {key} "..."')


def _run(group: str, seed: int, n: int, overrides: list[str]) -> None:
    """Run one experiment, and tell those of its lines by which one follows a training."""
    name, began = f"{group}-{seed}", time.monotonic()

    def tell(line: str) -> None:
        log.info("seed %d of %d, %s: %s", seed, n, timedelta(seconds=int(time.monotonic() - began)), line)

    command = ["dvc", "exp", "run", "--temp", "--name", name]
    for override in (*overrides, f"{_SEED}={seed}"):
        command += ["--set-param", override]
    lines = []
    # A process group of its own: what stops this command is passed on to all of it, once.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", process_group=0,
    ) as process, _stops_passed_on(process.pid):  # fmt: skip
        for line in process.stdout or ():
            lines.append(line)
            if _TOLD.match(line):
                tell(line.rstrip())
    if process.returncode or seed not in experiments(group):
        for line in lines[-_LAST:]:
            log.error("%s", line.rstrip())
        raise UserError(f"{name} failed; its last lines stand above")
    tell("done")


@contextmanager
def _stops_passed_on(group: int) -> Iterator[None]:
    """Pass SIGINT and SIGTERM on to a group of processes for the block, which ends when they do; then end likewise.

    The train stage saves a checkpoint first, or, stopped twice, ends at once.
    """
    stops = []

    def stop(number: int, _: object) -> None:
        stops.append(number)
        os.killpg(group, signal.SIGINT)  # SIGTERM would end dvc before its stage

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if stops:
        sys.exit(128 + stops[0])


def _report(group: str, n: int) -> list[str]:
    """The lines of the table over the seeds 1 to n, of the degenerate runs, and of what to type next."""
    scores: dict[str, list[float]] = {}
    degenerate = []
    for seed, reference in experiments(group).items():
        if seed > n:
            continue
        with opened(f"{group}-{seed}", reference) as revision:
            evaluation = revision.metrics("evaluation")
            if revision.metrics("train")["degenerate"]:
                degenerate.append(revision.name)
        for split in reversed(SCORED):
            for name in SCORES:
                scores.setdefault(f"{split} {SCORES[name]}", []).append(100 * evaluation[split][name])
    rows = [["", "n", "mean", "std. dev.", "lowest", "highest", "95 % interval of the mean"]]
    for title, values in scores.items():
        numbers = (np.mean(values), np.std(values, ddof=1), min(values), max(values))
        interval = mean_interval(values)
        rows.append(
            [title, str(n), *(f"{number:.2f}" for number in numbers), f"{interval.low:.2f} to {interval.high:.2f}"]
        )
    return [
        *aligned(rows, "right"),
        "In percent.",
        f"Degenerate, one class for every validation pair: {len(degenerate)} of {n}"
        + (f" ({', '.join(degenerate)}), counted above" if degenerate else ""),
        f"To compare: python -m pipeline.compare {group} OTHER",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.seeds", description=__doc__)
    parser.add_argument("--n", type=int, required=True, help="how many seeds: 1 to n, at least 2")
    parser.add_argument(
        "-S", "--set-param", dest="overrides", metavar="key=value", action="append", default=[],
        help='a parameter of every run, as for "dvc exp run"',
    )  # fmt: skip
    arguments = parser.parse_args()
    with as_command():
        if arguments.n < 2:
            raise UserError(f"--n is {arguments.n}; it must be at least 2, since one run scatters around nothing")
        require_locked()
        run_seeds(arguments.n, arguments.overrides)


if __name__ == "__main__":
    main()
