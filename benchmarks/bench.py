"""This pipeline beside the scripts that a user would write instead, in turn, on this machine.

    python benchmarks/bench.py --rounds 3 --json

Each round runs, with one seed: the course's script; the same with every pair padded to 128, as the GLUE example does;
and `dvc repro` in a fresh clone of HEAD with an empty cache. Data are the same (MRPC where it is at hand, else the
embedded corpus), checkpoint, epochs and effective batch; all else is each one's default. The table has medians.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).parents[1]
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PEERS = {"course": [], "glue script": ["--pad-to-max-length"]}
OURS = "ours"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run from nothing to its scores: seconds, MiB of the largest process, F1 of each split."""

    setup: float  # until the first step
    training: float  # with validation after each epoch
    prediction: float  # of validation and test
    wall: float
    memory: float
    f1: dict[str, float]

    @property
    def outside(self) -> float:
        return self.wall - self.training - self.prediction


def timed(command: list[Any], cwd: Path, env: dict[str, str], watch: str = "") -> tuple[float, float, float, float]:
    """Run a command; returns when it began, when it printed `watch`, when it ended, and the MiB of its largest process.

    Raises SystemExit with its output where it fails.
    """
    began, seen, output = time.time(), 0.0, ""
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout
    for line in process.stdout:
        output += line
        if watch and watch in line:
            seen = time.time()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{output}\nerror: {command} failed")
    return began, seen, time.time(), usage.ru_maxrss / 1024


def peer(options: list[str], source: Path, params: dict[str, Any], seed: int, env: dict[str, str]) -> Run:
    """Run the course's script on what the stages download and pretrained have fetched to `source`."""
    with tempfile.TemporaryDirectory() as out:
        arguments = ["data/raw", "models/pretrained", out, "--seed", seed, *options]
        arguments += ["--epochs", params["train"]["epochs"], "--batch-size", params["train"]["batch_size"]]
        command = [sys.executable, ROOT / "benchmarks" / "course.py", *map(str, arguments)]
        scratch = env | {"HF_HOME": f"{out}/cache", "PYTHONPATH": str(ROOT)}
        began, _, ended, memory = timed(command, source, scratch)
        report = json.loads(Path(out, "times.json").read_text())
    times = report["times"]
    return Run(
        setup=times["training"] - began,
        training=times["prediction"] - times["training"],
        prediction=times["end"] - times["prediction"],
        wall=ended - began,
        memory=memory,
        f1=report["f1"],
    )


def ours(scratch: Path, params: dict[str, Any], seed: int, env: dict[str, str]) -> Run:
    """Run `dvc repro` in a fresh clone."""
    project = clone(scratch / "ours", params | {"train": params["train"] | {"seed": seed}})
    began, first_step, ended, memory = timed(["dvc", "repro"], project, env, watch="training on")
    timing, scores = (
        json.loads((project / "metrics" / f"{name}.json").read_text()) for name in ("timing", "evaluation")
    )
    shutil.rmtree(project)
    return Run(
        setup=first_step - began,
        training=timing["train"]["seconds"],
        prediction=timing["predict"]["seconds"],
        wall=ended - began,
        memory=memory,
        f1={split: scores[split]["f1"] for split in ("validation", "test")},
    )


def clone(target: Path, params: dict[str, Any]) -> Path:
    """A clone of HEAD with other parameters and no result of an earlier run."""
    subprocess.run(["git", "clone", "--quiet", ROOT, target], check=True)
    (target / "params.yaml").write_text(yaml.safe_dump(params))
    (target / "dvc.lock").unlink()
    return target


def fetched(scratch: Path, checkpoint: str, env: dict[str, str]) -> tuple[Path, dict[str, Any]]:
    """A clone that has run its first stages, and the parameters: those of MRPC, or of the embedded corpus."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["model"]["checkpoint"] = checkpoint
    for task in ("mrpc", "sample"):
        params["data"]["task"] = task
        project = clone(scratch / task, params)
        stages = subprocess.run(["dvc", "repro", "tokenize"], cwd=project, env=env, capture_output=True, text=True)
        if stages.returncode == 0:
            return project, params
    sys.exit(f"{stages.stderr}\nerror: the data or the checkpoint cannot be had")


def peak() -> float:
    """FLOP a second of a large bf16 matrix product on this machine, the best of ten."""
    import torch

    size = 4096
    a, b = (torch.randn(size, size, dtype=torch.bfloat16) for _ in range(2))
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


def padding_shares(lengths: list[int], batch_size: int) -> dict[str, float]:
    """The share of the tokens of an epoch that is padding, for each contender's way to make its batches."""
    from pipeline.batches import TrainingOrder

    def share(padded: Callable[[Any], Any], order: Any) -> float:
        batches = [
            [lengths[i] for i in order[start : start + batch_size]] for start in range(0, len(order), batch_size)
        ]
        return 1 - sum(lengths) / sum(padded(batch) * len(batch) for batch in batches)

    random = np.random.default_rng(0).permutation(len(lengths))
    return {
        "course": share(max, random),
        "glue script": share(lambda batch: 128, random),
        OURS: share(
            max, list(TrainingOrder(len(lengths), seed=0, lengths=lengths, batch_size=batch_size, filled_to=1))
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default=MINILM)
    parser.add_argument("--rounds", type=int, default=3, help="each with a seed of its own: 1, 2, ...")
    parser.add_argument("--json", action="store_true", help="print every run, for machines")
    arguments = parser.parse_args()
    env = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="bench ") as directory:
        scratch = Path(directory)
        source, params = fetched(scratch, arguments.checkpoint, env)
        runs: dict[str, list[Run]] = {name: [] for name in (*PEERS, OURS)}
        peaks = []
        for seed in range(1, arguments.rounds + 1):
            peaks.append(peak())
            for name in runs:
                run = ours(scratch, params, seed, env) if name == OURS else peer(PEERS[name], source, params, seed, env)
                runs[name].append(run)
                print(f"round {seed}, {name}: {run}", file=sys.stderr, flush=True)
        ids = pq.read_table(source / "data" / "tokenized" / "train.parquet", columns=["input_ids"])["input_ids"]
        lengths = [len(pair) for pair in ids]
        flops = (
            6 * non_embedding_parameters(source / "models" / "pretrained") * sum(lengths) * params["train"]["epochs"]
        )
    padding = padding_shares(lengths, params["train"]["batch_size"])
    samples = len(lengths) * params["train"]["epochs"]
    if arguments.json:
        print(json.dumps({"params": params, "peak_flops": peaks, "padding": padding,
                          "runs": {name: [asdict(run) for run in of] for name, of in runs.items()}}))  # fmt: skip
        return
    task, epochs = params["data"]["task"], params["train"]["epochs"]
    print(f"{task}, {arguments.checkpoint}, {epochs} epochs, medians of {arguments.rounds} rounds\n")
    rows: dict[str, Callable[[str], str]] = {
        "set-up before the first step, s": lambda name: f"{middle(runs[name], 'setup'):.1f}",
        "training, s": lambda name: f"{middle(runs[name], 'training'):.1f}",
        "prediction, s": lambda name: f"{middle(runs[name], 'prediction'):.1f}",
        "all else, s": lambda name: f"{middle(runs[name], 'outside'):.1f}",
        "wall, s": lambda name: f"{middle(runs[name], 'wall'):.1f}",
        "largest process, MiB": lambda name: f"{middle(runs[name], 'memory'):.0f}",
        "samples a second": lambda name: f"{samples / middle(runs[name], 'training'):.1f}",
        "padding, % of tokens": lambda name: f"{padding[name]:.1%}",
        "validation F1, mean": lambda name: f"{statistics.mean(run.f1['validation'] for run in runs[name]):.4f}",
        "test F1, mean": lambda name: f"{statistics.mean(run.f1['test'] for run in runs[name]):.4f}",
        "share of the bf16 limit": lambda name: (
            f"{flops / middle(runs[name], 'training') / statistics.median(peaks):.1%}"
        ),
    }
    ratios = {"training": "training", "prediction": "prediction", "wall": "wall"}
    for label, field in ratios.items():
        rows[f"{label}, times ours"] = lambda name, field=field: f"{ratio(runs[name], runs[OURS], field):.2f}"
    print("|  | " + " | ".join(runs) + " |\n|---|" + "---|" * len(runs))
    for label, cell in rows.items():
        print(f"| {label} | " + " | ".join(map(cell, runs)) + " |")


def middle(runs: list[Run], field: str) -> float:
    return statistics.median(getattr(run, field) for run in runs)


def ratio(runs: list[Run], others: list[Run], field: str) -> float:
    """The median over the rounds, each of which ran both."""
    return statistics.median(
        getattr(run, field) / getattr(other, field) for run, other in zip(runs, others, strict=True)
    )


if __name__ == "__main__":
    main()
