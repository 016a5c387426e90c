"""Loading a model executes no code, and a model whose files do not fit together is rejected in one line."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TinyMaker, train_model, update_json

from pipeline.core.messages import UserError
from pipeline.modeling.loading import load_base_model, load_fine_tuned_model
from pipeline.modeling.tokenization import load_tokenizer

Damage = Callable[[Path], object]


@pytest.fixture
def base_model(tiny: TinyMaker, tmp_path: Path) -> Path:
    """A copy of a base model, next to code that leaves a file named "executed"."""
    directory = shutil.copytree(tiny(), tmp_path / "base")
    (directory / "remote.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    return directory


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Path:
    """A model that the stage train wrote. Tests must not change it."""
    out = tmp_path_factory.mktemp("trained")
    return train_model(tokenized(tiny()), tiny(), out, max_train_samples=16) / "classifier"


def edit_json(file: str, **changed: Any) -> Damage:
    return lambda directory: update_json(directory / file, **changed)


def truncate_weights(directory: Path) -> None:
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def pickle_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    pickle = f"cos\nsystem\n(S'touch \"{directory.with_name('executed')}\"'\ntR."
    (directory / "pytorch_model.bin").write_bytes(pickle.encode())


REMOTE = {"AutoConfig": "remote.Config", "AutoModelForSequenceClassification": "remote.Model"}
DAMAGES: dict[str, Damage] = {
    "truncated weights": truncate_weights, "a pickle": pickle_weights,
    "remote code": edit_json("config.json", model_type="remote", auto_map=REMOTE),
    "more layers than in config.json": edit_json("config.json", num_hidden_layers=1),
    "more tokens than embeddings": edit_json("config.json", vocab_size=10),
    "embeddings of another shape": edit_json("config.json", vocab_size=1000),
    "no tokenizer": lambda directory: (directory / "tokenizer.json").unlink(),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_malicious_base_model_is_rejected_in_one_line(name: str, base_model: Path) -> None:
    DAMAGES[name](base_model)
    with pytest.raises(UserError) as error:
        load_tokenizer(base_model)
        load_base_model(base_model, "cpu")
    assert str(base_model) in str(error.value) and "\n" not in str(error.value)
    assert not base_model.with_name("executed").exists()


@pytest.mark.parametrize("name", ["truncated weights", "more layers than in config.json"])
def test_a_damaged_fine_tuned_model_is_rejected_in_one_line(name: str, trained: Path, tmp_path: Path) -> None:
    model = shutil.copytree(trained, tmp_path / "model")
    load_fine_tuned_model(model, "cpu")
    DAMAGES[name](model)
    with pytest.raises(UserError) as error:
        load_fine_tuned_model(model, "cpu")
    assert str(model) in str(error.value) and "\n" not in str(error.value)


def test_remote_code_of_a_known_architecture_is_not_executed(base_model: Path) -> None:
    edit_json("config.json", auto_map=REMOTE)(base_model)
    edit_json("tokenizer_config.json", auto_map={"AutoTokenizer": ["remote.T", None]}, tokenizer_class="T")(base_model)
    load_tokenizer(base_model)
    load_base_model(base_model, "cpu")
    assert not base_model.with_name("executed").exists()


def test_weights_that_are_missing_are_logged_in_a_base_model_and_are_an_error_in_a_fine_tuned_one(
    base_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_base_model(base_model, "cpu")
    assert "newly initialized: classifier.bias, classifier.weight" in caplog.text
    with pytest.raises(UserError, match=r"base .*classifier\.bias"):
        load_fine_tuned_model(base_model, "cpu")


def test_a_colleague_can_read_every_file_of_a_fine_tuned_model(trained: Path) -> None:
    os.umask(mask := os.umask(0))
    assert {path.stat().st_mode & 0o777 for path in trained.iterdir()} == {0o666 & ~mask}


def test_a_saved_tokenizer_does_not_depend_on_how_it_was_loaded(base_model: Path, tmp_path: Path) -> None:
    """Otherwise, the bytes of the model directory would depend on HF_HUB_OFFLINE."""
    load_tokenizer(base_model).save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "BertTokenizer"
    assert not {name for name in saved if "local" in name}
