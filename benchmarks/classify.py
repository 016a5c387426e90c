"""Measure the speed and memory of `python -m pipeline.classify`, and compare them with the predict stage.

    PYTHONPATH=. python benchmarks/classify.py

The rows are pairs from the embedded corpus in a Parquet file, each with a number that makes it unique. The predict
stage also scores the 1,000 pairs of validation. The model is MiniLM after a few training steps. Each command runs in a
separate process. The times include imports, and the memory is the peak.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import ROOT, TimedCommand, run_timed
from scale import SCORED, train_briefly, write_splits

SIZES = (1_000, 10_000)
_REPETITIONS = 5  # of the first prediction
_PIPELINE = """
from transformers import pipeline
print(pipeline("text-classification", model="models/classifier")({"text": "It rained.", "text_pair": "It was wet."}))
"""


def prepare_project(project: Path, env: dict[str, str], pairs: int) -> None:
    """Clone HEAD, put `pairs` rows into test, and train a model."""
    subprocess.run(["git", "clone", "--quiet", ROOT, project], check=True)
    write_splits(project / "data" / "custom", SCORED)
    # Train of a second data set becomes test, so that predict and classify score the same rows.
    write_splits(project / "data" / "more", pairs)
    (project / "data" / "more" / "train.parquet").replace(project / "data" / "custom" / "test.parquet")
    train_briefly(project, env)


def describe(command: TimedCommand, rows: int) -> str:
    seconds = command.ended - command.began
    return f"{seconds:.1f} s, {rows / seconds:,.0f} rows per second, {command.memory:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    classify = [sys.executable, "-m", "pipeline.classify"]
    first_seconds: dict[str, list[float]] = {}
    print("| rows | classify | predict |\n|---|---|---|", flush=True)
    for rows in arguments.sizes:
        with tempfile.TemporaryDirectory(prefix="classify ") as directory:
            project = Path(directory, "project")
            prepare_project(project, env, rows)
            file = ["--file", "data/custom/test.parquet", "--out", "answered.parquet"]
            by_classify = run_timed([*classify, *file], project, env)
            by_predict = run_timed([sys.executable, "-m", "pipeline.predict"], project, env)
            print(f"| {rows:,} | {describe(by_classify, rows)} | {describe(by_predict, rows + SCORED)} |", flush=True)
            if rows == arguments.sizes[0]:
                first = {"classify": [*classify, "It rained.", "It was wet."],
                         "transformers.pipeline": [sys.executable, "-c", _PIPELINE]}  # fmt: skip
                for _ in range(_REPETITIONS):  # alternately
                    for name, command in first.items():
                        run = run_timed(command, project, env)
                        first_seconds.setdefault(name, []).append(run.ended - run.began)
    for name, seconds in first_seconds.items():
        print(f"First prediction with {name}: {statistics.median(seconds):.1f} s, the median of {_REPETITIONS}")


if __name__ == "__main__":
    main()
