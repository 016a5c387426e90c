"""Base models in the layouts in which they were published, with tiny, newly initialized weights.

Most of these layouts have no tokenizer.json. The stage pretrained makes it from the vocabulary.
"""

import functools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from conftest import contents, params_file, predict_splits, read_logits, run_stage, train_model, update_json
from demo_pairs import pairs
from hub import Hub
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer

from pipeline.core.messages import UserError
from pipeline.core.paths import SOURCE
from pipeline.modeling.classifier import Classifier
from pipeline.modeling.tokenization import load_tokenizer
from pipeline.params import ModelParams, Params
from pipeline.pin import pin
from pipeline.pretrained import pretrained
from pipeline.sources.fetch import file_sha256
from pipeline.tokenize_data import tokenize

sentencepiece = pytest.importorskip("sentencepiece")

TEXT = "Apple surpassed the airport in Atlanta on Tuesday"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHAPE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "initializer_range": 0.2,  # With the usual 0.02, the logits of such a small model would hardly depend on the text.
}  # fmt: skip
Publish = Callable[[str], Path]


def texts() -> list[str]:
    return [f"{text} Apple apple" for pair in pairs(300) for text in pair[:2]]


def sentencepiece_vocabulary(file: str, **options: Any) -> Callable[[Path], int]:
    def write(model: Path) -> int:
        prefix = model / "trained"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts()), model_prefix=str(prefix), vocab_size=125, minloglevel=2, **options
        )
        prefix.with_suffix(".vocab").unlink()
        prefix.with_suffix(".model").rename(model / file)
        return 140  # The embeddings have more rows than the vocabulary has entries.

    return write


def wordpiece_vocabulary(cased: bool) -> Callable[[Path], int]:
    def write(model: Path) -> int:
        words = {word if cased else word.lower() for text in texts() for word in text.split()}
        letters = {letter for word in words for letter in word}
        entries = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words | letters)]
        entries += [f"##{letter}" for letter in sorted(letters)]
        (model / "vocab.txt").write_text("\n".join(entries) + "\n")
        return len(entries)

    return write


def byte_level_vocabulary(start: list[str], tokenizer_class: str = "") -> Callable[[Path], int]:
    """Write vocab.json and merges.txt, and tokenizer.json with these and a class, if one is named."""

    def write(model: Path) -> int:
        tokenizer = ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(texts(), vocab_size=400, special_tokens=start)
        tokenizer.save_model(str(model))
        if tokenizer_class:
            files = {"vocab": str(model / "vocab.json"), "merges": str(model / "merges.txt")}
            getattr(transformers, tokenizer_class)(**files).save_pretrained(model)
        return 420

    return write


# The class of the published weights, the entries of config.json, the vocabulary, and tokenizer_config.json. Versions of
# transformers with a slow and a fast class of each tokenizer wrote the name of either class to tokenizer_config.json.
Layout = tuple[str, dict[str, Any], Callable[[Path], int], dict[str, Any] | None]
LAYOUTS: dict[str, Layout] = {
    "deberta-v3": (
        "DebertaV2ForMaskedLM",
        {
            **SHAPE, "relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm",
            "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
            "type_vocab_size": 0, "max_relative_positions": -1, "pad_token_id": 0, "max_position_embeddings": 128,
        },
        sentencepiece_vocabulary(
            "spm.model", pad_id=0, bos_id=1, eos_id=2, unk_id=3,
            pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]",
        ),
        {"do_lower_case": False, "vocab_type": "spm"},
    ),
    "electra": (
        "ElectraForPreTraining",
        {**SHAPE, "embedding_size": 16, "max_position_embeddings": 128},
        wordpiece_vocabulary(cased=False),
        {"do_lower_case": True, "model_max_length": 128, "tokenizer_class": "ElectraTokenizer"},
    ),
    "albert": (
        "AlbertForPreTraining",
        {**SHAPE, "embedding_size": 16, "max_position_embeddings": 128},
        sentencepiece_vocabulary(
            "spiece.model", pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            normalization_rule_name="nmt_nfkc_cf",
        ),
        None,
    ),
    "xlm-r": (
        "XLMRobertaForMaskedLM",
        {**SHAPE, "max_position_embeddings": 130, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
        sentencepiece_vocabulary("sentencepiece.bpe.model"),
        {"model_max_length": 128, "tokenizer_class": "XLMRobertaTokenizerFast"},
    ),
    "bert-cased": (
        "BertForPreTraining",
        {**SHAPE, "max_position_embeddings": 128},
        wordpiece_vocabulary(cased=True),
        {"do_lower_case": False, "model_max_length": 128},
    ),
    "roberta": (
        "RobertaForMaskedLM",
        {**SHAPE, "max_position_embeddings": 130, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
        byte_level_vocabulary(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
        None,
    ),
    "qwen2": (
        "Qwen2ForCausalLM",
        {
            **SHAPE, "num_key_value_heads": 1, "tie_word_embeddings": True, "dtype": "bfloat16",
            "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 0,
        },
        byte_level_vocabulary(["<|endoftext|>"], "Qwen2Tokenizer"),
        {
            "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>", "unk_token": None, "model_max_length": 128,
        },
    ),
}  # fmt: skip
OLD_NAMES = {"weight": "gamma", "bias": "beta"}
UNCASED = ("electra", "albert")
CONVERTED = {
    "deberta-v3": ["spm.model"],
    "electra": ["vocab.txt"],
    "albert": ["spiece.model"],
    "xlm-r": ["sentencepiece.bpe.model"],
    "bert-cased": ["vocab.txt"],
    "roberta": ["vocab.json", "merges.txt"],
}


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Publish:
    """Publish a model in a layout of LAYOUTS. All tests share the directory and must not change it."""

    @functools.cache
    def publish(name: str) -> Path:
        model_class, entries, write_vocabulary, tokenizer_config = LAYOUTS[name]
        model = tmp_path_factory.mktemp("published") / name
        model.mkdir()
        vocab_size = write_vocabulary(model)
        architecture = getattr(transformers, model_class)
        torch.manual_seed(0)
        weights = architecture(architecture.config_class(vocab_size=vocab_size, **entries))
        weights.to(getattr(torch, entries.get("dtype", "float32"))).save_pretrained(model)
        (model / "generation_config.json").unlink(missing_ok=True)
        if name == "bert-cased":  # It has the names of an older library.
            file = model / "model.safetensors"
            renamed = {
                re.sub(r"LayerNorm\.(weight|bias)$", lambda match: f"LayerNorm.{OLD_NAMES[match[1]]}", key): tensor
                for key, tensor in load_file(file).items()
            }
            save_file(renamed, file, {"format": "pt"})
        if tokenizer_config is not None:
            (model / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
        return model

    return publish


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, published: Publish) -> Publish:
    """Run the stage pretrained with a published model."""

    @functools.cache
    def prepare(name: str) -> Path:
        out = tmp_path_factory.mktemp("prepared") / "pretrained"
        pretrained(out, ModelParams(checkpoint=str(published(name))))
        return out

    return prepare


@pytest.mark.parametrize("name", CONVERTED)
def test_the_source_has_the_checksums_of_the_vocabulary_and_of_the_tokenizer_made_from_it(
    name: str, published: Publish, prepared: Publish
) -> None:
    model = prepared(name)
    source = json.loads((model / SOURCE).read_text())
    assert source["vocabulary"] == CONVERTED[name]
    for file in published(name).iterdir():
        assert source["files"][file.name] == file_sha256(file), "the published files are not changed"
    assert {path.name: file_sha256(path) for path in model.iterdir() if path.name != SOURCE} == source["files"]
    assert set(source["files"]) == {"tokenizer.json", *(file.name for file in published(name).iterdir())}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tokenizer_is_cased_if_its_model_is(name: str, prepared: Publish) -> None:
    tokenizer = load_tokenizer(prepared(name))
    encoded = [tokenizer(word)["input_ids"] for word in ("Apple", "apple")]
    assert (encoded[0] == encoded[1]) == (name in UNCASED)
    assert tokenizer.unk_token_id not in encoded[0] + encoded[1]


@pytest.mark.parametrize("name", ["deberta-v3", "albert", "xlm-r"])
def test_texts_are_split_as_sentencepiece_splits_them(name: str, prepared: Publish) -> None:
    [file] = CONVERTED[name]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(prepared(name) / file))
    assert load_tokenizer(prepared(name)).tokenize(TEXT) == processor.encode(TEXT, out_type=str)


def test_the_ids_of_xlm_r_are_those_of_fairseq(prepared: Publish) -> None:
    """Its padding token, which SentencePiece does not know, moves all other entries."""
    tokenizer = load_tokenizer(prepared("xlm-r"))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(prepared("xlm-r") / "sentencepiece.bpe.model"))
    ids = [0, *(number + 1 for number in processor.encode(TEXT)), 2]
    assert tokenizer(TEXT)["input_ids"] == ids
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (1, 3)


def test_another_process_makes_the_same_bytes(published: Publish, prepared: Publish, tmp_path: Path) -> None:
    params_file(tmp_path, {"model.checkpoint": published("deberta-v3")})
    done = run_stage("pretrained", tmp_path, PYTHONHASHSEED="1")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "models" / "pretrained") == contents(prepared("deberta-v3"))


@pytest.mark.parametrize("cased", [True, False])
@pytest.mark.parametrize("tokenizer_config", [None, {"model_max_length": 128}])
def test_the_vocabulary_says_whether_a_model_is_cased_if_no_file_does(
    cased: bool, tokenizer_config: dict[str, int] | None, published: Publish, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    model = shutil.copytree(published("bert-cased" if cased else "electra"), tmp_path / "model")
    (model / "tokenizer_config.json").unlink()
    if tokenizer_config:
        (model / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    pretrained(tmp_path / "out", ModelParams(checkpoint=str(model)))
    tokenizer = load_tokenizer(tmp_path / "out")
    assert (tokenizer.tokenize("Apple") == tokenizer.tokenize("apple")) == (not cased)
    assert tokenizer.model_max_length == 128 if tokenizer_config else tokenizer.model_max_length > 128
    assert "does not say whether it is cased" in caplog.text


def test_a_model_with_only_a_vocabulary_can_be_pinned_and_fetched_from_the_hub(
    published: Publish, prepared: Publish, tmp_path: Path, hub: Hub
) -> None:
    hub.add("someone/deberta", COMMIT, published("deberta-v3"))
    hub.branches["someone/deberta/main"] = COMMIT
    assert pin("someone/deberta") == f"someone/deberta@{COMMIT}"
    pretrained(tmp_path / "out", ModelParams(checkpoint=f"someone/deberta@{COMMIT}"))
    source, local = (json.loads((model / SOURCE).read_text()) for model in (tmp_path / "out", prepared("deberta-v3")))
    assert (source["files"], source["vocabulary"]) == (local["files"], local["vocabulary"])


def set_entries(file: str, **entries: Any) -> Callable[[Path], None]:
    return lambda model: update_json(model / file, **entries)


def other_unknown_token(model: Path) -> None:
    """DeBERTa's tokenizer looks for [UNK] in the vocabulary when it is loaded again."""
    write = sentencepiece_vocabulary("spm.model", pad_id=0, bos_id=1, eos_id=2, unk_id=3)
    write(model)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("bert-cased", set_entries("config.json", model_type="deberta-v2"), r"would have \d tokens, but .* has \d+"),
        ("deberta-v3", other_unknown_token, "would split texts differently"),
        ("deberta-v3", lambda model: (model / "spm.model").write_bytes(b"no vocabulary"), "parsing"),
        ("roberta", lambda model: (model / "vocab.json").write_text("{"), "Expecting property name"),
        ("roberta", set_entries("tokenizer_config.json", tokenizer_class="CTRLTokenizer"), "no fast version of CTRL"),
    ],
)
def test_a_vocabulary_that_does_not_give_a_good_tokenizer_is_an_error(
    name: str, damage: Callable[[Path], None], message: str, published: Publish, tmp_path: Path
) -> None:
    model = shutil.copytree(published(name), tmp_path / "model")
    if not (model / "tokenizer_config.json").exists():
        (model / "tokenizer_config.json").write_text("{}")
    damage(model)
    with pytest.raises(UserError) as error:
        pretrained(tmp_path / "out", ModelParams(checkpoint=str(model)))
    text = str(error.value)
    assert text.startswith(f"{model} has no tokenizer.json, and none can be made from {CONVERTED[name][0]}: ")
    assert re.search(message, text.removesuffix(". Use a model with a tokenizer.json."))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_published_layout_goes_through_the_pipeline(
    name: str, prepared: Publish, params: Params, raw: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenize(raw, prepared(name), tmp_path / "tokenized", params.tokenize, 1)
    train_model(tmp_path / "tokenized", prepared(name), tmp_path, lr=3e-3)
    [initialized] = [text for text in caplog.messages if text.startswith("newly initialized: ")]
    names = initialized.removeprefix("newly initialized: ").split(", ")
    assert all(re.match(r"(\w+\.)?(pooler|classifier|score)\.", weight) for weight in names), "only the head is new"

    predictions = predict_splits(tmp_path / "tokenized", tmp_path, max_samples=40)
    expected = read_logits(predictions / "test.parquet")
    assert np.ptp(expected, axis=0).min() > 1e-4, "the logits must differ between the texts"

    rows = pq.read_table(raw / "test.parquet").slice(0, len(expected))
    classifier = Classifier(tmp_path / "classifier", 64)
    logits, _ = classifier.score([rows[column].to_pylist() for column in ("sentence1", "sentence2")])
    assert np.allclose(logits, expected, atol=1e-5)
