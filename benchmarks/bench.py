"""Time this pipeline and the Hugging Face course's script, alternately, on this machine.

    PYTHONPATH=. python benchmarks/bench.py --rounds 3

In each round, the course's script and `dvc repro` in a fresh clone of HEAD with an empty cache run with the same seed.
All runs use the same data (MRPC if available, otherwise the embedded corpus), checkpoint, epochs, effective batch size
and learning rate (the course's). Everything else has its default value. The table shows medians.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
COURSE, OURS = "course", "ours"
COURSE_LR = 5e-5  # TrainingArguments' default


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run from scratch to its scores.

    Attributes:
        setup: Seconds until the first step.
        training: Seconds of training, including the validation after each epoch.
        prediction: Seconds of prediction on validation and test.
        wall: Seconds in total.
        memory: MiB of the largest process.
        f1: F1 of each split.
        precision: fp32, bf16 or fp16.
    """

    setup: float
    training: float
    prediction: float
    wall: float
    memory: float
    f1: dict[str, float]
    precision: str

    @property
    def everything_else(self) -> float:
        return self.wall - self.training - self.prediction


class TimedCommand(NamedTuple):
    """When a command began and ended, and how much memory it needed.

    Attributes:
        began: Seconds since the epoch.
        text_printed: When the command last printed the text to watch for, in seconds since the epoch, or 0.
        ended: Seconds since the epoch.
        memory: MiB of its largest process.
        output: What it printed.
    """

    began: float
    text_printed: float
    ended: float
    memory: float
    output: str


def run_timed(command: list[Any], cwd: Path, env: dict[str, str], watch: str | None = None) -> TimedCommand:
    """Run a command, and exit with its output if it fails."""
    began, text_printed, output = time.time(), 0.0, ""
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout
    for line in process.stdout:
        output += line
        if watch and watch in line:
            text_printed = time.time()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{output}\nerror: {command} failed")
    return TimedCommand(began, text_printed, time.time(), usage.ru_maxrss / 1024, output)


def run_script(source: Path, params: dict[str, Any], seed: int, env: dict[str, str]) -> Run:
    """Run the course's script on the outputs of download and pretrained in `source`."""
    with tempfile.TemporaryDirectory() as out:
        arguments = ["data/raw", "models/pretrained", out, "--seed", seed]
        arguments += ["--epochs", params["train"]["epochs"], "--batch-size", params["train"]["batch_size"]]
        if params["train"]["max_train_samples"]:
            arguments += ["--max-train-samples", params["train"]["max_train_samples"]]
        command = [sys.executable, ROOT / "benchmarks" / "course.py", *map(str, arguments)]
        scratch = env | {"HF_HOME": f"{out}/cache", "PYTHONPATH": str(ROOT)}
        run = run_timed(command, source, scratch)
        report = json.loads(Path(out, "times.json").read_text())
    times = report["times"]
    return Run(
        setup=times["training"] - run.began,
        training=times["prediction"] - times["training"],
        prediction=times["end"] - times["prediction"],
        wall=run.ended - run.began,
        memory=run.memory,
        f1=report["f1"],
        precision="fp32",
    )


def run_pipeline(scratch: Path, params: dict[str, Any], seed: int, env: dict[str, str]) -> Run:
    """Run `dvc repro` in a fresh clone."""
    project = clone(scratch / "ours", params | {"train": params["train"] | {"seed": seed}})
    run = run_timed(["dvc", "repro"], project, env, watch="training on")
    scores = json.loads((project / "metrics" / "evaluation.json").read_text())
    environment = json.loads((project / "metrics" / "train.json").read_text())[0]["environment"]
    shutil.rmtree(project)
    return Run(
        setup=run.text_printed - run.began,
        training=logged_seconds("trained for", run.output),
        prediction=logged_seconds("scored", run.output),
        wall=run.ended - run.began,
        memory=run.memory,
        f1={split: scores[split]["f1"] for split in ("validation", "test")},
        precision=environment["precision"],
    )


def logged_seconds(start: str, output: str) -> float:
    """Return the sum of the seconds in the lines of a log that begin like this."""
    return sum(map(float, re.findall(rf"^{start}.*?([0-9.]+) seconds$", output, re.M)))


def clone(target: Path, params: dict[str, Any]) -> Path:
    """Clone HEAD, replace the parameters, and remove the earlier results."""
    subprocess.run(["git", "clone", "--quiet", ROOT, target], check=True)
    params = params | {"data": params["data"] | {"directory": "data/empty"}}  # without the user's data
    (target / "params.yaml").write_text(yaml.safe_dump(params))
    (target / "dvc.lock").unlink()
    return target


def commit_data(clone: Path) -> None:
    """Commit the data of a benchmark, because experiments in temporary directories only have committed files."""
    for command in (
        ["config", "user.name", "benchmark"],
        ["config", "user.email", "b@example.org"],
        ["add", "--all"],
        ["commit", "--quiet", "--message", "data"],
    ):
        subprocess.run(["git", *command], cwd=clone, check=True)


def prepare_clone(
    scratch: Path, checkpoint: str, env: dict[str, str], max_train_samples: int | None = None
) -> tuple[Path, dict[str, Any]]:
    """Run the first stages in a clone, and return it and its parameters.

    The data is MRPC if available, otherwise the embedded corpus.
    """
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["model"]["checkpoint"] = checkpoint
    params["train"] |= {"lr": COURSE_LR, "max_train_samples": max_train_samples}
    for task in ("mrpc", "demo"):
        params["data"]["task"] = task
        project = clone(scratch / task, params)
        stages = subprocess.run(["dvc", "repro", "tokenize"], cwd=project, env=env, capture_output=True, text=True)
        if stages.returncode == 0:
            return project, params
    sys.exit(f"{stages.stderr}\nerror: the data or the checkpoint cannot be fetched")


def measure_peak_flops() -> float:
    """Return the FLOP/s of a large matrix product, the best of ten.

    The product is in bf16, or in fp32 on a CPU that would emulate bf16.
    """
    import torch

    from pipeline.modeling.device import bf16_instruction_sets

    size = 4096
    dtype = torch.bfloat16 if bf16_instruction_sets() else torch.float32  # an emulated product takes minutes
    a, b = (torch.randn(size, size, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def non_embedding_parameters(checkpoint: Path) -> int:
    from safetensors import safe_open

    with safe_open(checkpoint / "model.safetensors", framework="np") as weights:
        names = [name for name in weights.keys() if "embeddings" not in name]  # noqa: SIM118
        return sum(int(np.prod(weights.get_slice(name).get_shape())) for name in names)


def padding_proportions(lengths: NDArray[np.int64], batch_size: int) -> dict[str, float]:
    """Return the proportion of padding among the tokens of an epoch, for each script's batches.

    Args:
        lengths: Tokens of each training pair.
    """
    from pipeline.training.sampler import EpochSampler

    def proportion(order: Any) -> float:
        batches = [
            [lengths[i] for i in order[start : start + batch_size]] for start in range(0, len(order), batch_size)
        ]
        return 1 - sum(lengths) / sum(max(batch) * len(batch) for batch in batches)

    return {
        COURSE: proportion(np.random.default_rng(0).permutation(len(lengths))),
        OURS: proportion(list(EpochSampler(np.arange(len(lengths)), lengths, batch_size, seed=0))),
    }


def main() -> None:
    # These modules import torch. scale.py imports this file and must not import torch.
    from pipeline.core.dataset_files import load_examples
    from pipeline.modeling.device import bf16_instruction_sets, cpu_model

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default=MINILM)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--max-train-samples", type=int, help="train on the first n pairs only, if the scores do not matter"
    )
    parser.add_argument("--rounds", type=int, default=3, help="the number of rounds; round n has the seed n")
    arguments = parser.parse_args()
    env = dict(os.environ)
    runs: dict[str, list[Run]] = {COURSE: [], OURS: []}
    peaks = []
    with tempfile.TemporaryDirectory(prefix="bench ") as directory:
        scratch = Path(directory)
        source, params = prepare_clone(scratch, arguments.checkpoint, env, arguments.max_train_samples)
        params["train"]["epochs"] = epochs = arguments.epochs
        for seed in range(1, arguments.rounds + 1):
            peaks.append(measure_peak_flops())
            runs[COURSE].append(run_script(source, params, seed, env))
            runs[OURS].append(run_pipeline(scratch, params, seed, env))
            for name in runs:
                print(f"round {seed}, {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
        pairs = load_examples(source / "data" / "tokenized", "train").with_format("numpy")
        lengths = pairs["length"][: arguments.max_train_samples]
        model_flops = 6 * non_embedding_parameters(source / "models" / "pretrained") * int(lengths.sum())
    measured = {
        "samples": len(lengths) * epochs,
        "flops": model_flops * epochs,
        "peak_flops": statistics.median(peaks),
        "padding": padding_proportions(lengths, params["train"]["batch_size"]),
    }
    peak_gflops = measured["peak_flops"] / 1e9
    print(f"{cpu_model()}; peak {peak_gflops:.0f} GFLOP/s ({', '.join(bf16_instruction_sets()) or 'fp32, no bf16'})")
    print(f"{params['data']['task']}, {arguments.checkpoint}, {epochs} epochs, medians of {arguments.rounds} rounds\n")
    print(format_table(runs, measured))


def format_table(runs: dict[str, list[Run]], measured: dict[str, Any]) -> str:
    """Return a Markdown table with a column for each script."""
    rows: dict[str, Callable[[str], str]] = {
        "training, s": lambda name: f"{median(runs[name], 'training'):.1f}",
        "prediction, s": lambda name: f"{median(runs[name], 'prediction'):.1f}",
        "everything else, s": lambda name: f"{median(runs[name], 'everything_else'):.1f}",
        "before the first step (included above), s": lambda name: f"{median(runs[name], 'setup'):.1f}",
        "wall, s": lambda name: f"{median(runs[name], 'wall'):.1f}",
        "largest process, MiB": lambda name: f"{median(runs[name], 'memory'):.0f}",
        "samples per second": lambda name: f"{measured['samples'] / median(runs[name], 'training'):.1f}",
        "padding": lambda name: f"{measured['padding'][name]:.1%}",
        "validation F1, mean": lambda name: f"{statistics.mean(run.f1['validation'] for run in runs[name]):.4f}",
        "test F1, mean": lambda name: f"{statistics.mean(run.f1['test'] for run in runs[name]):.4f}",
        "percentage of the peak FLOP/s": lambda name: (
            f"{measured['flops'] / median(runs[name], 'training') / measured['peak_flops']:.1%}"
        ),
        "training, times ours": lambda name: f"{median_ratio(runs[name], runs[OURS], 'training'):.2f}",
        "prediction, times ours": lambda name: f"{median_ratio(runs[name], runs[OURS], 'prediction'):.2f}",
        "wall, times ours": lambda name: f"{median_ratio(runs[name], runs[OURS], 'wall'):.2f}",
    }
    lines = ["|  | " + " | ".join(runs) + " |", "|---|" + "---|" * len(runs)]
    lines += [f"| {label} | " + " | ".join(map(cell, runs)) + " |" for label, cell in rows.items()]
    return "\n".join(lines)


def median(runs: list[Run], field: str) -> float:
    return statistics.median(getattr(run, field) for run in runs)


def median_ratio(runs: list[Run], references: list[Run], field: str) -> float:
    """Return the median over the rounds of the ratio in each round."""
    return statistics.median(
        getattr(run, field) / getattr(reference, field) for run, reference in zip(runs, references, strict=True)
    )


if __name__ == "__main__":
    main()
