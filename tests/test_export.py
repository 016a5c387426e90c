"""`python -m pipeline.export`, with the packages of its extra installed in a separate environment."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TinyMaker, with_extras
from kinds import TASKS, train_task
from safetensors.torch import load_file, save_file

from pipeline.core.messages import UserError
from pipeline.export import export_onnx
from pipeline.params import Params

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run python in an environment that adds the packages of the extra to the current ones."""
    python = with_extras(tmp_path_factory.mktemp("onnx"), "onnx")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, *command], cwd=cwd, env=env, capture_output=True, text=True)

    return run


@pytest.fixture
def trained(tmp_path: Path, params: Params, tiny: TinyMaker) -> Callable[..., Path]:
    """Make a directory with a trained classifier and its tokenized examples, in the paths that the stages use."""

    def make(task: str, model: str, **changes: Any) -> Path:
        out = tmp_path / task
        out.mkdir()
        return train_task(task, out, tiny(model), params, batch_size=8, **changes)

    return make


# This is what a user runs with the exported file. The lengths and batch sizes differ from the export's.
COMPARE_LOGITS = """
import json, sys
import numpy as np
import onnxruntime, torch, transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
model = transformers.AutoModelForSequenceClassification.from_pretrained(sys.argv[2]).eval()
session = onnxruntime.InferenceSession(sys.argv[1] + "/" + sys.argv[3])
differences = []
for texts in (["Boston"], ["Boston Falcon Bank sued .", "It ."], ["On Monday it said " * 3] * 5):
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=24, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    [logits] = session.run(["logits"], {name: value.numpy() for name, value in inputs.items()})
    differences.append(float(np.abs(logits - expected).max()))
print(json.dumps(differences))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("task", "model"), [("classes", "bert"), ("multi_label", "mpnet"), ("regression", "roberta")])
def test_the_exported_model_gives_the_same_predictions_as_the_trained_model(
    task: str, model: str, trained: Callable[..., Path], run: Run
) -> None:
    out = trained(task, model, epochs=1, lr=2e-3)
    for file in (out / "models" / "classifier").iterdir():
        file.chmod(0o444)  # like the files in DVC's cache
    done = run(out, "-m", "pipeline.export", "--onnx", "an export")
    assert done.returncode == 0, done.stderr
    assert all(file.stat().st_mode & 0o200 for file in (out / "an export").iterdir()), "the user can remove the files"
    assert re.search(r"differ from the logits of torch by at most \d", done.stderr)
    names = json.loads((out / "an export" / "config.json").read_text())["id2label"]
    assert list(names.values()) == (TASKS[task].labels or ["LABEL_0"])
    assert not list((out / "an export").glob("*.safetensors"))
    if task != "regression":
        differences = run(out, "-c", COMPARE_LOGITS, "an export", "models/classifier", "model.onnx")
        assert max(json.loads(differences.stdout)) < 1e-4, differences.stderr


@pytest.mark.slow
def test_int8_is_written_only_if_it_agrees_with_fp32(trained: Callable[..., Path], run: Run) -> None:
    out = trained("classes", "bert", epochs=20, lr=2e-3)
    done = run(out, "-m", "pipeline.export", "--onnx", "an export", "--int8")
    agreement = float(re.search(r"int8 with fp32 is (\S+)%", done.stderr)[1])  # type: ignore[index]
    assert done.returncode == (0 if agreement >= 99 else 1), done.stderr
    assert (out / "an export" / "model_int8.onnx").exists() == (agreement >= 99)
    weights = out / "models" / "classifier" / "model.safetensors"
    tensors = load_file(weights)
    # Units that are always 0 get large weights, so that int8 has too few steps for the other weights.
    for name, tensor in tensors.items():
        if name.endswith((".attention.output.LayerNorm.weight", ".attention.output.LayerNorm.bias")):
            tensor[0] = 0
        elif name.endswith((".intermediate.dense.weight", ".attention.self.value.weight")):
            tensor[:, 0] = 300
        elif name.endswith(("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias")):
            tensor[0] = 0
    save_file(tensors, weights, metadata={"format": "pt"})
    done = run(out, "-m", "pipeline.export", "--onnx", "another", "--int8")
    assert done.returncode == 1
    assert re.search(r"^error: The agreement of int8 with fp32 is .*Nothing was written", done.stderr, re.M)
    assert not (out / "another").exists()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("models", r"models already exists\. Name a new directory"),
        ("new", r"onnx is not installed\. .*\[onnx\]'"),
    ],
)
def test_an_existing_directory_and_a_missing_package_are_reported(out: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(UserError, match=message):
        export_onnx(tmp_path / "classifier", tmp_path / "tokenized", tmp_path / out, int8=False)
