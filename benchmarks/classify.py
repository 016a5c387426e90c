"""How fast `python -m pipeline.classify` answers, and what memory it needs, beside stage predict.

    PYTHONPATH=. python benchmarks/classify.py

The rows are pairs of the embedded corpus, each with a number that makes it unique, in a parquet file; predict also
scores the 1,000 of validation. The model is MiniLM after a few steps. Each command is its own process: its time,
imports included, and its peak memory are measured.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import ROOT, Timed, timed
from scale import SCORED, trained, write_shards

SIZES = (1_000, 10_000)
_FIRST = 5  # repetitions of the first answer
_PIPELINE = """
from transformers import pipeline
print(pipeline("text-classification", model="models/classifier")({"text": "It rained.", "text_pair": "It was wet."}))
"""


def prepared(project: Path, env: dict[str, str], pairs: int) -> None:
    """A clone of HEAD with a model, and `pairs` rows in test."""
    subprocess.run(["git", "clone", "--quiet", ROOT, project], check=True)
    write_shards(project / "data" / "custom", SCORED)
    # Predict and classify score the same rows: those of the first shard.
    write_shards(project / "data" / "more", pairs)
    (project / "data" / "more" / "train-00000-of-00001.parquet").replace(project / "data" / "custom" / "test.parquet")
    trained(project, env)


def describe(took: Timed, rows: int) -> str:
    seconds = took.ended - took.began
    return f"{seconds:.1f} s, {rows / seconds:,.0f} rows a second, {took.memory:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    classify = [sys.executable, "-m", "pipeline.classify"]
    took: dict[str, list[float]] = {}
    print("| rows | classify | predict |\n|---|---|---|", flush=True)
    for rows in arguments.sizes:
        with tempfile.TemporaryDirectory(prefix="classify ") as directory:
            project = Path(directory, "project")
            prepared(project, env, rows)
            file = ["--file", "data/custom/test.parquet", "--out", "answered.parquet"]
            by_classify = timed([*classify, *file], project, env)
            by_predict = timed([sys.executable, "-m", "pipeline.predict"], project, env)
            print(f"| {rows:,} | {describe(by_classify, rows)} | {describe(by_predict, rows + SCORED)} |", flush=True)
            if rows == arguments.sizes[0]:
                first = {"classify": [*classify, "It rained.", "It was wet."],
                         "transformers.pipeline": [sys.executable, "-c", _PIPELINE]}  # fmt: skip
                for _ in range(_FIRST):  # in turn
                    for name, command in first.items():
                        run = timed(command, project, env)
                        took.setdefault(name, []).append(run.ended - run.began)
    for name, seconds in took.items():
        print(f"First answer of {name}: {statistics.median(seconds):.1f} s, the median of {_FIRST}")


if __name__ == "__main__":
    main()
