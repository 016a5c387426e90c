"""Measure the time and memory of the stages with ten thousand to a million pairs.

    PYTHONPATH=. python benchmarks/scale.py

The pairs come from the embedded corpus, each with a number that makes it unique, and are stored in Parquet files like a
user's own data. Each stage runs in a separate process. The times include imports, and the memory is the peak.
`tokenize` runs with one process and with two. `load` opens the tokenized examples and the model like training does, and
makes the first batch. `predict` always scores the 2,000 pairs of validation and test.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import MINILM, ROOT, run_timed

if TYPE_CHECKING:
    import altair as alt

SIZES = (10_000, 100_000, 1_000_000)
STAGES = ("download", "baseline", "tokenize", "tokenize, 2 processes", "load", "predict")
SCORED = 1000  # pairs in validation, and in test
_BATCH = 50_000


def write_splits(directory: Path, pairs: int) -> None:
    """Write train with `pairs` rows, validation and test."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.sources.demo import DEMO_FILE

    directory.mkdir(parents=True, exist_ok=True)
    demo_pairs = pd.read_csv(DEMO_FILE)
    demo_pairs = pd.concat([demo_pairs] * (_BATCH // len(demo_pairs)))
    numbers = itertools.count()
    columns = pa.schema({"question": pa.string(), "answer": pa.string(), "verdict": pa.string()})
    for split, size in {"train": pairs, "validation": SCORED, "test": SCORED}.items():
        with pq.ParquetWriter(directory / f"{split}.parquet", columns) as writer:
            for start in range(0, size, _BATCH):
                rows = demo_pairs[: min(_BATCH, size - start)]
                questions = [f"{text} No. {next(numbers)}" for text in rows["sentence1"]]
                answers = [f"{text} Ref. {next(numbers)}" for text in rows["sentence2"]]
                verdicts = ["yes" if label == "equivalent" else "no" for label in rows["label"]]
                writer.write_batch(pa.RecordBatch.from_arrays([questions, answers, verdicts], schema=columns))


def train_briefly(project: Path, env: dict[str, str]) -> None:
    """Run the pipeline in a clone of HEAD with the files in data/custom and a few training steps."""
    overrides = {
        "data.task": "custom", "data.text_column_names": "[question,answer]", "data.label_column_name": "verdict",
        "model.checkpoint": MINILM, "train.max_train_samples": "64", "train.epochs": "1",
    }  # fmt: skip
    settings = [argument for key, value in overrides.items() for argument in ("--set-param", f"{key}={value}")]
    subprocess.run(["dvc", "exp", "run", *settings], cwd=project, env=env, check=True, capture_output=True)


def run(stage: str) -> None:
    """Run a stage in the working directory."""
    from pipeline.core.paths import BASELINES, CLASSIFIER, PREDICTIONS, PRETRAINED, RAW, TOKENIZED
    from pipeline.params import load_params

    params = load_params()
    if stage == "download":
        from pipeline.download import download

        download(RAW, params.data)
    elif stage == "baseline":
        from pipeline.baseline import baseline

        baseline(RAW, BASELINES)
    elif stage.startswith("tokenize"):
        from pipeline.tokenize_data import tokenize

        num_proc = 2 if stage.endswith("2 processes") else 1
        tokenize(RAW, PRETRAINED, TOKENIZED, params.tokenize, num_proc)
    elif stage == "load":
        from torch.utils.data import DataLoader

        from pipeline.core.task import read_task
        from pipeline.modeling.device import set_up_device
        from pipeline.modeling.scoring import collator
        from pipeline.training.inputs import load_inputs

        device = set_up_device("auto", None)
        train_params = params.train.model_copy(update={"max_train_samples": None})
        inputs = load_inputs(read_task(TOKENIZED), TOKENIZED, PRETRAINED, train_params, device)
        examples: Any = inputs.training.select_columns([*inputs.tokenizer.model_input_names, "labels"])
        next(iter(DataLoader(examples, 16, sampler=inputs.sampler, collate_fn=collator(inputs.tokenizer, device))))
    else:
        from pipeline.predict import predict

        predict(RAW, TOKENIZED, CLASSIFIER, PREDICTIONS, params.predict, "auto", None)


def chart(measured: list[dict[str, Any]]) -> "alt.HConcatChart":
    """Plot the time and memory of each stage against the number of pairs, with logarithmic axes."""
    import altair as alt

    base = alt.Chart(alt.Data(values=measured), width=330, height=260).mark_line(point=True)
    pairs = alt.X("pairs:Q", title="pairs", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s", tickCount=3))
    stage = alt.Color("stage:N", title="stage", sort=list(STAGES))
    log = alt.Scale(type="log")
    return alt.hconcat(
        base.encode(pairs, alt.Y("seconds:Q", title="time, seconds", scale=log), stage),
        base.encode(pairs, alt.Y("mib:Q", title="peak memory, MiB", scale=log), stage),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--plot", type=Path, help="plot time and memory to this SVG file")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # for the process of one stage
    arguments = parser.parse_args()
    if arguments.only:
        run(arguments.only)
        return
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="scale ") as directory:
        project = Path(directory, "project")
        subprocess.run(["git", "clone", "--quiet", ROOT, project], check=True)
        write_splits(project / "data" / "custom", SCORED)
        train_briefly(project, env)
        for pairs in arguments.sizes:
            write_splits(project / "data" / "custom", pairs)
            for stage in STAGES:
                command = [sys.executable, __file__, "--only", stage]
                done = run_timed(command, project, env)
                measured.append(
                    {"pairs": pairs, "stage": stage, "seconds": done.ended - done.began, "mib": done.memory}
                )
                print(measured[-1], file=sys.stderr, flush=True)
    if arguments.plot:
        chart(measured).save(arguments.plot)
    print("| pairs | " + " | ".join(STAGES) + " |\n|---|" + "---|" * len(STAGES))
    for pairs in arguments.sizes:
        cells = [f"{entry['seconds']:.1f} s, {entry['mib']:.0f} MiB" for entry in measured if entry["pairs"] == pairs]
        print(f"| {pairs:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
