"""Loading a damaged or malicious model directory executes no code, does not hang and needs little memory."""

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

Damage = Callable[[Path], None]


def claim_large_header(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", 2**40) + b"{}")


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


def edit_json(file: str = "config.json", **entries: Any) -> Damage:
    def damage(directory: Path) -> None:
        content = json.loads((directory / file).read_text())
        (directory / file).write_text(json.dumps(content | entries))

    return damage


REMOTE = {"AutoConfig": "remote.Config", "AutoModelForSequenceClassification": "remote.Model"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (claim_large_header, "header too large"),
        (truncate_weights, "not fully covered"),
        (pickle_weights, "header too large"),
        (edit_json(model_type="remote", auto_map=REMOTE), "contains custom code which must be executed"),
        (edit_json(model_type="unheard-of"), "does not recognize this architecture"),
        (edit_json(num_hidden_layers=10**9), "asks for 1000000000 layers, but the weights only have 39 tensors"),
        (edit_json(intermediate_size=10**9), r"describes \d+ parameters, but the weights have \d+"),
        (edit_json(hidden_size="wide"), "expected int, got str"),
        (edit_json(hidden_size=-3), "negative dimension"),
        (edit_json(vocab_size=10), r"its tokenizer has \d+ tokens, but vocab_size in config\.json is 10"),
        (edit_json(num_hidden_layers=1), r"more layers than config\.json describes, .*encoder\.layer\.1\."),
        (edit_json(pad_token_id=99999), "Padding_idx"),
        (edit_json(quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}), "bitsandbytes"),
        (
            edit_embeddings(lambda weight: weight * torch.nan),
            r"NaN or infinite numbers, for example in embeddings\.word",
        ),
        (edit_embeddings(lambda weight: weight / 0), "NaN or infinite"),
        (edit_embeddings(lambda weight: weight.to(torch.int32)), r"numbers of type torch\.int32"),
        (lambda directory: (directory / "tokenizer.json").unlink(), r"no tokenizer\.json"),
        (edit_json("tokenizer.json", model={"type": "WordPiece", "vocab": {}}), "missing field"),
        (edit_json("tokenizer_config.json", model_input_names=["input_ids"]), "attention_mask"),
        (edit_json("tokenizer_config.json", unk_token=None), "UNK"),
        (edit_json(vocab_size=1000), r"word_embeddings.weight must have shape \[1000, 32\] .*, got \["),
    ],
)  # fmt: skip
def test_a_damaged_or_malicious_model_is_reported_in_one_line(
    damage: Damage, message: str, tiny: TinyMaker, tmp_path: Path
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    (directory / "remote.py").write_text(f"open({str(directory / 'executed')!r}, 'w')")
    damage(directory)
    Path("/proc/self/clear_refs").write_text("5")  # This resets the peak memory.
    before, started = peak_memory(), time.process_time()
    with pytest.raises(UserError, match=rf"model cannot be loaded: .*{message}") as error:
        load_tokenizer(directory)
        load_classifier(directory, "cpu")
    assert "\n" not in str(error.value)
    assert not (directory / "executed").exists()
    assert time.process_time() - started < 5
    assert peak_memory() - before < 50_000


def test_missing_weights_are_not_silently_initialized_at_random(tiny: TinyMaker, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    load_classifier(directory, "cpu")
    edit_json(problem_type="single_label_classification")(directory)
    with pytest.raises(UserError, match=r"model: its weights do not match its config\.json, for example classifier\."):
        load_classifier(directory, "cpu", trained=True)
    weights = load_file(directory / "model.safetensors")
    renamed = {f"0.auto_model.{name}": tensor for name, tensor in weights.items()}
    save_file(renamed, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"model: \d+ weights are missing, for example .*, which is most of the model"):
        load_classifier(directory, "cpu")


def peak_memory() -> int:
    """Peak resident memory in KiB."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


def test_remote_code_of_a_known_architecture_is_not_executed(tiny: TinyMaker, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny(), directory)
    (directory / "remote.py").write_text(f"open({str(directory / 'executed')!r}, 'w')")
    edit_json(auto_map=REMOTE)(directory)
    edit_json("tokenizer_config.json", auto_map={"AutoTokenizer": ["remote.T", None]}, tokenizer_class="T")(directory)
    load_tokenizer(directory)
    load_classifier(directory, "cpu")
    assert not (directory / "executed").exists()


def test_a_saved_tokenizer_does_not_depend_on_how_it_was_loaded(tiny: TinyMaker, tmp_path: Path) -> None:
    """Otherwise, the bytes of the model directory would depend on HF_HUB_OFFLINE."""
    load_tokenizer(tiny()).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "BertTokenizer"
    assert not {name for name in saved if "local" in name}
