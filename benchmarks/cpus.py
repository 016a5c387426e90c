"""Time this pipeline beside the course's script on each kind of CPU that this one can imitate.

    PYTHONPATH=. python benchmarks/cpus.py

Bounds on the instruction set, of oneDNN, of torch's own kernels and of MKL, make a CPU compute as a lesser one does. On
each kind: one epoch of the course's script and of ours (see bench.py), alternately, with medians of the times and of
their ratio in each round; the pipeline of `make demo`; and ours in bf16 where `train.precision: auto` is fp32, to see
what emulation costs.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bench import MINILM, Run, fetched, middle, ours, peer, ratio

SAMPLE = {"lr": 1e-4, "epochs": 6, "max_train_samples": None}  # as in `make demo`


class Cpu(NamedTuple):
    """A kind of CPU that this one can emulate.

    Attributes:
        needs: torch's name of the capability that this machine must have.
        bounds: The environment variables that emulate it.
    """

    needs: str
    bounds: dict[str, str]


CPUS = {
    "AVX2": Cpu(
        "avx2", {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    ),
    "AVX-512": Cpu("avx512_f", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
    "AVX-512 with bf16": Cpu("avx512_bf16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}),
    "AMX": Cpu("amx_bf16", {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default=MINILM)
    parser.add_argument("--max-train-samples", type=int, help="of the epoch; by default all")
    parser.add_argument("--emulated-samples", type=int, default=128, help="of the run in emulated bf16")
    parser.add_argument("--rounds", type=int, default=3, help="of the epoch")
    parser.add_argument("--kinds", nargs="+", choices=CPUS, default=list(CPUS))
    arguments = parser.parse_args()
    can = torch.cpu.get_capabilities()
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench ") as directory:
        scratch = Path(directory)
        env = dict(os.environ)
        source, params = fetched(scratch, arguments.checkpoint, env, arguments.max_train_samples)
        params["train"]["epochs"] = 1
        for name in arguments.kinds:
            cpu = CPUS[name]
            if not can.get(cpu.needs):
                print(f"{name}: this CPU has none", file=sys.stderr)
                continue
            runs: dict[str, list[Run]] = {}
            for script, run in timed_runs(scratch, source, params, arguments, env | cpu.bounds):
                print(f"{name}, {script}: {run}", file=sys.stderr, flush=True)
                runs.setdefault(script, []).append(run)
            rows.append(row(name, runs))
    print("\n".join(["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|", *rows]))


def timed_runs(
    scratch: Path, source: Path, params: dict[str, Any], arguments: argparse.Namespace, env: dict[str, str]
) -> Iterator[tuple[str, Run]]:
    """Yield the runs on one kind of CPU, by name."""
    for seed in range(1, arguments.rounds + 1):
        yield "course", peer([], source, params, seed, env)
        run = ours(scratch, params, seed, env)
        yield "ours", run
    yield "demo", ours(scratch, changed(params, data={"task": "demo"}, train=SAMPLE), 42, env)
    if run.precision == "fp32":
        few = {"max_train_samples": arguments.emulated_samples}
        for precision in ("fp32", "bf16"):
            short = changed(params, train=few | {"precision": precision}, predict={"max_samples": 16})
            yield precision, ours(scratch, short, 1, env)


def changed(params: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    """The parameters with some keys of some sections changed."""
    return params | {name: params[name] | keys for name, keys in sections.items()}


HEADER = (
    "CPU", "auto is", "training, course / ours", "", "prediction, course / ours", "", "demo, s", "of which training",
    "training, bf16 / fp32",
)  # fmt: skip


def row(name: str, runs: dict[str, list[Run]]) -> str:
    course, pipeline, demo = (runs[script] for script in ("course", "ours", "demo"))
    cells = [name, pipeline[0].precision]
    for phase in ("training", "prediction"):
        cells.append(f"{middle(course, phase):.0f} s / {middle(pipeline, phase):.0f} s")
        cells.append(f"**{ratio(course, pipeline, phase):.2f}**")
    cells += [f"{demo[0].wall:.0f}", f"{demo[0].training:.0f}"]
    cells.append(f"{ratio(runs['bf16'], runs['fp32'], 'training'):.1f}" if "bf16" in runs else "")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
