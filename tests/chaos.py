"""Kill the pipeline at random moments until it finishes, and compare its results with an undisturbed run.

    python tests/chaos.py --kills 20

`dvc repro` trains MiniLM on the embedded corpus in a temporary clone. The training process, or its whole process
group including dvc, gets a SIGKILL or SIGTERM. The current step is read from the progress bar on a pseudo-terminal.
"""

import argparse
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
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
}


# DVC rewrites these two files in place. A kill at that moment truncates one of them, and DVC then fails until the user
# removes it (https://github.com/treeverse/dvc/issues/7615). The keys are parts of DVC's messages.
TRUNCATED = {"Unable to read RWLock-file": Path(".dvc", "tmp", "rwlock"), "'./dvc.lock' ": Path("dvc.lock")}


class Repro:
    """`dvc repro` on its own pseudo-terminal, in its own process group."""

    def __init__(self, project: Path, env: dict[str, str]) -> None:
        reader, writer = pty.openpty()
        termios.tcsetwinsize(writer, (24, 120))  # a terminal without a size gets no progress bar
        env = {name: value for name, value in env.items() if name != "TQDM_DISABLE"} | {"TQDM_MININTERVAL": "0"}
        self.process = psutil.Popen(
            ["dvc", "repro"], cwd=project, env=env,
            stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        self.output = ""
        self._reading = threading.Thread(target=self._read, args=(reader,), daemon=True)
        self._reading.start()

    def _read(self, reader: int) -> None:
        while True:
            try:
                chunk = os.read(reader, 65536)
            except OSError:  # on Linux, the other end is closed
                chunk = b""
            if not chunk:
                os.close(reader)
                return
            self.output += chunk.decode(errors="replace")

    @property
    def resumed(self) -> int:
        """The step at which training resumed, or 0 if it started from scratch."""
        match = re.search(r"resuming from .*checkpoint-(\d+)", self.output)
        return int(match[1]) if match else 0

    @property
    def step(self) -> int:
        """The number of finished optimizer steps, read from the progress bar."""
        total = re.search(r"training on .* (\d+) steps", self.output)
        bar = re.findall(rf"(\d+)/{total[1]} \[", self.output[total.end() :]) if total else []
        return max([self.resumed, *map(int, bar)])

    def kill(self, number: signal.Signals, group: bool) -> str:
        """Send a signal to the group, or only to a running train stage. Returns the signal and its target."""
        children = self.process.children(recursive=True)
        training = []  # With a launcher, it is the first one, and the last one is a process that it started.
        with suppress(psutil.NoSuchProcess):  # a process may end at this moment
            training = [child for child in children if child.cmdline()[-2:] == ["-m", "pipeline.train"]]
        group = group or not training
        if group:
            os.killpg(self.process.pid, number)
        else:
            training[-1].send_signal(number)
        psutil.wait_procs(children)  # a stage that is saving its checkpoint outlives dvc
        return f"{number.name} to the {'group' if group else 'train stage'}"

    def wait(self) -> int:
        """Wait for dvc to end, and return its exit status."""
        status = self.process.wait()
        self._reading.join()
        return int(status)


@dataclass(frozen=True)
class Attempt:
    """One `dvc repro` and how it ended.

    Attributes:
        lost: the number of steps of an earlier attempt that this one repeats; None if it ended before training
        resumed: the step at which training resumed
        reached: the last step that was reached so far
        seconds: the duration
        end: "done", the signal and its target, or the truncated file that made DVC fail
    """

    lost: int | None
    resumed: int
    reached: int
    seconds: float
    end: str

    def __str__(self) -> str:
        lost = "-" if self.lost is None else self.lost
        return f"{self.resumed:>7}  {lost:>4}  {self.reached:>7}  {self.seconds:>7.1f}  {self.end}"


def results(project: Path) -> dict[str, str]:
    """Return the hashes of the model, the predictions and the scores.

    Leaves out the training curve, because its first point after a resume is the mean of fewer steps.
    """
    stages = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
    outputs = {output["path"]: output["md5"] for stage in stages.values() for output in stage["outs"]}
    return {path: outputs[path] for path in ("models/classifier", "data/predictions", "metrics/evaluation.json")}


def chaos(project: Path, env: dict[str, str], kills: int, rng: random.Random) -> list[Attempt]:
    """Run `dvc repro` in `project` undisturbed, then again with `kills` kills until it finishes.

    Half of the kills come at a random time, and half at a random optimizer step. Prints and returns the attempts.

    Raises:
        AssertionError: if a result differs from the result of the undisturbed run
    """
    started = time.monotonic()
    undisturbed = Repro(project, env)
    assert undisturbed.wait() == 0, undisturbed.output
    duration, expected = time.monotonic() - started, results(project)
    print(f"undisturbed: {duration:.1f} s, {undisturbed.step} steps\nresumed  lost  reached  seconds  end", flush=True)
    attempts: list[Attempt] = []
    reached = 0
    while kills or attempts[-1].end != "done":
        if not reached:  # start from scratch
            (project / "dvc.lock").unlink(missing_ok=True)
            shutil.rmtree(project / ".dvc" / "cache" / "runs", ignore_errors=True)
        started = time.monotonic()
        moment = started + rng.uniform(0, duration)
        step = rng.choice([None, rng.randrange(1, undisturbed.step)])
        repro = Repro(project, env)
        end = "done"
        while repro.process.poll() is None:
            if kills and (time.monotonic() > moment if step is None else repro.step >= step):
                kills -= 1
                end = repro.kill(rng.choice([signal.SIGKILL, signal.SIGTERM]), group=rng.random() < 0.5)
                break
            time.sleep(0.02)
        status = repro.wait()
        truncated = next((file for message, file in TRUNCATED.items() if message in repro.output), None)
        if not status:
            end = "done"  # the signal may arrive after the end
        elif end == "done" and truncated:
            (project / truncated).unlink()
            end = f"DVC failed, removed {truncated}"
        trained = "training on" in repro.output
        lost = max(0, reached - repro.resumed) if trained else None
        reached = repro.step if trained else reached
        attempts.append(Attempt(lost, repro.resumed, reached, time.monotonic() - started, end))
        print(attempts[-1], flush=True)
        assert status == 0 or end != "done", f"dvc repro ended with {status}: {repro.output}"
        if end == "done":
            assert results(project) == expected, "the result differs from the result of the undisturbed run"
            reached = 0
    return attempts


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
        attempts = chaos(project, dict(os.environ), arguments.kills, random.Random(arguments.seed))
    lost = max(attempt.lost or 0 for attempt in attempts)
    allowed = SETTINGS["runtime.save_steps"]
    print(f"All results match the undisturbed run after {arguments.kills} kills, which lost at most {lost} steps each.")
    if lost > allowed:
        sys.exit("error: a kill lost more steps than runtime.save_steps")


if __name__ == "__main__":
    main()
