"""Time this pipeline and the course's script on each kind of CPU that this machine can emulate.

    PYTHONPATH=. python benchmarks/cpus.py

Environment variables limit the instruction sets that oneDNN, MKL and torch's own kernels use, so that this CPU computes
like one with fewer instructions. On each kind of CPU, the following runs:

- One epoch of the course's script and of this pipeline, alternately (see bench.py). The table shows the median times,
  and the median over the rounds of their ratio in each round.
- The pipeline with the settings of `make demo`.
- If `train.precision: auto` is fp32 on this kind of CPU, the pipeline in bf16, to measure the cost of emulation.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bench import MINILM, Run, median, median_ratio, prepare_clone, run_pipeline, run_script

DEMO_SETTINGS = {"lr": 1e-4, "epochs": 6, "max_train_samples": None}  # as in `make demo`


class Cpu(NamedTuple):
    """A kind of CPU that this one can emulate.

    Attributes:
        capability: The name in torch of the capability that this machine must have.
        limits: The environment variables that limit the instruction set.
    """

    capability: str
    limits: dict[str, str]


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
    parser.add_argument("--max-train-samples", type=int, help="training pairs in the epoch (default: all)")
    parser.add_argument(
        "--emulated-samples", type=int, default=128, help="training pairs in the run with emulated bf16"
    )
    parser.add_argument("--rounds", type=int, default=3, help="the number of rounds with one epoch")
    parser.add_argument("--kinds", nargs="+", choices=CPUS, default=list(CPUS))
    arguments = parser.parse_args()
    capabilities = torch.cpu.get_capabilities()
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench ") as directory:
        scratch = Path(directory)
        env = dict(os.environ)
        source, params = prepare_clone(scratch, arguments.checkpoint, env, arguments.max_train_samples)
        params["train"]["epochs"] = 1
        for name in arguments.kinds:
            cpu = CPUS[name]
            if not capabilities.get(cpu.capability):
                print(f"{name}: skipped, because this CPU cannot emulate it", file=sys.stderr)
                continue
            runs: dict[str, list[Run]] = {}
            for script, run in timed_runs(scratch, source, params, arguments, env | cpu.limits):
                print(f"{name}, {script}: {run}", file=sys.stderr, flush=True)
                runs.setdefault(script, []).append(run)
            rows.append(format_row(name, runs))
    print("\n".join(["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|", *rows]))


def timed_runs(
    scratch: Path, source: Path, params: dict[str, Any], arguments: argparse.Namespace, env: dict[str, str]
) -> Iterator[tuple[str, Run]]:
    """Yield the name and the result of each run on one kind of CPU."""
    for seed in range(1, arguments.rounds + 1):
        yield "course", run_script(source, params, seed, env)
        run = run_pipeline(scratch, params, seed, env)
        yield "ours", run
    yield "demo", run_pipeline(scratch, changed(params, data={"task": "demo"}, train=DEMO_SETTINGS), 42, env)
    if run.precision == "fp32":
        fewer_samples = {"max_train_samples": arguments.emulated_samples}
        for precision in ("fp32", "bf16"):
            short = changed(params, train=fewer_samples | {"precision": precision}, predict={"max_samples": 16})
            yield precision, run_pipeline(scratch, short, 1, env)


def changed(params: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with the given keys of the given sections changed."""
    return params | {name: params[name] | keys for name, keys in sections.items()}


HEADER = (
    "CPU", "auto", "training, course / ours", "", "prediction, course / ours", "", "demo, s", "training in the demo, s",
    "training, bf16 / fp32",
)  # fmt: skip


def format_row(name: str, runs: dict[str, list[Run]]) -> str:
    course, pipeline, demo = (runs[script] for script in ("course", "ours", "demo"))
    cells = [name, pipeline[0].precision]
    for phase in ("training", "prediction"):
        cells.append(f"{median(course, phase):.0f} s / {median(pipeline, phase):.0f} s")
        cells.append(f"**{median_ratio(course, pipeline, phase):.2f}**")
    cells += [f"{demo[0].wall:.0f}", f"{demo[0].training:.0f}"]
    cells.append(f"{median_ratio(runs['bf16'], runs['fp32'], 'training'):.1f}" if "bf16" in runs else "")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
