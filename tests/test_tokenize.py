"""The tokenize stage: model inputs, truncation, worker processes, and warnings about unsuitable texts."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TinyMaker, contents, replace_columns, tokenize_params, update_json

from pipeline.core.dataset_files import load_examples
from pipeline.core.messages import UserError
from pipeline.core.paths import SOURCE, TOKENIZATION, read_json
from pipeline.core.task import TASK
from pipeline.modeling.tokenization import load_tokenizer
from pipeline.tokenize_data import tokenize


@pytest.mark.parametrize(
    ("model_type", "config", "has_types"),
    [
        ("bert", {}, True),
        ("roberta", {}, False),
        # Like a RoBERTa model with BERT's tokenizer, whose types would be outside of the model's embedding.
        ("bert", {"type_vocab_size": 1}, False),
    ],
)
def test_token_types_are_written_if_the_model_has_them(
    model_type: str, config: dict[str, int], has_types: bool, tiny: TinyMaker, tokenized: Callable[..., Path]
) -> None:
    table = load_examples(tokenized(tiny(model_type, **config)), "train")
    columns = {"input_ids", "attention_mask", "labels", "idx", "length"}
    assert set(table.column_names) == columns | ({"token_type_ids"} if has_types else set())
    if has_types:
        assert set(table["token_type_ids"][0]) == {0, 1}, "the two texts must be encoded as a pair"


def test_a_tokenizer_without_token_types_is_saved_without_them(tiny: TinyMaker, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    load_tokenizer(tiny("bert", type_vocab_size=1)).save_pretrained(tmp_path)
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(tmp_path)("a text", "another text")


def test_truncation_is_counted_and_reported(
    raw: Path, tiny: TinyMaker, tokenized: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = [len(ids) for ids in load_examples(tokenized(tiny()), "test")["input_ids"][:]]
    limit = sorted(lengths)[len(lengths) // 2]
    too_long = sum(length > limit for length in lengths)
    tokenize(raw, tiny(), tmp_path / "out", tokenize_params(limit), 1)
    assert f"longest {limit}, {too_long} truncated" in caplog.text
    assert any("tokenize.max_length" in record.getMessage() for record in caplog.records if record.levelno > 20)
    reported = read_json(tmp_path / "out" / TOKENIZATION)["splits"]["test"]
    assert (reported["rows"], reported["longest"], reported["truncated"]) == (240, limit, too_long)
    assert max(len(ids) for ids in load_examples(tmp_path / "out", "test")["input_ids"][:]) == limit


def test_the_number_of_processes_does_not_change_the_bytes(raw: Path, tiny: TinyMaker, tmp_path: Path) -> None:
    before = contents(raw)
    for out, num_proc in (("first", 1), ("parallel", 1000)):  # it starts at most one process per core
        tokenize(raw, tiny(), tmp_path / out, tokenize_params(), num_proc)
    first = contents(tmp_path / "first")
    assert first == contents(tmp_path / "parallel")
    assert {name.split("/")[0] for name in first} == {
        "train", "validation", "test", SOURCE, TASK, TOKENIZATION,
    }  # fmt: skip
    assert contents(raw) == before


def test_a_model_whose_positions_start_after_the_padding_token_supports_fewer_tokens(
    raw: Path, tiny: TinyMaker, tmp_path: Path
) -> None:
    """The tokenizers of some RoBERTa models have no limit, so the limit follows from the 130 positions of the model."""
    checkpoint = shutil.copytree(tiny("roberta"), tmp_path / "checkpoint")
    update_json(checkpoint / "tokenizer_config.json", model_max_length=10**30)
    with pytest.raises(UserError, match=r"max_length must be at most 128 .*, got 129\."):
        tokenize(raw, checkpoint, tmp_path / "out", tokenize_params(129), 1)


def test_the_error_for_a_broken_input_names_the_stage_to_run(raw: Path, tiny: TinyMaker, tmp_path: Path) -> None:
    broken = shutil.copytree(raw, tmp_path / "broken")
    (broken / "train.parquet").write_bytes((raw / "train.parquet").read_bytes()[:-100])
    with pytest.raises(UserError, match=r'broken.train\.parquet cannot be read: .*"dvc repro"'):
        tokenize(broken, tiny(), tmp_path / "out", tokenize_params(), 1)
    assert not (tmp_path / "out").exists()


def test_texts_outside_the_vocabulary_are_reported(
    raw: Path, tiny: TinyMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The validation split is in Chinese, and an English vocabulary has no Chinese characters."""
    modified_raw = shutil.copytree(raw, tmp_path / "raw")
    texts = {"sentence1": ["他昨天回家了"] * 120, "sentence2": ["It rained on Monday ."] * 120}
    replace_columns(modified_raw / "validation.parquet", **texts)
    tokenize(modified_raw, tiny(), tmp_path / "out", tokenize_params(), 1)
    rows = load_examples(tmp_path / "out", "validation")["input_ids"][:]
    unknown = sum(ids.count(load_tokenizer(tiny()).unk_token_id) for ids in rows)
    percentage = 100 * unknown / sum(map(len, rows))
    assert f"{percentage:.1f}% of the tokens unknown" in caplog.text
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("validation: ")
