"""How time and memory grow with the number of pairs: the stages on 10,000, 100,000 and a million pairs.

    PYTHONPATH=. python benchmarks/scale.py

The pairs come from the embedded corpus's generator. Each stage runs in its own process; its time, imports included, and
peak memory are measured. `tokenize` runs with one and with two processes. `load` opens the tokenized pairs as training
does, and makes the first batch; `predict` always scores 1,000 pairs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import MINILM, ROOT, timed

if TYPE_CHECKING:
    import altair as alt

SIZES = (10_000, 100_000, 1_000_000)
STAGES = ("download", "tokenize", "tokenize, 2 processes", "load", "predict")
_SCORED = 1000


def run(stage: str, pairs: int) -> None:
    """Run a stage in the working directory. pairs: number of training pairs."""
    from pipeline import download
    from pipeline.core.paths import METRICS, PREDICTIONS, PRETRAINED, RAW, TOKENIZED
    from pipeline.params import DataParams, PredictParams, TokenizeParams
    from pipeline.sources import synthetic
    from pipeline.sources.corpus import Pair

    if stage == "download":
        total = pairs + 2 * _SCORED
        rows = (Pair(*pair, idx) for idx, pair in enumerate(synthetic.pairs(total)))
        sizes = {"train": pairs, "validation": _SCORED, "test": _SCORED}
        download.CORPORA["sample"] = lambda: {split: [next(rows) for _ in range(size)] for split, size in sizes.items()}
        download.download(RAW, DataParams(task="sample"))
    elif stage.startswith("tokenize"):
        from pipeline.tokenize_data import tokenize

        num_proc = 2 if stage.endswith("2 processes") else 1
        tokenize(RAW, PRETRAINED, TOKENIZED, TokenizeParams(max_length=128, padding="dynamic"), num_proc)
    elif stage == "load":
        from pipeline.core.tables import open_arrow
        from pipeline.modeling.batching import TrainingBatches, TrainingLoader
        from pipeline.modeling.loading import load_tokenizer

        training = open_arrow(TOKENIZED, "train", "tokenize").drop_columns("idx")
        batches = TrainingBatches(training, batch_size=16, accumulation_steps=1, seed=0, by_length=True)
        next(iter(TrainingLoader(training, load_tokenizer(PRETRAINED), batches, "cpu")))
    else:
        from pipeline.predict import predict

        params = PredictParams(batch_size=64, swapped=False, max_samples=None)
        predict(TOKENIZED, PRETRAINED, PREDICTIONS, METRICS, params, "bf16", None)


def chart(measured: list[dict[str, Any]]) -> "alt.HConcatChart":
    """Seconds and memory of each stage against the number of pairs, both axes logarithmic."""
    import altair as alt

    base = alt.Chart(alt.Data(values=measured), width=330, height=260).mark_line(point=True)
    pairs = alt.X("pairs:Q", title="pairs", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s", tickCount=3))
    stage = alt.Color("stage:N", title="stage", sort=list(STAGES))
    log = alt.Scale(type="log")
    return alt.hconcat(
        base.encode(pairs, alt.Y("seconds:Q", title="time, seconds", scale=log), stage),
        base.encode(pairs, alt.Y("mib:Q", title="largest memory, MiB", scale=log), stage),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--json", action="store_true", help="print every run as JSON")
    parser.add_argument("--plot", type=Path, help="draw time and memory to this SVG file")
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)  # for the process of one stage: its name and size
    arguments = parser.parse_args()
    if arguments.only:
        run(arguments.only[0], int(arguments.only[1]))
        return
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="scale ") as directory:
        project = Path(directory, "project")
        subprocess.run(["git", "clone", "--quiet", ROOT, project], check=True)
        fetch = ["dvc", "exp", "run", "--set-param", f"model.checkpoint={MINILM}", "pretrained"]
        subprocess.run(fetch, cwd=project, env=env, check=True, capture_output=True)
        for pairs in arguments.sizes:
            for stage in STAGES:
                command = [sys.executable, __file__, "--only", stage, str(pairs)]
                took = timed(command, project, env)
                measured.append(
                    {"pairs": pairs, "stage": stage, "seconds": took.ended - took.began, "mib": took.memory}
                )
                print(measured[-1], file=sys.stderr, flush=True)
    if arguments.plot:
        chart(measured).save(arguments.plot)
    if arguments.json:
        print(json.dumps(measured))
        return
    print("| pairs | " + " | ".join(STAGES) + " |\n|---|" + "---|" * len(STAGES))
    for pairs in arguments.sizes:
        cells = [f"{entry['seconds']:.1f} s, {entry['mib']:.0f} MiB" for entry in measured if entry["pairs"] == pairs]
        print(f"| {pairs:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
