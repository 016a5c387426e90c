"""The benchmarks work with the current pipeline. Nothing else would notice if one of them broke."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, TinyMaker, params_file

from pipeline.core.paths import CHECKPOINTS, CLASSIFIER, METRICS_DIR, PRETRAINED, TOKENIZED
from pipeline.experiments.child_processes import dvc_environ
from pipeline.params import load_params


@pytest.mark.slow
@pytest.mark.timeout(2400)  # enough for one thread on a CPU without bf16, while other tests run
def test_the_comparison_with_the_course_prints_its_table(tiny: TinyMaker) -> None:
    options = ["--rounds", "1", "--epochs", "1", "--max-train-samples", "16", "--checkpoint", str(tiny())]
    command = [sys.executable, "benchmarks/bench.py", *options]
    env = dvc_environ() | {"PYTHONPATH": str(ROOT)}
    env.pop("MRPC_MIRROR", None)  # The embedded corpus is smaller.
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| training, times ours |" in done.stdout


@pytest.mark.slow
def test_the_scale_and_steps_benchmarks_work_with_the_current_stages(
    tmp_path: Path, tiny: TinyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.pretrained import pretrained
    from pipeline.train import train

    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    scale, steps = importlib.import_module("scale"), importlib.import_module("steps")
    for benchmark in ("classify", "cpus", "overhead"):
        importlib.import_module(benchmark)
    monkeypatch.chdir(tmp_path)
    columns = {"data.text_column_names": "[question, answer]", "data.label_column_name": "verdict"}
    params_file(tmp_path, {"data.task": "custom", **columns, "model.checkpoint": tiny()})
    params = load_params()
    monkeypatch.setattr(scale, "SCORED", 20)
    scale.write_shards(tmp_path / "data" / "custom", 200)
    pretrained(PRETRAINED, params.model)
    for stage in ("download", "tokenize", "load"):
        scale.run(stage)
    train(TOKENIZED, PRETRAINED, CLASSIFIER, METRICS_DIR, CHECKPOINTS, params.train, params.runtime)
    scale.run("predict")
    assert len(steps.time_steps(12, set(steps.OPTIMIZATIONS))) == 2, "the ten warm-up steps are left out"
