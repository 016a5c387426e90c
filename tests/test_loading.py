"""Damaged and malicious model directories: no code is executed, nothing hangs, memory stays bounded."""

import json
import re
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TinyMaker
from safetensors.torch import load, load_file, save_file

from pipeline.core.messages import UserError
from pipeline.modeling.loading import load_classifier, load_tokenizer
from pipeline.modeling.settings import InferenceSettings

Damage = Callable[[Path], None]


def weights(header_size: int, rest: bytes) -> Damage:
    def damage(directory: Path) -> None:
        (directory / "model.safetensors").write_bytes(struct.pack("<Q", header_size) + rest)

    return damage


def tensor(**entry: Any) -> Damage:
    header = json.dumps({"bert.embeddings.word_embeddings.weight": entry}).encode()
    return weights(len(header), header)


def changed(change: Callable[[Any], Any]) -> Damage:
    def damage(directory: Path) -> None:
        weights = load((directory / "model.safetensors").read_bytes())
        name = "embeddings.word_embeddings.weight"
        save_file(weights | {name: change(weights[name])}, directory / "model.safetensors", {"format": "pt"})

    return damage


def truncated(directory: Path) -> None:
    content = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(content[:-1000])


def pickled(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(
        b"cos\nsystem\n(S'touch " + str(directory / "executed").encode() + b"'\ntR."
    )


def config(file: str = "config.json", **entries: Any) -> Damage:
    def damage(directory: Path) -> None:
        content = json.loads((directory / file).read_text())
        (directory / file).write_text(json.dumps(content | entries))

    return damage


def settings(**changed: Any) -> InferenceSettings:
    """The settings of a trained model with the names that transformers gives."""
    entries = {
        "task": "custom", "problem_type": "single_label_classification", "text_columns": ["text"],
        "labels": ["LABEL_0", "LABEL_1"], "max_length": 24, "padding": "dynamic", "precision": "fp32", **changed,
    }  # fmt: skip
    return InferenceSettings(**entries)


REMOTE = {"AutoConfig": "remote.Config", "AutoModelForSequenceClassification": "remote.Model"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (weights(2**40, b"{}"), "header too large"),
        (weights(90_000_000, b"{" * 1000), "invalid header length"),
        (weights(4, b"{{{{"), "invalid JSON in header"),
        (tensor(dtype="F32", shape=[2**40, 2**20], data_offsets=[0, 2**62]), "overflow"),
        (tensor(dtype="F32", shape=[2], data_offsets=[0, 8]), "not fully covered"),
        (truncated, "not fully covered"),
        (pickled, "header too large"),
        (config(model_type="remote", auto_map=REMOTE), "contains custom code which must be executed"),
        (config(model_type="unheard-of"), "does not recognize this architecture"),
        (config(num_hidden_layers=10**9), "asks for 1000000000 layers, but the weights only have 39 tensors"),
        (config(intermediate_size=10**9), r"describes \d+ parameters, but the weights have \d+"),
        (config(hidden_size="wide"), "expected int, got str"),
        (config(hidden_size=-3), "negative dimension"),
        (config(vocab_size=10), r"its tokenizer has \d+ tokens, but vocab_size in config\.json is 10"),
        (config(num_hidden_layers=1), r"more layers than config\.json describes, .*encoder\.layer\.1\."),
        (config(pad_token_id=99999), "Padding_idx"),
        (config(quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}), "bitsandbytes"),
        (changed(lambda weight: weight * torch.nan), r"NaN or infinite numbers, for example in embeddings\.word"),
        (changed(lambda weight: weight / 0), "NaN or infinite"),
        (changed(lambda weight: weight.to(torch.int32)), r"numbers of type torch\.int32"),
        (lambda directory: (directory / "tokenizer.json").unlink(), r"no tokenizer\.json"),
        (config("tokenizer.json", model={"type": "WordPiece", "vocab": {}}), "missing field"),
        (config("tokenizer_config.json", model_input_names=["input_ids"]), "attention_mask"),
        (config("tokenizer_config.json", unk_token=None), "UNK"),
        (config(vocab_size=1000), r"word_embeddings.weight must have shape \[1000, 32\] .*, got \["),
    ],
)  # fmt: skip
def test_a_damaged_or_malicious_model_is_reported_in_one_line(
    damage: Damage, message: str, tiny: TinyMaker, tmp_path: Path
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    (directory / "remote.py").write_text(f"open({str(directory / 'executed')!r}, 'w')")
    damage(directory)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, started = peak_memory(), time.process_time()
    with pytest.raises(UserError, match=rf"model cannot be loaded: .*{message}") as error:
        load_tokenizer(directory)
        load_classifier(directory, "cpu")
    assert "\n" not in str(error.value)
    assert not (directory / "executed").exists()
    assert time.process_time() - started < 5
    assert peak_memory() - before < 50_000


def test_no_weight_of_a_trained_model_is_drawn_at_random(tiny: TinyMaker, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    load_classifier(directory, "cpu")
    settings().write(directory)
    with pytest.raises(UserError, match=r"model: the weights classifier\.\w+ and \d+ more are missing, .*dvc repro"):
        load_classifier(directory, "cpu", trained=True)
    weights = load_file(directory / "model.safetensors")
    renamed = {f"0.auto_model.{name}": tensor for name, tensor in weights.items()}
    save_file(renamed, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"model: the weights .* and \d+ more are missing, which is most of the model"):
        load_classifier(directory, "cpu")


def peak_memory() -> int:
    """Peak resident memory in KiB."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


def test_remote_code_of_a_known_architecture_is_not_executed(tiny: TinyMaker, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    (directory / "remote.py").write_text(f"open({str(directory / 'executed')!r}, 'w')")
    config(auto_map=REMOTE)(directory)
    config("tokenizer_config.json", auto_map={"AutoTokenizer": ["remote.T", None]}, tokenizer_class="T")(directory)
    load_tokenizer(directory)
    load_classifier(directory, "cpu")
    assert not (directory / "executed").exists()


def test_a_saved_tokenizer_does_not_tell_how_it_was_found(tiny: TinyMaker, tmp_path: Path) -> None:
    """Else the bytes of the model directory would depend on HF_HUB_OFFLINE."""
    load_tokenizer(tiny()).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "BertTokenizer"
    assert not {name for name in saved if "local" in name}
