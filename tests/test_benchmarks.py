"""The benchmarks run: nothing else would tell that one of them no longer fits the pipeline."""

import subprocess
import sys

import pytest
from conftest import ROOT

from pipeline.experiments.dvc_command import dvc_environ


@pytest.mark.slow
@pytest.mark.timeout(2400)  # with one thread, on a CPU without bf16 and beside other tests
@pytest.mark.parametrize(
    ("script", "options", "row"),
    [
        ("bench.py", "--rounds 1 --epochs 1 --max-train-samples 16", "| training, times ours |"),
        ("scale.py", "--sizes 100", "| 100 | "),
        ("classify.py", "--sizes 50", "| 50 | "),
        ("overhead.py", "--rounds 1", "nothing to do: "),
        ("steps.py", "--rounds 1 --steps 12", "| fast dropout + plain attention + kept memory + first token only |"),
    ],
)
def test_a_benchmark_ends_with_its_table(script: str, options: str, row: str) -> None:
    command = [sys.executable, f"benchmarks/{script}", *options.split()]
    env = dvc_environ() | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}  # other tests run beside
    env.pop("MRPC_MIRROR", None)  # the embedded corpus is smaller
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert row in done.stdout
