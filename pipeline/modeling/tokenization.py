"""Tokenize the texts of a corpus for the stage tokenize, and new texts for classify."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


def encode(
    examples: dict[str, list[Any]],
    tokenizer: PreTrainedTokenizerBase,
    text_columns: list[str],
    max_length: int,
    padding: str,
) -> dict[str, list[Any]]:
    """Tokenize a batch of examples, for `Dataset.map(encode, batched=True)`.

    Texts that are too long are truncated. In a pair, the longer text is truncated first.

    Args:
        text_columns: One column, or two for pairs, in the order in which the model reads them.
        padding: "dynamic" leaves padding to the data collator; "max_length" pads every example.

    Returns:
        The model's inputs, plus the `length` of each example in tokens without padding and whether it was `truncated`.
    """
    separators = ("", pair_separator(tokenizer))
    texts = [
        [separator + _cut(text, tokenizer, max_length) for text in examples[column]]
        for column, separator in zip(text_columns, separators, strict=False)
    ]
    encoded = tokenizer(
        *texts, truncation=True, max_length=max_length, padding="max_length" if padding == "max_length" else False
    )
    encodings = encoded.encodings
    assert encodings is not None  # `load_tokenizer` returns fast tokenizers only
    return {
        **encoded,
        "length": [sum(mask) for mask in encoded["attention_mask"]],
        "truncated": [bool(encoding.overflowing) for encoding in encodings],
    }


def count_unknown_tokens(input_ids: pa.ChunkedArray, tokenizer: PreTrainedTokenizerBase) -> int:
    """Count the unknown tokens in tokenized examples.

    A tokenizer that splits unknown text into bytes, such as GPT-2's, never produces any. Its `unk_token` marks the end
    of a text and may be used for padding, so it is not counted.
    """
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id):
        return 0
    return pc.sum(pc.equal(pc.list_flatten(input_ids), unknown), min_count=0).as_py()  # type: ignore[no-any-return]


# Thai and Lao, Burmese, Khmer, Japanese and Chinese do not write spaces between words.
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"


def count_words(texts: pa.ChunkedArray) -> int:
    """Count the words in texts. In scripts without spaces between words, every two characters count as a word."""
    words = pc.count_substring_regex(texts, f"[{_SPACELESS}]{{1,2}}|[^\\s{_SPACELESS}]+")
    return pc.sum(words, min_count=0).as_py()  # type: ignore[no-any-return]


def pair_separator(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what to put before the second text of a pair: a newline if the tokenizer adds no special token there."""
    special_tokens = tokenizer.num_special_tokens_to_add
    return "" if special_tokens(pair=True) > special_tokens(pair=False) else "\n"


def _cut(text: str, tokenizer: PreTrainedTokenizerBase, max_length: int) -> str:
    """Shorten a very long text to about twice the length that truncation can keep.

    When the tokenizer truncates a pair, it builds every combination of the overflowing pieces. With two texts of
    100,000 characters, that takes minutes and gigabytes.
    """
    if len(text) <= 8 * max_length:
        return text
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    if len(offsets) <= 2 * max_length:
        return text
    if tokenizer.truncation_side == "left":
        return text[offsets[-2 * max_length - 1][0] :]
    return text[: offsets[2 * max_length][1]]


def ignores_token_types(directory: Path, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a model, such as BERT, has token types for the two texts of a pair, but its tokenizer lacks them.

    This happens if tokenizer_config.json names a class that fits any model. The class for a model, such as
    DebertaV2Tokenizer, knows whether the model was trained with token types.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    is_generic = type(tokenizer) is PreTrainedTokenizerFast
    return is_generic and config.get("type_vocab_size", 0) > 1 and "token_type_ids" not in tokenizer.model_input_names


def length_range(directory: Path, tokenizer: PreTrainedTokenizerBase, texts: int) -> tuple[int, int]:
    """Return the smallest and the largest `max_length` that a model supports.

    The smallest leaves room for one token of each text. The largest is the number of positions of the model, or the
    limit of the tokenizer if that is lower.

    Args:
        texts: The number of texts per example, 1 or 2.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    positions = config.get("max_position_embeddings") or config.get("n_positions") or sys.maxsize
    if config.get("model_type") in _OFFSET_POSITIONS:
        positions -= tokenizer.pad_token_id + 1
    smallest = tokenizer.num_special_tokens_to_add(pair=texts == 2) + texts
    if texts == 2:
        smallest += len(pair_separator(tokenizer))
    return smallest, min(int(positions), tokenizer.model_max_length)


# The positions of these models start after the id of the padding token, as in fairseq, so 514 positions only fit
# 512 tokens.
_OFFSET_POSITIONS = {
    "camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl", "xmod",
}  # fmt: skip
