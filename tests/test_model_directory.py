"""A model directory that is damaged, inconsistent or replaced during loading is reported in one line."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TinyMaker
from kinds import TASKS, train_task
from safetensors.torch import load, save_file
from transformers import BertForSequenceClassification

from pipeline.classify import classify
from pipeline.core.messages import UserError
from pipeline.core.paths import CLASSIFIER, SETTINGS
from pipeline.params import Params

Damage = Callable[[Path], None]
LABELS = TASKS["classes"].labels


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, params: Params, tiny: TinyMaker) -> Path:
    return train_task("classes", tmp_path_factory.mktemp("classes"), tiny(), params) / CLASSIFIER


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "model")


def classify_text(model: Path) -> str:
    out = model.with_name("out.jsonl")
    classify(model, ["Boston sued the firms ."], out, False, 64)
    return out.read_text()


def edit_json(file: str, **changed: Any) -> Damage:
    """Change entries of a JSON file. The value `...` removes an entry."""

    def damage(directory: Path) -> None:
        content = json.loads((directory / file).read_text()) | changed
        kept = {name: value for name, value in content.items() if value is not ...}
        (directory / file).write_text(json.dumps(kept))

    return damage


def edit_settings(**changed: Any) -> Damage:
    return edit_json(SETTINGS, **changed)


def edit_labels(labels: list[str]) -> Damage:
    return edit_json("config.json", id2label=dict(enumerate(labels)))


def overwrite(file: str, text: bytes) -> Damage:
    def damage(directory: Path) -> None:
        (directory / file).write_bytes(text)

    return damage


def delete(file: str) -> Damage:
    return lambda directory: (directory / file).unlink()


def edit_weights(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Damage:
    def damage(directory: Path) -> None:
        path = directory / "model.safetensors"
        save_file(change(load(path.read_bytes())), path, {"format": "pt"})

    return damage


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no config": (delete("config.json"), r"config\.json"),
    "no settings": (delete(SETTINGS), SETTINGS),
    "no weights": (delete("model.safetensors"), "model"),
    "no tokenizer": (delete("tokenizer.json"), r"tokenizer\.json"),
    "no tokenizer config": (delete("tokenizer_config.json"), r"tokenizer_config\.json"),
    "empty settings": (overwrite(SETTINGS, b""), SETTINGS),
    "deeply nested settings": (overwrite(SETTINGS, b"[" * 100_000), SETTINGS),
    "a list as settings": (overwrite(SETTINGS, b"[]"), r"inference\.json: Input should be an object"),
    "settings that are not UTF-8": (overwrite(SETTINGS, b"\xff\xfe"), SETTINGS),
    "a truncated tokenizer": (overwrite("tokenizer.json", b'{"version":'), "cannot be loaded"),
    "a NaN in config.json": (edit_json("config.json", layer_norm_eps=float("nan")), "logits for 1 of 1 .* NaN"),
    "an LFS pointer": (overwrite("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n"), "header"),
    "a missing label": (edit_labels(LABELS[:-1]), r"must have shape \[3\b.*, got \[4\b"),
    "an extra label": (edit_labels([*LABELS, "more"]), r"must have shape \[5\b.*, got \[4\b"),
    "a gap in the labels": (
        edit_json("config.json", id2label=dict(zip("0127", LABELS, strict=True))), "must have the keys 0 to 3, got .*7",
    ),
    "no labels": (edit_labels([]), "cannot be loaded"),
    "a string as labels": (edit_json("config.json", id2label="abcd"), "cannot be loaded"),
    "missing labels": (edit_json("config.json", id2label=...), r"must have shape \[2\b.*, got \[4\b"),
    "an unknown problem type": (edit_json("config.json", problem_type="classification"), "4 outputs: classification"),
    "regression with four outputs": (
        edit_json("config.json", problem_type="regression"), "problem_type .* 4 outputs: regression",
    ),
    "no problem type": (edit_json("config.json", problem_type=...), "problem_type .* 4 outputs: None"),
    "three columns": (edit_settings(text_columns=["a", "b", "c"]), "text_columns"),
    "a string as max_length": (edit_settings(max_length="24"), "max_length: .* got '24'"),
    "max_length too small": (edit_settings(max_length=2), "max_length must be between 3 and 128, got 2"),
    "max_length too large": (edit_settings(max_length=129), "max_length must be between 3 and 128, got 129"),
    "unknown padding": (edit_settings(padding="left"), "padding: .* got 'left'"),
    "unknown precision": (edit_settings(precision="FP32"), "precision: .* got 'FP32'"),
    "an unknown entry": (edit_settings(extra=1), "extra"),
    "a missing entry": (edit_settings(padding=...), r"inference\.json: padding: Field required"),
    "fewer layers": (edit_json("config.json", num_hidden_layers=1), r"more layers than .*layer\.1\."),
    "a NaN in the weights": (
        edit_weights(lambda old: old | {"classifier.bias": torch.full((4,), torch.nan)}), "NaN .* classifier.bias",
    ),
    "an extra tensor": (
        edit_weights(lambda old: old | {"more": torch.ones(1)}), "do not match its config.json, for example more",
    ),
    "a missing tensor": (
        edit_weights(lambda old: {name: old[name] for name in old if name != "classifier.bias"}),
        "do not match its config.json, for example classifier.bias",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_model_is_reported_in_one_line(name: str, model: Path) -> None:
    damage, message = DAMAGES[name]
    damage(model)
    with pytest.raises(UserError, match=message) as error:
        classify_text(model)
    assert str(model) in str(error.value)
    assert "\n" not in str(error.value)
    assert not model.with_name("out.jsonl").exists()


def test_a_copied_model_gives_the_same_prediction(trained: Path, model: Path) -> None:
    assert classify_text(model) == classify_text(trained)


def test_a_model_that_is_removed_during_loading_is_not_looked_up_on_the_hub(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_pretrained = BertForSequenceClassification.from_pretrained

    def removed_first(*arguments: Any, **options: Any) -> Any:
        shutil.rmtree(model)
        return from_pretrained(*arguments, **options)

    monkeypatch.setattr(BertForSequenceClassification, "from_pretrained", removed_first)
    with pytest.raises(UserError, match=r"model: the model was replaced while it was read\. Run again\."):
        classify_text(model)


def test_a_model_that_is_replaced_repeatedly_gives_predictions_or_a_one_line_error(
    trained: Path, model: Path, tmp_path: Path
) -> None:
    """The replacement works like in `dvc repro`, which removes the old directory before it writes the new one."""
    stop = threading.Event()

    def replace() -> None:
        while not stop.wait(0.05):
            shutil.copytree(trained, tmp_path / "draft", copy_function=shutil.copyfile)
            shutil.rmtree(model)
            stop.wait(0.02)
            (tmp_path / "draft").rename(model)

    expected, messages = classify_text(trained), []
    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        for _ in range(10):
            try:
                assert classify_text(model) == expected
            except UserError as error:
                messages.append(str(error))
    finally:
        stop.set()
        replacing.join()
    assert messages, "no call happened during a replacement"
    for message in messages:
        assert any(text in message for text in ("was replaced while it was read", "does not exist", "has no")), message
