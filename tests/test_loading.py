"""A damaged or malicious model directory is reported in one line, and loading it executes no code."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TinyMaker
from kinds import TASKS, train_task
from safetensors.torch import load, load_file, save_file

from pipeline.classify import classify
from pipeline.core.messages import UserError
from pipeline.core.paths import CLASSIFIER, SETTINGS
from pipeline.modeling.loading import load_base_model, load_fine_tuned_model, load_tokenizer
from pipeline.params import Params

Damage = Callable[[Path], None]
LABELS = TASKS["classes"].labels


def edit_embeddings(change: Callable[[Any], Any]) -> Damage:
    def damage(directory: Path) -> None:
        weights = load((directory / "model.safetensors").read_bytes())
        name = "embeddings.word_embeddings.weight"
        save_file(weights | {name: change(weights[name])}, directory / "model.safetensors", {"format": "pt"})

    return damage


def truncate_weights(directory: Path) -> None:
    content = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(content[:-1000])


def pickle_weights(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(
        b"cos\nsystem\n(S'touch " + str(directory / "executed").encode() + b"'\ntR."
    )


def edit_json(file: str = "config.json", **changed: Any) -> Damage:
    """Change entries of a JSON file. The value `...` removes an entry."""

    def damage(directory: Path) -> None:
        content = json.loads((directory / file).read_text()) | changed
        kept = {name: value for name, value in content.items() if value is not ...}
        (directory / file).write_text(json.dumps(kept))

    return damage


def edit_settings(**changed: Any) -> Damage:
    return edit_json(SETTINGS, **changed)


def overwrite(file: str, text: bytes) -> Damage:
    def damage(directory: Path) -> None:
        (directory / file).write_bytes(text)

    return damage


def delete(file: str) -> Damage:
    return lambda directory: (directory / file).unlink()


REMOTE = {"AutoConfig": "remote.Config", "AutoModelForSequenceClassification": "remote.Model"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate_weights, ""),
        (pickle_weights, ""),
        (edit_json(model_type="remote", auto_map=REMOTE), ""),
        (edit_json(hidden_size="wide"), ""),
        (edit_json(num_hidden_layers=1), r"more layers than config\.json describes, .*encoder\.layer\.1\."),
        (edit_json(vocab_size=10), r"its tokenizer has \d+ tokens, but vocab_size in config\.json is 10"),
        (
            edit_embeddings(lambda weight: weight * torch.nan),
            r"NaN or infinite numbers, for example in .*embeddings\.word",
        ),
        (delete("tokenizer.json"), r"no tokenizer\.json"),
        (edit_json("tokenizer_config.json", model_input_names=["input_ids"]), "attention_mask"),
        (edit_json("tokenizer_config.json", unk_token=None), ""),
        (edit_json(vocab_size=1000), r"word_embeddings.weight does not have the shape \[1000, 32\]"),
    ],
)  # fmt: skip
def test_a_damaged_or_malicious_model_is_reported_in_one_line(
    damage: Damage, message: str, tiny: TinyMaker, tmp_path: Path
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    (directory / "remote.py").write_text(f"open({str(directory / 'executed')!r}, 'w')")
    damage(directory)
    with pytest.raises(UserError, match=rf"model cannot be loaded: .*{message}"):
        load_tokenizer(directory)
        load_base_model(directory, "cpu")
    assert not (directory / "executed").exists()


def test_missing_weights_are_not_silently_initialized_at_random(tiny: TinyMaker, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    load_base_model(directory, "cpu")
    edit_json(problem_type="single_label_classification")(directory)
    with pytest.raises(UserError, match=r"model: its weights do not match its config\.json, for example classifier\."):
        load_fine_tuned_model(directory, "cpu")
    weights = load_file(directory / "model.safetensors")
    renamed = {f"0.auto_model.{name}": tensor for name, tensor in weights.items()}
    save_file(renamed, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"model: \d+ weights are missing, for example .*, which is most of the model"):
        load_base_model(directory, "cpu")


def test_remote_code_of_a_known_architecture_is_not_executed(tiny: TinyMaker, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    (directory / "remote.py").write_text(f"open({str(directory / 'executed')!r}, 'w')")
    edit_json(auto_map=REMOTE)(directory)
    edit_json("tokenizer_config.json", auto_map={"AutoTokenizer": ["remote.T", None]}, tokenizer_class="T")(directory)
    load_tokenizer(directory)
    load_base_model(directory, "cpu")
    assert not (directory / "executed").exists()


def test_a_saved_tokenizer_does_not_depend_on_how_it_was_loaded(tiny: TinyMaker, tmp_path: Path) -> None:
    """Otherwise, the bytes of the model directory would depend on HF_HUB_OFFLINE."""
    load_tokenizer(tiny()).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "BertTokenizer"
    assert not {name for name in saved if "local" in name}


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


FINE_TUNED_DAMAGES: dict[str, tuple[Damage, str]] = {
    "no config": (delete("config.json"), r"config\.json"),
    "no settings": (delete(SETTINGS), SETTINGS),
    "no weights": (delete("model.safetensors"), "cannot be loaded"),
    "a list as settings": (overwrite(SETTINGS, b"[]"), r"inference\.json cannot be read: .*should be an object"),
    "settings that are not UTF-8": (overwrite(SETTINGS, b"\xff\xfe"), SETTINGS),
    "a truncated tokenizer": (overwrite("tokenizer.json", b'{"version":'), "cannot be loaded"),
    "a NaN in config.json": (edit_json("config.json", layer_norm_eps=float("nan")), "logits for 1 of 1 .* NaN"),
    "a missing label": (edit_json(id2label=dict(enumerate(LABELS[:-1]))), r"not have the shape \[3\b"),
    "no problem type": (edit_json(problem_type=...), "problem_type .* 4 outputs: None"),
    "regression with four outputs": (edit_json(problem_type="regression"), "4 outputs: regression"),
    "a gap in the labels": (edit_json(id2label=dict(zip("0127", LABELS, strict=True))), "keys 0 to 3"),
    "too long a maximum length": (edit_settings(max_length=129), "max_length must be between 3 and 128"),
    "a string as max_length": (edit_settings(max_length="24"), "max_length .*'24'"),
    "a missing entry": (edit_settings(precision=...), r"inference\.json cannot be read: .*precision Field required"),
    "fewer layers": (edit_json("config.json", num_hidden_layers=1), r"do not match its config\.json, .*layer\.1\."),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE_TUNED_DAMAGES)
def test_a_damaged_fine_tuned_model_is_reported_in_one_line(name: str, model: Path) -> None:
    damage, message = FINE_TUNED_DAMAGES[name]
    damage(model)
    with pytest.raises(UserError, match=message) as error:
        classify_text(model)
    assert str(model) in str(error.value)
    assert not model.with_name("out.jsonl").exists()


def test_a_copied_model_gives_the_same_prediction(trained: Path, model: Path) -> None:
    assert classify_text(model) == classify_text(trained)
