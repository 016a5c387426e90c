"""`python -m pipeline.export`, with the packages of its extra installed in a separate environment."""

import os
from pathlib import Path

import pytest
from conftest import ROOT, TinyMaker, run_command, with_extras
from kinds import train_task

from pipeline.core.messages import UserError
from pipeline.core.paths import CLASSIFIER, SETTINGS
from pipeline.export import export_onnx
from pipeline.params import Params


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that adds the packages of the extra to the current ones."""
    return with_extras(tmp_path_factory.mktemp("onnx"), "onnx")


# This is what a user runs with the exported file. The lengths and batch sizes differ from the export's.
COMPARE_LOGITS = """
import onnxruntime, torch, transformers
tokenizer = transformers.AutoTokenizer.from_pretrained("an export")
model = transformers.AutoModelForSequenceClassification.from_pretrained("models/classifier").eval()
session = onnxruntime.InferenceSession("an export/model.onnx")
for texts in (["Boston"], ["Boston Falcon Bank sued .", "It ."], ["On Monday it said " * 3] * 5):
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=24, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits
    [logits] = session.run(["logits"], {name: value.numpy() for name, value in inputs.items()})
    assert (torch.tensor(logits) - expected).abs().max() < 1e-4
assert transformers.AutoConfig.from_pretrained("an export").id2label == model.config.id2label
"""


@pytest.mark.slow
@pytest.mark.parametrize(("task", "model"), [("classes", "bert"), ("multi_label", "mpnet"), ("regression", "roberta")])
def test_the_exported_model_gives_the_same_predictions_as_the_trained_model(
    task: str, model: str, params: Params, tiny: TinyMaker, tmp_path: Path, python: Path
) -> None:
    train_task(task, tmp_path, tiny(model), params, batch_size=8, epochs=1, lr=2e-3)
    for command in (["-m", "pipeline.export", "--onnx", "an export"], ["-c", COMPARE_LOGITS]):
        run_command(python, *command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (tmp_path / "an export" / SETTINGS).read_bytes() == (tmp_path / CLASSIFIER / SETTINGS).read_bytes()


@pytest.mark.parametrize(("out", "part"), [("models", "models"), ("new", "onnx")])
def test_an_existing_directory_and_a_missing_package_are_reported(out: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(UserError, match=part):
        export_onnx(tmp_path / "classifier", tmp_path / "tokenized", tmp_path / out)
