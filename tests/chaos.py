"""Kill the pipeline at random moments until it finishes, and compare its result with that of an undisturbed run.

    python tests/chaos.py --kills 20 --temp

`dvc repro`, or with --temp `dvc exp run --temp`, trains MiniLM on the embedded corpus in a temporary clone. The signal
goes to the training process, or to the whole process group including dvc.
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

import psutil
import yaml
from dvc.utils.hydra import apply_overrides

SETTINGS = [
    "data.task=demo", "data.directory=data/empty", "model.checkpoint=sentence-transformers/all-MiniLM-L6-v2",
    "train.lr=1e-4", "train.epochs=2", "runtime.save_steps=10",
]  # fmt: skip
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
REPRO = ("dvc", "repro")
TEMP = ("dvc", "exp", "run", "--temp", "--force", "--name", "chaos")

# DVC rewrites these two files in place. A kill at that moment truncates one of them, and DVC then fails until the user
# removes it (for rwlock, see https://github.com/treeverse/dvc/issues/7615). The keys are parts of DVC's messages.
TRUNCATED = {"Unable to read RWLock-file": Path(".dvc", "tmp", "rwlock"), "'./dvc.lock' ": Path("dvc.lock")}


def kill(process: psutil.Popen, number: signal.Signals, group: bool) -> str:
    """Send a signal to the group, or only to a running train stage. Returns the signal and its target."""
    children = process.children(recursive=True)
    training = []
    with suppress(psutil.NoSuchProcess):  # A process may end at this moment.
        training = [child for child in children if child.cmdline()[-2:] == ["-m", "pipeline.train"]]
    if group or not training:
        os.killpg(process.pid, number)
    else:
        training[-1].send_signal(number)
    psutil.wait_procs(children)  # A stage that is saving its checkpoint outlives dvc.
    return f"{number.name} to the {'train stage' if training and not group else 'group'}"


def results(project: Path, command: tuple[str, ...]) -> dict[str, str]:
    """Return the hashes of the model, the predictions and the scores.

    Leaves out the training curve, because its first point after a resume is the mean of fewer steps.
    """
    if command == TEMP:
        [ref] = git(project, "for-each-ref", "--format=%(refname)", "refs/exps/*/*/chaos").split()
        lock = git(project, "show", f"{ref}:dvc.lock")
    else:
        lock = (project / "dvc.lock").read_text()
    outputs = [output for stage in yaml.safe_load(lock)["stages"].values() for output in stage["outs"]]
    hashes = {output["path"]: output["md5"] for output in outputs}
    return {path: hashes[path] for path in ("models/classifier", "data/predictions", "metrics/evaluation.json")}


def git(project: Path, *arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=project, text=True)


def chaos(project: Path, env: dict[str, str], command: tuple[str, ...], kills: int, rng: random.Random) -> None:
    """Run the pipeline undisturbed, and then from scratch with kills at random times. Prints a line for each attempt.

    If a run finishes before all kills are used, another one starts from scratch. The parameters must be committed.
    Raises AssertionError if a result differs from the result of the undisturbed run.
    """
    log = project.parent / "dvc.log"

    def start(command: tuple[str, ...]) -> psutil.Popen:
        with log.open("w") as out:
            return psutil.Popen(command, cwd=project, env=env, stdout=out, stderr=out, start_new_session=True)

    began = time.monotonic()
    assert start(REPRO).wait() == 0, log.read_text()
    duration, expected = time.monotonic() - began, results(project, REPRO)
    training = float(re.search(r"trained for ([\d.]+) seconds", log.read_text())[1])  # type: ignore[index]
    print(f"undisturbed: {duration:.1f} s, training: {training:.1f} s", flush=True)
    while kills:
        (project / "dvc.lock").unlink(missing_ok=True)
        shutil.rmtree(project / ".dvc" / "cache" / "runs", ignore_errors=True)
        status = None
        while status != 0:
            process, seconds = start(command), rng.uniform(0, duration)
            # While DVC sets up an experiment, it stashes the tree, and a kill leaves the stash to the user.
            awaited = "Reproducing experiment" if command == TEMP else ""
            if rng.random() < 0.5:  # a moment of the training
                awaited, seconds = "training on", rng.uniform(0, training)
            while awaited not in log.read_text() and process.poll() is None:
                time.sleep(0.05)
            try:
                status, end = process.wait(seconds if kills else None), "finished"
                if status:
                    truncated = next((file for message, file in TRUNCATED.items() if message in log.read_text()), None)
                    assert truncated, f"dvc failed: {log.read_text()}"
                    (project / truncated).unlink()
                    end = f"DVC failed, removed {truncated}"
            except psutil.TimeoutExpired:
                end = kill(process, rng.choice(SIGNALS), group=rng.random() < 0.5)
                status = process.wait()
                kills -= 1
            resumed = re.search(r"resuming from .*checkpoint-(\d+)", log.read_text())
            print(f"{end}; training resumed at step {resumed[1]}" if resumed else end, flush=True)
        assert results(project, command) == expected, "the result differs from the result of the undisturbed run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--temp", action="store_true", help="run an experiment in a temporary directory")
    parser.add_argument("-S", dest="settings", metavar="KEY=VALUE", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos ") as scratch:
        project = Path(scratch, "project")
        subprocess.run(["git", "clone", "--quiet", Path(__file__).parents[1], project], check=True)
        apply_overrides(project / "params.yaml", SETTINGS + arguments.settings)
        git(project, "config", "user.name", "chaos")
        git(project, "config", "user.email", "chaos@localhost")
        git(project, "commit", "--quiet", "--all", "--message", "settings of chaos.py")
        chaos(project, dict(os.environ), TEMP if arguments.temp else REPRO, arguments.kills, random.Random(0))
    print(f"All results match the undisturbed run after {arguments.kills} kills.")


if __name__ == "__main__":
    main()
