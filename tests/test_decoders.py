"""Models without a padding token or a separator between two texts, such as GPT-2 and Llama."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from conftest import TinyMaker, predict_splits, read_logits, tokenize_params, train_model, update_json
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pipeline.core.dataset_files import load_examples
from pipeline.core.messages import UserError
from pipeline.modeling.classifier import Classifier
from pipeline.tokenize_data import tokenize


def test_a_model_without_a_padding_token_is_trained_and_gives_the_same_logits_everywhere(
    raw: Path, tiny: TinyMaker, tokenized: Callable[..., Path], tmp_path: Path
) -> None:
    data, model = tokenized(tiny("llama")), tmp_path / "classifier"
    train_model(data, tiny("llama"), tmp_path, lr=3e-3)
    rows = pq.read_table(raw / "test.parquet").slice(0, 40)
    expected = read_logits(predict_splits(raw, data, tmp_path) / "test.parquet")[:40]
    assert np.ptp(expected, axis=0).min() > 1e-3, "the logits must differ between the texts"

    texts = [rows[name].to_pylist() for name in ("sentence1", "sentence2")]
    classifier = Classifier(model, 64)
    logits = classifier.logits(classifier.tokenize(texts))
    assert np.allclose(logits, expected, atol=1e-5)
    require_text_after_an_end_of_text_token_is_read(model)

    tokenizer = AutoTokenizer.from_pretrained(model)
    stock = AutoModelForSequenceClassification.from_pretrained(model).eval()
    assert stock.config.pad_token_id == tokenizer.pad_token_id == tokenizer.eos_token_id
    pairs = [[first, f"\n{second}"] for first, second in zip(*texts, strict=True)]
    with torch.no_grad():
        batched = stock(**tokenizer(pairs, padding=True, return_tensors="pt")).logits
        single = torch.cat([stock(**tokenizer(*pair, return_tensors="pt")).logits for pair in pairs])
    assert np.allclose(batched, expected, atol=1e-5)
    assert np.allclose(single, expected, atol=1e-5), "the last token of the text must count, not the padding"


def test_an_encoder_decoder_model_is_trained_and_scored(
    tiny: TinyMaker, raw: Path, tokenized: Callable[..., Path], tmp_path: Path
) -> None:
    data = tokenized(tiny("bart"))
    train_model(data, tiny("bart"), tmp_path)
    expected = read_logits(predict_splits(raw, data, tmp_path, max_samples=8) / "test.parquet")
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier").eval()
    examples = load_examples(data, "test").select(range(8))
    for number, example in enumerate(examples):
        with torch.no_grad():
            logits = stock(**{name: torch.tensor([example[name]]) for name in ("input_ids", "attention_mask")}).logits
        assert np.allclose(logits[0], expected[number], atol=1e-5)


def require_text_after_an_end_of_text_token_is_read(model: Path) -> None:
    classifier = Classifier(model, 64)
    texts = ["Boston <|endoftext|> sued", "a firm <|endoftext|>", "a much longer text , which has to be padded to"]
    columns = [texts, texts[::-1]]
    batched = classifier.logits(classifier.tokenize(columns))
    single = [classifier.logits(classifier.tokenize([[column[row]] for column in columns]))[0] for row in range(3)]
    assert np.allclose(batched, single, atol=1e-5)
    assert len(np.unique(batched.round(5), axis=0)) == 3


def test_a_tokenizer_without_padding_and_end_of_text_tokens_is_rejected(
    raw: Path, tiny: TinyMaker, tmp_path: Path
) -> None:
    checkpoint = shutil.copytree(tiny("gpt2"), tmp_path / "checkpoint")
    update_json(checkpoint / "tokenizer_config.json", eos_token=None)
    with pytest.raises(UserError, match=r"checkpoint .* neither a padding token"):
        tokenize(raw, checkpoint, tmp_path / "out", tokenize_params(), 1)
