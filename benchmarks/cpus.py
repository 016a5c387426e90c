"""Time this pipeline beside the course's script on each kind of CPU that this one can imitate.

    PYTHONPATH=. python benchmarks/cpus.py

Bounds on the instruction set, of oneDNN, of torch's own kernels and of MKL, make a CPU compute as a lesser one does. On
each kind, in turn: one epoch of the course's script and of ours (see bench.py); the pipeline of `make demo`; and ours
in bf16 where `train.precision: auto` is fp32, to see what emulation costs.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bench import MINILM, Run, fetched, ours, peer

SAMPLE = {"lr": 1e-4, "epochs": 6, "max_train_samples": None}  # as in `make demo`


class Kind(NamedTuple):
    """A kind of CPU. needs: torch's name of what this machine must have. bounds: the environment that imitates it."""

    needs: str
    bounds: dict[str, str]


KINDS = {
    "AVX2": Kind(
        "avx2", {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    ),
    "AVX-512": Kind("avx512_f", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
    "AVX-512 with bf16": Kind("avx512_bf16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}),
    "AMX": Kind("amx_bf16", {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default=MINILM)
    parser.add_argument("--max-train-samples", type=int, help="of the epoch; by default all")
    parser.add_argument("--emulated-samples", type=int, default=128, help="of the run in emulated bf16")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    can = torch.cpu.get_capabilities()
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench ") as directory:
        scratch = Path(directory)
        env = dict(os.environ)
        source, params = fetched(scratch, arguments.checkpoint, env, arguments.max_train_samples)
        params["train"]["epochs"] = 1
        for name in arguments.kinds:
            kind = KINDS[name]
            if not can.get(kind.needs):
                print(f"{name}: this CPU has none", file=sys.stderr)
                continue
            bound = env | kind.bounds
            runs = {
                "course": peer([], source, params, 1, bound),
                "ours": ours(scratch, params, 1, bound),
                "demo": ours(scratch, changed(params, data={"task": "sample"}, train=SAMPLE), 42, bound),
            }
            if runs["ours"].precision == "fp32":
                few = {"max_train_samples": arguments.emulated_samples}
                for precision in ("fp32", "bf16"):
                    short = changed(params, train=few | {"precision": precision}, predict={"max_samples": 16})
                    runs[precision] = ours(scratch, short, 1, bound)
            for of, run in runs.items():
                print(f"{name}, {of}: {run}", file=sys.stderr, flush=True)
            rows.append(row(name, runs))
    print("\n".join(["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|", *rows]))


def changed(params: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    """The parameters with some keys of some sections changed."""
    return params | {name: params[name] | keys for name, keys in sections.items()}


HEADER = (
    "CPU", "auto is", "training, course / ours", "", "prediction, course / ours", "", "demo, s", "of which training",
    "training, bf16 / fp32",
)  # fmt: skip


def row(name: str, runs: dict[str, Run]) -> str:
    course, own, demo = (runs[of] for of in ("course", "ours", "demo"))
    cells = [name, own.precision]
    for what in ("training", "prediction"):
        theirs, mine = getattr(course, what), getattr(own, what)
        cells += [f"{theirs:.0f} s / {mine:.0f} s", f"**{theirs / mine:.2f}**"]
    cells += [f"{demo.wall:.0f}", f"{demo.training:.0f}"]
    cells.append(f"{runs['bf16'].training / runs['fp32'].training:.1f}" if "bf16" in runs else "")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
