"""Base models without tokenizer.json, with tiny, newly initialized weights."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from conftest import TinyMaker, contents, params_file, predict_splits, read_logits, run_stage, train_model
from demo_pairs import pairs

from pipeline.core.messages import UserError
from pipeline.core.paths import SOURCE
from pipeline.modeling.tokenization import load_tokenizer
from pipeline.params import ModelParams, Params
from pipeline.pretrained import pretrained
from pipeline.tokenize_data import tokenize

sentencepiece = pytest.importorskip("sentencepiece")

TEXT = "Apple surpassed the airport in Atlanta on Tuesday"
CONFIG: dict[str, Any] = {  # like DeBERTa-v3
    "vocab_size": 140, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "initializer_range": 0.2,  # With the usual 0.02, the logits of such a small model would hardly depend on the text.
    "relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0, "pad_token_id": 0,
}  # fmt: skip
PIECES = {
    "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3,
    "pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]",
}  # fmt: skip


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model with a SentencePiece vocabulary, in the layout of DeBERTa-v3."""
    model = tmp_path_factory.mktemp("published") / "deberta-v3"
    torch.manual_seed(0)
    transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(**CONFIG)).save_pretrained(model)
    with (model / "spm.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{text} Apple apple" for pair in pairs(300) for text in pair[:2]),
            model_writer=file, vocab_size=125, minloglevel=2, **PIECES,
        )  # fmt: skip
    return model


@pytest.fixture(scope="module")
def prepared(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stage pretrained makes of the published model."""
    out = tmp_path_factory.mktemp("prepared") / "model"
    pretrained(out, ModelParams(checkpoint=str(published)))
    return out


def test_texts_are_split_as_sentencepiece_splits_them(prepared: Path) -> None:
    source = json.loads((prepared / SOURCE).read_text())
    assert source["vocabulary"] == ["spm.model"]
    assert {"tokenizer.json", "spm.model"} <= source["files"].keys()
    tokenizer = load_tokenizer(prepared)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(prepared / "spm.model"))
    assert tokenizer.tokenize(TEXT) == processor.encode(TEXT, out_type=str)
    assert tokenizer(TEXT)["input_ids"][1:-1] == processor.encode(TEXT)


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_a_tokenizer_made_from_its_vocabulary_is_the_published_one(
    model_type: str, tiny: TinyMaker, tmp_path: Path
) -> None:
    model, published = shutil.copytree(tiny(model_type), tmp_path / "model"), load_tokenizer(tiny(model_type))
    (model / "tokenizer.json").unlink()
    if model_type == "bert":
        vocabulary = published.get_vocab()
        (model / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)))
    else:
        for file in ("vocab.json", "merges.txt"):
            shutil.copy(tiny(model_type).parent / file, model)
    pretrained(tmp_path / "out", ModelParams(checkpoint=str(model)))
    assert load_tokenizer(tmp_path / "out")(TEXT, TEXT)["input_ids"] == published(TEXT, TEXT)["input_ids"]

    if model_type == "bert":  # By default, transformers would lowercase texts.
        (model / "tokenizer_config.json").write_text("{}")
        with pytest.raises(UserError, match="do_lower_case"):
            pretrained(tmp_path / "out", ModelParams(checkpoint=str(model)))


def test_another_process_makes_the_same_bytes(published: Path, prepared: Path, tmp_path: Path) -> None:
    params_file(tmp_path, {"model.checkpoint": published})
    done = run_stage("pretrained", tmp_path, PYTHONHASHSEED="1")
    assert contents(tmp_path / "models" / "pretrained") == contents(prepared), done.stderr


def test_a_vocabulary_that_does_not_give_a_good_tokenizer_is_an_error(published: Path, tmp_path: Path) -> None:
    model = shutil.copytree(published, tmp_path / "model")
    (model / "spm.model").write_text("damaged")
    with pytest.raises(UserError, match=rf"^{model}: tokenizer\.json .*spm\.model"):
        pretrained(tmp_path / "out", ModelParams(checkpoint=str(model)))
    (model / "spm.model").rename(model / "spiece.model")  # of another model, so that transformers does not read it
    with pytest.raises(UserError, match=r"only \d tokens"):
        pretrained(tmp_path / "out", ModelParams(checkpoint=str(model)))


def test_a_published_layout_goes_through_the_pipeline(
    prepared: Path, params: Params, raw: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenize(raw, prepared, tmp_path / "tokenized", params.tokenize, 1)
    train_model(tmp_path / "tokenized", prepared, tmp_path, lr=3e-3)
    [initialized] = [text for text in caplog.messages if text.startswith("newly initialized: ")]
    assert re.fullmatch(r"newly initialized: ((pooler|classifier)\.[\w.]+(, )?)+", initialized), "only the head is new"
    logits = read_logits(predict_splits(raw, tmp_path / "tokenized", tmp_path, max_samples=40) / "test.parquet")
    assert np.ptp(logits, axis=0).min() > 1e-4, "the logits must differ between the texts"
