"""The head of a base model that was fine-tuned before is kept for the same classes and replaced for other classes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TinyMaker, update_json
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSequenceClassification, set_seed

from pipeline.modeling.loading import load_base_model

MODERNBERT = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
}  # fmt: skip
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


@pytest.mark.parametrize("model_type", ["distilbert", "mpnet"])
def test_a_head_for_the_same_labels_is_kept(model_type: str, tiny: TinyMaker, tmp_path: Path) -> None:
    base = fine_tuned(tiny(model_type), tmp_path / "base", NAMES)
    before = compute_logits(AutoModelForSequenceClassification.from_pretrained(base))
    assert torch.allclose(compute_logits(load(base, NAMES)), before, atol=1e-6)


@pytest.mark.parametrize(
    ("model_type", "inherited", "labels"),
    [
        ("bert", NAMES, ["sports", "politics", "weather"]),
        ("distilbert", NAMES, sorted(NAMES)),  # the same labels in another order
        ("roberta", NAMES, ["neutral", "entailment"]),
        ("bert", ["LABEL_0", "LABEL_1"], ["LABEL_0", "LABEL_1"]),
        ("roberta", ["no", "yes"], []),  # a regression has no labels
    ],
    ids=str,
)
def test_a_head_for_another_task_is_newly_initialized(
    model_type: str, inherited: list[str], labels: list[str], tiny: TinyMaker, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    base = fine_tuned(tiny(model_type), tmp_path / "base", inherited)
    published = AutoModelForSequenceClassification.from_pretrained(base)
    model = load(base, labels)
    assert "has a head for another task" in caplog.text
    before, body = published.state_dict(), f"{model.base_model_prefix}."
    for name, weight in model.state_dict().items():
        is_kept = weight.shape == before[name].shape and torch.equal(weight, before[name])
        assert is_kept == name.startswith(body), name


def test_the_trained_layers_of_a_head_without_labels_are_kept(tiny: TinyMaker, tmp_path: Path) -> None:
    """ModernBERT predicts masked words with two layers that its sequence classifier also has."""
    torch.manual_seed(1)
    masked: Any = AutoModelForMaskedLM.from_config(
        AutoConfig.for_model("modernbert", **MODERNBERT), attn_implementation="eager"
    )
    masked.save_pretrained(tmp_path)
    model = load(tmp_path, NAMES)
    assert torch.equal(model.head.dense.weight, masked.head.dense.weight)


def test_the_head_of_a_regression_is_kept_for_a_regression(tiny: TinyMaker, tmp_path: Path) -> None:
    base = fine_tuned(tiny(), tmp_path / "base", ["LABEL_0"])
    update_json(base / "config.json", problem_type="regression")
    before = compute_logits(AutoModelForSequenceClassification.from_pretrained(base))
    regression = load_base_model(base, "cpu", num_labels=1, problem_type="regression")
    assert torch.allclose(compute_logits(regression), before, atol=1e-6)
    classes = load_base_model(base, "cpu", id2label={0: "LABEL_0"}, problem_type="multi_label_classification")
    assert not torch.allclose(compute_logits(classes), before, atol=1e-6)
