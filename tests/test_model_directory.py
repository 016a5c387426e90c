"""The directory of a trained model: whatever is damaged, contradicts itself or is replaced ends in one line."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TinyMaker, sections
from kinds import TASKS, download_kind
from safetensors.torch import load, save_file
from transformers import BertForSequenceClassification

from pipeline.classify import classify
from pipeline.core.messages import UserError
from pipeline.core.paths import SETTINGS
from pipeline.params import Params, TokenizeParams
from pipeline.tokenize_data import tokenize
from pipeline.train import train

Damage = Callable[[Path], None]
LABELS = TASKS["classes"].labels
REVERSED = LABELS[::-1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, params: Params, tiny: TinyMaker) -> Path:
    out = tmp_path_factory.mktemp("classes")
    raw = download_kind("classes", out)
    tokenize(raw, tiny(), out / "tokenized", TokenizeParams(max_length=24, padding="dynamic"), 1)
    settings = sections(params, epochs=1)
    train(out / "tokenized", tiny(), out / "classifier", out / "metrics", out / "checkpoints", *settings)
    return out / "classifier"


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "model")


def answer(model: Path) -> str:
    out = model.with_name("out.jsonl")
    classify(model, ["Boston sued the firms ."], out, False, 64)
    return out.read_text()


def entries(file: str, **changed: Any) -> Damage:
    """Change entries of a JSON file; those that become `...` are removed."""

    def damage(directory: Path) -> None:
        content = json.loads((directory / file).read_text()) | changed
        kept = {name: value for name, value in content.items() if value is not ...}
        (directory / file).write_text(json.dumps(kept))

    return damage


def settings(**changed: Any) -> Damage:
    return entries(SETTINGS, **changed)


def content(file: str, text: bytes) -> Damage:
    def damage(directory: Path) -> None:
        (directory / file).write_bytes(text)

    return damage


def without(file: str) -> Damage:
    return lambda directory: (directory / file).unlink()


def weights(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Damage:
    def damage(directory: Path) -> None:
        path = directory / "model.safetensors"
        save_file(change(load(path.read_bytes())), path, {"format": "pt"})

    return damage


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no config": (without("config.json"), r"config\.json"),
    "no settings": (without(SETTINGS), SETTINGS),
    "no weights": (without("model.safetensors"), "model"),
    "no tokenizer": (without("tokenizer.json"), r"tokenizer\.json"),
    "no tokenizer settings": (without("tokenizer_config.json"), r"tokenizer_config\.json"),
    "empty settings": (content(SETTINGS, b""), SETTINGS),
    "deep settings": (content(SETTINGS, b"[" * 100_000), SETTINGS),
    "a list as settings": (content(SETTINGS, b"[]"), r"inference\.json: Input should be an object"),
    "not UTF-8": (content(SETTINGS, b"\xff\xfe"), SETTINGS),
    "half a tokenizer": (content("tokenizer.json", b'{"version":'), "cannot be loaded"),
    "NaN from its config": (entries("config.json", layer_norm_eps=float("nan")), "logits for 1 of 1 .* NaN"),
    "an LFS pointer": (content("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n"), "header"),
    "reversed labels": (settings(labels=REVERSED), "has the labels .* but config.json"),
    "reversed labels in config.json": (entries("config.json", id2label=dict(enumerate(REVERSED))), "has the labels"),
    "fewer labels": (settings(labels=LABELS[:-1]), "has the labels"),
    "more labels": (settings(labels=[*LABELS, "more"]), "has the labels"),
    "a gap in the labels": (entries("config.json", id2label=dict(zip("0127", LABELS, strict=True))), "has the labels"),
    "no labels": (settings(labels=[]), "has the labels"),
    "numbers as labels": (settings(labels=[0, 1, 2, 3]), "labels"),
    "a text as labels": (settings(labels="abcd"), "labels"),
    "an unknown problem type": (settings(problem_type="classification"), "problem_type: .* got 'classification'"),
    "a regression": (settings(problem_type="regression", labels=[]), "has the labels"),
    "several labels": (settings(problem_type="multi_label_classification"), "has the problem type multi"),
    "a regression by its config": (entries("config.json", problem_type="regression"), "config.json has regression"),
    "no problem type": (entries("config.json", problem_type=...), "has the problem type"),
    "three columns": (settings(text_columns=["a", "b", "c"]), "text_columns"),
    "a text as length": (settings(max_length="24"), "max_length: .* got '24'"),
    "too short": (settings(max_length=2), "max_length must be between 3 and 128, got 2"),
    "too long": (settings(max_length=129), "max_length must be between 3 and 128, got 129"),
    "unknown padding": (settings(padding="left"), "padding: .* got 'left'"),
    "unknown precision": (settings(precision="FP32"), "precision: .* got 'FP32'"),
    "an entry too many": (settings(extra=1), "extra"),
    "an entry too few": (settings(padding=...), r"inference\.json: padding: Field required"),
    "fewer layers": (entries("config.json", num_hidden_layers=1), r"more layers than .*layer\.1\."),
    "NaN": (weights(lambda old: old | {"classifier.bias": torch.full((4,), torch.nan)}), "NaN .* classifier.bias"),
    "another tensor": (weights(lambda old: old | {"more": torch.ones(1)}), "more, which config.json does not describe"),
    "a tensor missing": (
        weights(lambda old: {name: old[name] for name in old if name != "classifier.bias"}),
        "the weight classifier.bias is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_model_is_reported_in_one_line(name: str, model: Path) -> None:
    damage, message = DAMAGES[name]
    damage(model)
    with pytest.raises(UserError, match=message) as error:
        answer(model)
    assert str(model) in str(error.value)
    assert "\n" not in str(error.value)
    assert not model.with_name("out.jsonl").exists()


def test_a_copied_model_answers_the_same(trained: Path, model: Path) -> None:
    assert answer(model) == answer(trained)


def test_a_model_that_is_removed_while_it_is_read_does_not_reach_for_the_hub(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_pretrained = BertForSequenceClassification.from_pretrained

    def removed_first(*arguments: Any, **options: Any) -> Any:
        shutil.rmtree(model)
        return from_pretrained(*arguments, **options)

    monkeypatch.setattr(BertForSequenceClassification, "from_pretrained", removed_first)
    with pytest.raises(UserError, match=r"model: the model was replaced while it was read\. Run again\."):
        answer(model)


def test_a_model_that_is_replaced_again_and_again_gives_answers_or_one_line(
    trained: Path, model: Path, tmp_path: Path
) -> None:
    """As `dvc repro` does: the old directory is removed, and a new one comes later."""
    stop = threading.Event()

    def replace() -> None:
        while not stop.wait(0.05):
            shutil.copytree(trained, tmp_path / "draft", copy_function=shutil.copyfile)
            shutil.rmtree(model)
            stop.wait(0.02)
            (tmp_path / "draft").rename(model)

    expected, messages = answer(trained), []
    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        for _ in range(10):
            try:
                assert answer(model) == expected
            except UserError as error:
                messages.append(str(error))
    finally:
        stop.set()
        replacing.join()
    assert messages, "no call met a replacement"
    for message in messages:
        assert any(text in message for text in ("was replaced while it was read", "does not exist", "has no")), message
