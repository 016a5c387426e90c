"""Kill the pipeline at random moments until it finishes, and compare its result with that of an undisturbed run.

    python tests/chaos.py --kills 20

`dvc repro` trains MiniLM on the embedded corpus in a temporary clone. The training process, or its whole process
group including dvc, gets a SIGKILL or SIGTERM.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

SETTINGS: dict[str, Any] = {
    "data.task": "demo",
    "data.directory": "data/empty",  # not the user's data
    "model.checkpoint": "sentence-transformers/all-MiniLM-L6-v2",
    "train.lr": 1e-4,
    "train.epochs": 2,
    "runtime.save_steps": 10,
    "runtime.timeout": 30,  # a launcher's processes outlive a killed launcher, and wait for each other for this long
}

# DVC rewrites these two files in place. A kill at that moment truncates one of them, and DVC then fails until the user
# removes it (for rwlock, see https://github.com/treeverse/dvc/issues/7615). The keys are parts of DVC's messages.
TRUNCATED = {"Unable to read RWLock-file": Path(".dvc", "tmp", "rwlock"), "'./dvc.lock' ": Path("dvc.lock")}


def start(project: Path, env: dict[str, str], log: Path) -> psutil.Popen:
    """Start `dvc repro` in its own process group, and write its output to a file."""
    with log.open("w") as output:
        return psutil.Popen(
            ["dvc", "repro"], cwd=project, env=env,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip


def kill(repro: psutil.Popen, number: signal.Signals, group: bool) -> str:
    """Send a signal to the group, or only to a running train stage. Returns the signal and its target."""
    children = repro.children(recursive=True)
    training = []  # With a launcher, it is the first one, and the last one is a process that it started.
    with suppress(psutil.NoSuchProcess):  # a process may end at this moment
        training = [child for child in children if child.cmdline()[-2:] == ["-m", "pipeline.train"]]
    group = group or not training
    if group:
        os.killpg(repro.pid, number)
    else:
        training[-1].send_signal(number)
    psutil.wait_procs(children)  # a stage that is saving its checkpoint outlives dvc
    return f"{number.name} to the {'group' if group else 'train stage'}"


def results(project: Path) -> dict[str, str]:
    """Return the hashes of the model, the predictions and the scores.

    Leaves out the training curve, because its first point after a resume is the mean of fewer steps.
    """
    stages = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
    outputs = {output["path"]: output["md5"] for stage in stages.values() for output in stage["outs"]}
    return {path: outputs[path] for path in ("models/classifier", "data/predictions", "metrics/evaluation.json")}


def remove_truncated(project: Path, output: str) -> str:
    """Remove the file that made DVC fail. Returns a description."""
    truncated = next((file for message, file in TRUNCATED.items() if message in output), None)
    assert truncated, f"dvc repro failed: {output}"
    (project / truncated).unlink()
    return f"DVC failed, removed {truncated}"


def chaos(project: Path, env: dict[str, str], kills: int, rng: random.Random) -> None:
    """Run `dvc repro` undisturbed, and then from scratch with kills at random times. Prints a line for each attempt.

    If a run finishes before all kills are used, another one starts from scratch.

    Raises:
        AssertionError: if a result differs from the result of the undisturbed run
    """
    log = project.parent / "dvc.log"
    began = time.monotonic()
    assert start(project, env, log).wait() == 0, log.read_text()
    duration, expected = time.monotonic() - began, results(project)
    print(f"undisturbed: {duration:.1f} s", flush=True)
    while kills:
        (project / "dvc.lock").unlink()
        shutil.rmtree(project / ".dvc" / "cache" / "runs")
        status = None
        while status != 0:
            repro = start(project, env, log)
            try:
                status = repro.wait(rng.uniform(0, duration) if kills else None)
                end = remove_truncated(project, log.read_text()) if status else "finished"
            except psutil.TimeoutExpired:
                end = kill(repro, rng.choice([signal.SIGKILL, signal.SIGTERM]), group=rng.random() < 0.5)
                status = repro.wait()
                kills -= 1
            resumed = re.search(r"resuming from .*checkpoint-(\d+)", log.read_text())
            print(f"{end}; training resumed at step {resumed[1]}" if resumed else end, flush=True)
        assert results(project) == expected, "the result differs from the result of the undisturbed run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="seed for the times and signals")
    parser.add_argument(
        "-S", dest="settings", metavar="KEY=VALUE", action="append", default=[],
        help="another setting of params.yaml, such as train.engine=loop",
    )  # fmt: skip
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos ") as scratch:
        project = Path(scratch, "project")
        subprocess.run(["git", "clone", "--quiet", Path(__file__).parents[1], project], check=True)
        params = yaml.safe_load((project / "params.yaml").read_text())
        settings = (setting.split("=", 1) for setting in arguments.settings)
        for key, value in (SETTINGS | {key: yaml.safe_load(value) for key, value in settings}).items():
            section, name = key.split(".")
            params[section][name] = value
        (project / "params.yaml").write_text(yaml.safe_dump(params))
        chaos(project, dict(os.environ), arguments.kills, random.Random(arguments.seed))
    print(f"All results match the undisturbed run after {arguments.kills} kills.")


if __name__ == "__main__":
    main()
