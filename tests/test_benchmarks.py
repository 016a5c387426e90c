"""The benchmarks run: nothing else would tell that one of them no longer fits the pipeline."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "row"),
    [
        ("bench.py", "--rounds 1 --epochs 1 --max-train-samples 16", "| training, times ours |"),
        ("steps.py", "--rounds 1 --steps 12", "| fast dropout + plain attention + kept memory + first token only |"),
    ],
)
def test_a_benchmark_ends_with_its_table(script: str, options: str, row: str) -> None:
    command = [sys.executable, f"benchmarks/{script}", *options.split()]
    env = {name: value for name, value in os.environ.items() if name != "MRPC_MIRROR"}  # the embedded corpus
    done = subprocess.run(command, cwd=ROOT, env=env | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert row in done.stdout
