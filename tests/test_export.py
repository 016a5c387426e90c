"""`python -m pipeline.export` with the packages of its extra, really installed."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, TinyMaker, sections, with_extras
from kinds import TASKS, download_kind
from safetensors.torch import load_file, save_file

from pipeline.core.messages import UserError
from pipeline.export import copy_settings, require_free
from pipeline.params import Params, TokenizeParams
from pipeline.tokenize_data import tokenize
from pipeline.train import train

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run python in an environment that has the packages of this one, and those of the extra."""
    python = with_extras(tmp_path_factory.mktemp("onnx"), "onnx")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def run(cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, *command], cwd=cwd, env=env, capture_output=True, text=True)

    return run


@pytest.fixture
def trained(tmp_path: Path, params: Params, tiny: TinyMaker) -> Callable[..., Path]:
    """A directory with a trained classifier and its tokenized rows, where the stages put them."""

    def make(kind: str, model: str, **changes: object) -> Path:
        out = tmp_path / kind
        out.mkdir()
        checkpoint, tokenized = tiny(model), out / "data" / "tokenized"
        tokenized.parent.mkdir()
        tokenize(download_kind(kind, out), checkpoint, tokenized, TokenizeParams(max_length=24, padding="dynamic"), 1)
        settings = sections(params, max_train_samples=None, batch_size=8, **changes)
        train(tokenized, checkpoint, out / "models" / "classifier", out / "metrics", out / "checkpoints", *settings)
        return out

    return make


# What a user runs with the file: other lengths and batches than those of the export.
ANSWERS = """
import json, sys
import numpy as np
import onnxruntime, torch, transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
model = transformers.AutoModelForSequenceClassification.from_pretrained(sys.argv[2]).eval()
session = onnxruntime.InferenceSession(sys.argv[1] + "/" + sys.argv[3])
gaps = []
for texts in (["Boston"], ["Boston Falcon Bank sued .", "It ."], ["On Monday it said " * 3] * 5):
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=24, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    [found] = session.run(["logits"], {name: value.numpy() for name, value in inputs.items()})
    gaps.append(float(np.abs(found - expected).max()))
print(json.dumps(gaps))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model"), [("classes", "bert"), ("several", "mpnet"), ("classes", "distilbert"), ("number", "roberta")]
)
def test_the_exported_model_answers_as_the_trained_one(
    kind: str, model: str, trained: Callable[..., Path], run: Run
) -> None:
    out = trained(kind, model, epochs=1, lr=2e-3)
    done = run(out, "-m", "pipeline.export", "--onnx", "an export")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^torch fp32 +\d+ +\d+ +-?\d+\.\d+", done.stdout, re.M)
    assert re.search(r"^ONNX fp32 +\d+ +\d+ +-?\d+\.\d+ +100\.00%$", done.stdout, re.M)
    settings = json.loads((out / "an export" / "inference.json").read_text())
    assert settings["labels"] == TASKS[kind].labels
    assert not list((out / "an export").glob("*.safetensors"))
    if kind != "number":
        answers = run(out, "-c", ANSWERS, "an export", "models/classifier", "model.onnx")
        assert max(json.loads(answers.stdout)) < 1e-4, answers.stderr


@pytest.mark.slow
def test_int8_is_written_only_if_it_answers_like_fp32(trained: Callable[..., Path], run: Run) -> None:
    out = trained("classes", "bert", epochs=20, lr=2e-3)
    done = run(out, "-m", "pipeline.export", "--onnx", "an export", "--int8")
    rows = re.findall(r"^(?:torch fp32|ONNX int8) +\d+ +\d+ +(\S+) +(\S+)%$", done.stdout, re.M)
    (fp32, _), (int8, agreement) = [(float(score), float(same)) for score, same in rows]
    good = agreement >= 98 and fp32 - int8 <= 0.5
    assert done.returncode == (0 if good else 1), done.stderr
    assert (out / "an export" / "model_int8.onnx").exists() == good
    weights = out / "models" / "classifier" / "model.safetensors"
    tensors = load_file(weights)
    for name, tensor in tensors.items():  # units that are always 0, whose weights leave the others no steps of int8
        if name.endswith((".attention.output.LayerNorm.weight", ".attention.output.LayerNorm.bias")):
            tensor[0] = 0
        elif name.endswith((".intermediate.dense.weight", ".attention.self.value.weight")):
            tensor[:, 0] = 300
        elif name.endswith(("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias")):
            tensor[0] = 0
    save_file(tensors, weights, metadata={"format": "pt"})
    done = run(out, "-m", "pipeline.export", "--onnx", "another", "--int8")
    assert done.returncode == 1
    assert re.search(r"^error: .*int8.* nothing is written: export without --int8$", done.stderr, re.M)
    assert not (out / "another").exists()


@pytest.mark.slow
def test_an_export_replaces_only_an_export(trained: Callable[..., Path], run: Run) -> None:
    out = trained("classes", "bert", epochs=1)

    def export(directory: str) -> str:
        return run(out, "-m", "pipeline.export", "--onnx", directory).stderr.splitlines()[-1]

    remedy = "which this export would not write; remove it, or name another directory"
    assert export("models") == f"error: models has classifier, {remedy}"
    assert export("models/classifier/onnx").startswith(
        "error: models/classifier/onnx is in models/classifier, which DVC"
    )
    for _ in range(2):
        assert export("served") == "wrote served"
    (out / "served" / "app.py").touch()
    assert export("served") == f"error: served has app.py, {remedy}"
    assert (out / "models" / "classifier" / "model.safetensors").exists() and (out / "served" / "app.py").exists()


WRITTEN = ["model.onnx", "model.onnx.data", "model_int8.onnx", "model_int8.onnx.data"]
FOREIGN = [
    "model.onnx.backup/", "model_int8.onnx notes/", "model.onnx.bak", "model_int8.onnx.md", "config.json/",
    "model.safetensors", "a.txt",
]  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_what_another_hand_has_put_into_an_export_is_never_lost(name: str, tmp_path: Path) -> None:
    classifier, out = tmp_path / "classifier", tmp_path / "an export"
    exported = ["config.json", "inference.json", "tokenizer.json"]
    for directory, files in ((classifier, [*exported, "model.safetensors"]), (out, [*exported, *WRITTEN])):
        directory.mkdir()
        for file in files:
            (directory / file).touch()
    require_free(out, classifier)
    foreign = out / name
    if name.endswith("/"):
        foreign = out / name.rstrip("/")
        foreign.unlink(missing_ok=True)
        foreign.mkdir()
        (foreign / "thesis").touch()
    else:
        foreign.touch()
    with pytest.raises(UserError, match=rf"an export has {re.escape(foreign.name)}, which this export would not write"):
        require_free(out, classifier)


def test_an_export_of_a_read_only_model_can_be_removed(tmp_path: Path) -> None:
    """DVC makes the files in its cache read-only, and a shared model's directory often is."""
    classifier, out = tmp_path / "classifier", tmp_path / "out"
    (classifier / "checkpoint").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (classifier / name).touch()
    for path in (*classifier.iterdir(), classifier):
        path.chmod(0o555 if path.is_dir() else 0o444)
    out.mkdir()
    copy_settings(classifier, out)
    classifier.chmod(0o755)
    assert [path.name for path in out.iterdir()] == ["config.json"]
    assert all(path.stat().st_mode & 0o200 for path in (out, out / "config.json"))


def test_without_its_packages_the_extra_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.export", "--onnx", "out"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert re.fullmatch(r"error: onnx is not installed; pip install .*\[onnx\]'\n", done.stderr)
