"""Time an optimizer step on an idle machine, and next to other busy programs, with several values of GOMP_SPINCOUNT.

    PYTHONPATH=. python benchmarks/busy.py

A busy program is a single thread in a session of its own, like a browser on a desktop. On Linux, the scheduler shares a
core equally between sessions, however many threads each of them has.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import MINILM, ROOT, prepare_clone
from steps import OPTIMIZATIONS

LANES = {"1 thread": (1, 1), "2 threads": (1, 2), "2 runs, 1 thread each": (2, 1), "2 runs, 2 threads each": (2, 2)}


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    programs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(count)
    ]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def time_step(project: Path, spin_count: str, runs: int, threads: int, steps: int) -> float:
    """Return the median milliseconds of a step in the slower one of `runs` simultaneous runs."""
    env = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    env |= {"GOMP_SPINCOUNT": spin_count} if spin_count != "unset" else {}
    script = Path(__file__).with_name("steps.py")
    command = [sys.executable, str(script), "--steps", str(steps), "--only", *OPTIMIZATIONS]
    processes = [
        subprocess.Popen(
            command, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )
        for _ in range(runs)
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in processes]
    return 1000 * max(float(output.split("median:")[1]) for output in outputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default=MINILM)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--values", nargs="+", default=["unset", "1000", "3000"])
    parser.add_argument("--lanes", nargs="+", default=list(LANES), choices=LANES)
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 1, 2], help="numbers of busy programs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench ") as scratch:
        project, params = prepare_clone(Path(scratch), arguments.checkpoint, dict(os.environ))
        print(f"{params['data']['task']}, {arguments.checkpoint}, ms per step\n")
        print(f"|  | busy programs | {' | '.join(arguments.values)} |\n|---|---|{'---|' * len(arguments.values)}")
        for name in arguments.lanes:
            runs, threads = LANES[name]
            for count in arguments.busy:
                with busy_programs(count):
                    times = [time_step(project, value, runs, threads, arguments.steps) for value in arguments.values]
                print(f"| {name} | {count} | {' | '.join(f'{time:,.0f}' for time in times)} |", flush=True)


if __name__ == "__main__":
    main()
