"""Load tokenizers, and tokenize the texts of a corpus for the stage tokenize and new texts for classify."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from pipeline.core.messages import UserError, one_line

LOCAL_FILES: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
# The positions of these models start after the id of the padding token, so 514 positions only fit 512 tokens.
_OFFSET_POSITIONS = {
    "camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl", "xmod",
}  # fmt: skip


@contextmanager
def reading_model(directory: Path) -> Iterator[None]:
    """Raise UserError, in one line, if the block fails. A damaged file can cause almost any exception."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{directory} cannot be loaded: {one_line(error)}") from error


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a model directory.

    A tokenizer without a padding token is set to pad with its end-of-text token, and `model_max_length` to what the
    model can read. Raises UserError if it cannot be loaded, does not fit the model, or has neither of these tokens.
    """
    with reading_model(directory):
        if not (directory / "tokenizer.json").is_file():
            raise ValueError("it has no tokenizer.json, and a tokenizer from other files may split texts differently")
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, **LOCAL_FILES)
        config = AutoConfig.from_pretrained(directory, **LOCAL_FILES)
        vocab_size = getattr(config, "vocab_size", len(tokenizer))
        if len(tokenizer) > vocab_size:
            raise ValueError(f"its tokenizer has {len(tokenizer)} tokens, but vocab_size is {vocab_size}")
        if tokenizer.pad_token is None:
            if tokenizer.eos_token is None:
                raise ValueError("its tokenizer has neither a padding token nor an end-of-text token")
            tokenizer.pad_token = tokenizer.eos_token
            tokenizer.padding_side = "right"  # In GPT-2, padding on the left would shift the positions of the text.
        positions = getattr(config, "max_position_embeddings", None) or sys.maxsize
        if config.model_type in _OFFSET_POSITIONS:
            positions -= tokenizer.pad_token_id + 1
        tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    if "token_type_ids" in tokenizer.model_input_names and getattr(config, "type_vocab_size", None) == 1:
        # RoBERTa models with BERT's tokenizer, such as klue/roberta-base, have no type for the second text of a pair.
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # `save_pretrained` writes these.
    # These entries only say how the tokenizer was loaded. They would change the bytes of tokenizer_config.json.
    for entry in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(entry, None)
    return tokenizer


def encode(
    examples: dict[str, list[Any]],
    tokenizer: PreTrainedTokenizerBase,
    text_columns: list[str],
    max_length: int,
    stride: int | None = None,
) -> dict[str, list[Any]]:
    """Tokenize a batch of examples, for `Dataset.map(encode, batched=True)`.

    Texts that are too long are truncated. In a pair, the longer text is truncated first. With a `stride`, a text that
    is too long becomes several examples instead, its windows, which have the same `idx`.

    Args:
        stride: The number of tokens that consecutive windows of a text share. None truncates the text.

    Returns:
        The model's inputs and the `idx` and `labels` of each example or window, if there are any, plus its `length` in
        tokens and whether it was `truncated`.
    """
    texts = [
        [separator + (_cut(text, tokenizer, max_length) if stride is None else text) for text in examples[column]]
        for column, separator in zip(text_columns, ("", pair_separator(tokenizer)), strict=False)
    ]
    encoded = tokenizer(
        *texts, truncation=True, max_length=max_length, return_overflowing_tokens=stride is not None,
        stride=stride or 0,
    )  # fmt: skip
    rows = encoded.pop("overflow_to_sample_mapping", range(len(texts[0])))
    return {
        **{name: [examples[name][row] for row in rows] for name in ("idx", "labels") if name in examples},
        **encoded,
        "length": [len(ids) for ids in encoded["input_ids"]],
        "truncated": [stride is None and bool(encoding.overflowing) for encoding in encoded.encodings or ()],
    }


def pair_separator(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what to put before the second text of a pair: a newline if the tokenizer adds no special token there."""
    special_tokens = tokenizer.num_special_tokens_to_add
    return "" if special_tokens(pair=True) > special_tokens(pair=False) else "\n"


def _cut(text: str, tokenizer: PreTrainedTokenizerBase, max_length: int) -> str:
    """Shorten a very long text, because the tokenizer needs minutes and gigabytes to truncate a pair of them."""
    if len(text) <= 8 * max_length:
        return text
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    if len(offsets) <= 2 * max_length:
        return text
    if tokenizer.truncation_side == "left":
        return text[offsets[-2 * max_length - 1][0] :]
    return text[: offsets[2 * max_length][1]]
