"""The head of a base model that was fine-tuned before is kept for the same classes and replaced for other classes."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TinyMaker
from transformers import AutoModelForSequenceClassification, set_seed

from pipeline.modeling.loading import load_base_model, load_fine_tuned_model

NAMES = ["contradiction", "neutral", "entailment"]


def fine_tuned(base: Path, out: Path, labels: list[str]) -> Path:
    """Save a sequence classifier with random weights in its head."""
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: position for position, name in enumerate(labels)}}
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(base, **names)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(out)
    return out


def load(directory: Path, labels: list[str]) -> Any:
    set_seed(42)
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: position for position, name in enumerate(labels)}}
    return load_base_model(directory, "cpu", **(names if labels else {"num_labels": 1}))


def compute_logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(input_ids=torch.arange(5, 17).reshape(2, 6)).logits
    return logits


@pytest.mark.parametrize("model_type", ["bert", "distilbert", "mpnet", "roberta"])
def test_a_head_for_the_same_labels_is_kept_and_follows_their_order(
    model_type: str, tiny: TinyMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = fine_tuned(tiny(model_type), tmp_path / "base", NAMES)
    before = compute_logits(AutoModelForSequenceClassification.from_pretrained(base))
    with caplog.at_level(logging.INFO, logger="pipeline"):
        assert torch.allclose(compute_logits(load(base, NAMES)), before, atol=1e-6)
        assert "kept" in caplog.messages.pop()
        reordered = load(base, [NAMES[2], NAMES[0], NAMES[1]])
        assert torch.allclose(compute_logits(reordered), before[:, [2, 0, 1]], atol=1e-6)
        assert "kept" in caplog.messages.pop()
    reordered.save_pretrained(tmp_path / "saved")
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert saved.config.id2label == {0: "entailment", 1: "contradiction", 2: "neutral"}
    assert torch.allclose(compute_logits(saved), before[:, [2, 0, 1]], atol=1e-6)


@pytest.mark.parametrize(
    ("model_type", "inherited", "labels"),
    [
        ("bert", NAMES, ["sports", "politics", "weather"]),
        ("roberta", NAMES, ["neutral", "entailment"]),
        ("bert", ["LABEL_0", "LABEL_1"], ["no", "yes"]),  # the default names of transformers
        ("bert", ["LABEL_0", "LABEL_1"], ["LABEL_1", "LABEL_0"]),
        ("roberta", ["no", "yes"], []),  # a regression has no labels
        ("bert", ["LABEL_0"], []),  # its config.json does not say that it is a regression
    ],
    ids=str,
)
def test_a_head_for_other_labels_is_newly_initialized_like_a_missing_head(
    model_type: str, inherited: list[str], labels: list[str], tiny: TinyMaker, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    base = fine_tuned(tiny(model_type), tmp_path / "base", inherited)
    AutoModelForSequenceClassification.from_pretrained(base).base_model.save_pretrained(tmp_path / "without")
    with caplog.at_level(logging.INFO, logger="pipeline"):
        model = load(base, labels)
    assert [message for message in caplog.messages if "newly initialized" in message] == caplog.messages[-1:]
    expected = load(tmp_path / "without", labels).state_dict()
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    model.save_pretrained(tmp_path / "saved")
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in saved.items()), (
        "transformers must load the same weights"
    )


def test_the_head_of_a_regression_is_kept_for_a_regression(
    tiny: TinyMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = fine_tuned(tiny(), tmp_path / "base", ["LABEL_0"])
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"problem_type": "regression"}))
    before = compute_logits(AutoModelForSequenceClassification.from_pretrained(base))
    with caplog.at_level(logging.INFO, logger="pipeline"):
        assert torch.allclose(compute_logits(load(base, [])), before, atol=1e-6)
        assert "kept" in caplog.messages.pop()
        assert not torch.allclose(compute_logits(load(base, ["LABEL_0"])), before, atol=1e-6)
        assert "newly initialized" in caplog.messages.pop()


def test_a_trained_model_keeps_its_head(tiny: TinyMaker, tmp_path: Path) -> None:
    base = shutil.copytree(tiny(), tmp_path / "base")
    fine_tuned(tiny(), base, ["LABEL_0", "LABEL_1"])
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"problem_type": "single_label_classification"}))
    before = compute_logits(AutoModelForSequenceClassification.from_pretrained(base))
    assert torch.allclose(compute_logits(load_fine_tuned_model(base, "cpu")), before, atol=1e-6)
