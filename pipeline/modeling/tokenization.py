"""Texts as token ids: of the rows of a corpus in stage tokenize, and of new texts in classify."""

import json
import re
import sys
from collections import Counter
from itertools import chain, compress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.core.messages import UserError
from pipeline.core.task import NO_LABEL

if TYPE_CHECKING:
    import pyarrow as pa
    from transformers import PreTrainedTokenizerBase


def token_columns(tokenizer: "PreTrainedTokenizerBase") -> dict[str, "pa.DataType"]:
    """The columns of tokenized rows, without labels, by name."""
    import pyarrow as pa

    lists = {name: pa.list_(pa.int32() if name == "input_ids" else pa.int8()) for name in tokenizer.model_input_names}
    return {"idx": pa.int32(), "length": pa.int32(), **lists}


class Encoded(NamedTuple):
    """A batch of tokenized rows, and what to report on it.

    Attributes:
        batch: The tokenized rows.
        truncated: The number of rows that were truncated.
        counts: How many `tokens` the texts have, without padding and special tokens; how many of them are `unknown`,
            for text that the vocabulary does not have; and `whole_tokens` and `words` of the rows that were not
            truncated.
    """

    batch: "pa.RecordBatch"
    truncated: int
    counts: Counter[str]


def encode(
    rows: "pa.RecordBatch",
    tokenizer: "PreTrainedTokenizerBase",
    order: list[str],
    max_length: int,
    padding: str,
    schema: "pa.Schema",
) -> Encoded:
    """Tokenize a batch of rows. order: the text columns. At module level, so that it can be pickled."""
    import numpy as np
    import pyarrow as pa

    from pipeline.core.tables import from_numpy, to_numpy

    texts = [rows[column].to_pylist() for column in order]
    before = ("", pair_separator(tokenizer))
    tokens = tokenizer(
        *(
            [separator + _cut(text, tokenizer, max_length) for text in column]
            for separator, column in zip(before, texts, strict=False)
        ),
        truncation=True,
        max_length=max_length,
        padding="max_length" if padding == "max_length" else False,
    )
    starts = np.cumsum([0, *map(len, tokens["input_ids"])], dtype=np.int32)
    lengths = np.array([sum(mask) for mask in tokens["attention_mask"]], dtype=np.int32)
    columns = {"idx": rows["idx"], "length": from_numpy(lengths)}
    if "labels" in schema.names:
        columns["labels"] = rows["label"]
        if pa.types.is_floating(rows["label"].type) and np.any(to_numpy(rows["label"]) == NO_LABEL):
            raise UserError(f"a row has the label {NO_LABEL}, which to transformers stands for none; shift or scale it")
    for name, lists in tokens.items():
        values = np.fromiter(chain.from_iterable(lists), schema.field(name).type.value_type.to_pandas_dtype())
        columns[name] = pa.ListArray.from_arrays(from_numpy(starts), from_numpy(values))
    whole = np.array([not encoding.overflowing for encoding in tokens.encodings or []], dtype=bool)
    text_lengths = lengths - tokenizer.num_special_tokens_to_add(pair=len(order) == 2)
    unknown = _unknown_token(tokenizer)
    counts = Counter(
        tokens=int(text_lengths.sum()),
        unknown=sum(ids.count(unknown) for ids in tokens["input_ids"]) if unknown is not None else 0,
        whole_tokens=int(text_lengths[whole].sum()),
        words=sum(count_words(text) for column in texts for text in compress(column, whole)),
    )
    return Encoded(pa.RecordBatch.from_pydict(columns, schema), int((~whole).sum()), counts)


def _unknown_token(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """Return the id of the unknown token, or None if the tokenizer splits unknown text into bytes.

    GPT-2 then has a token of this name that marks the end of a text, and may pad it.
    """
    marks = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return None if tokenizer.unk_token_id in marks else tokenizer.unk_token_id


# Thai and Lao, Burmese, Khmer, Japanese and Chinese.
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def count_words(text: str) -> int:
    """Count the words between spaces. In a script that does not write spaces, two characters count as a word."""
    spaced, characters = _WITHOUT_SPACES.subn(" ", text)
    return len(spaced.split()) + (characters + 1) // 2


def pair_separator(tokenizer: "PreTrainedTokenizerBase") -> str:
    """What to put before the second text of a pair: a newline if the tokenizer has no special token for that place."""
    special_tokens = tokenizer.num_special_tokens_to_add
    return "" if special_tokens(pair=True) > special_tokens(pair=False) else "\n"


def _cut(text: str, tokenizer: "PreTrainedTokenizerBase", max_length: int) -> str:
    """Cut a text far beyond the last token that can be kept.

    For a truncated pair, the tokenizer builds every combination of the overflowing pieces: with two texts of 100,000
    characters, that takes minutes and gigabytes.
    """
    if len(text) <= 8 * max_length:
        return text
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    if len(offsets) <= 2 * max_length:
        return text
    if tokenizer.truncation_side == "left":
        return text[offsets[-2 * max_length - 1][0] :]
    return text[: offsets[2 * max_length][1]]


def length_range(directory: Path, tokenizer: "PreTrainedTokenizerBase", texts: int) -> tuple[int, int]:
    """The lengths in tokens that an input can be cut to: with a token of each text, and as many as there are positions.

    texts: of an input, 1 or 2.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    positions = config.get("max_position_embeddings", config.get("n_positions", sys.maxsize))
    if config.get("model_type") in _OFFSET_POSITIONS:
        positions -= config.get("pad_token_id", 1) + 1
    least = tokenizer.num_special_tokens_to_add(pair=texts == 2) + texts
    if texts == 2:
        least += len(pair_separator(tokenizer))
    return least, min(int(positions), tokenizer.model_max_length)


# Their positions start after the padding token's id, as in fairseq: 514 positions for 512 tokens.
_OFFSET_POSITIONS = {
    "camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl", "xmod",
}  # fmt: skip
