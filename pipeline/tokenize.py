"""Stage tokenize: turn the sentence pairs into token ids with the checkpoint's fast tokenizer."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.checkpoint import load_tokenizer
from pipeline.params import TokenizeParams, load_params
from pipeline.stage import PRETRAINED, RAW, SPLITS, TOKENIZED, UserError, log, require, run, whole

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def tokenize(raw: Path, pretrained: Path, out: Path, params: TokenizeParams) -> None:
    """Write `out/{train,validation,test}.parquet`: `input_ids, attention_mask, labels, idx`, and token_type_ids.

    token_type_ids only where the model has them (BERT has, DistilBERT, RoBERTa and MPNet have none). Pairs longer than
    `params.max_length` tokens are truncated, the longer sentence first; how many is logged. Raises UserError where an
    input is missing or `max_length` is more than the model can take.
    """
    require(pretrained, "pretrained")

    from pipeline.tables import read_split, write_split

    tokenizer = load_tokenizer(pretrained)
    least = tokenizer.num_special_tokens_to_add(pair=True) + 2  # a token of each sentence
    most = _length_limit(pretrained, tokenizer)
    if not least <= params.max_length <= most:
        raise UserError(
            f"params.yaml: tokenize.max_length is {params.max_length}; for this model it must be {least} to {most}"
        )
    with whole(out) as draft:
        draft.mkdir()
        for split in SPLITS:
            pairs = read_split(raw, split, "download")
            encoded = pairs.rename_column("label", "labels").map(
                encode,
                batched=True,
                fn_kwargs={"tokenizer": tokenizer, "max_length": params.max_length, "padding": params.padding},
                remove_columns=["sentence1", "sentence2"],
                num_proc=params.num_proc if params.num_proc > 1 else None,
                desc=split,
            )
            lengths = [sum(mask) for mask in encoded["attention_mask"]]
            log.info(
                "%s: %d pairs, mean %.1f tokens, longest %d, %d truncated",
                split, len(encoded), sum(lengths) / len(lengths), max(lengths), sum(encoded["truncated"]),
            )  # fmt: skip
            write_split(encoded.remove_columns("truncated"), draft, split)


def encode(
    pairs: dict[str, list[Any]], tokenizer: "PreTrainedTokenizerBase", max_length: int, padding: str
) -> dict[str, Any]:
    """Tokenize a batch of pairs; `truncated` says of each whether it was too long.

    At module level, because datasets hashes it.
    """
    batch = tokenizer(
        [_cut(sentence, tokenizer, max_length) for sentence in pairs["sentence1"]],
        [_cut(sentence, tokenizer, max_length) for sentence in pairs["sentence2"]],
        truncation=True,
        max_length=max_length,
        padding="max_length" if padding == "max_length" else False,
    )
    return {**batch, "truncated": [bool(encoding.overflowing) for encoding in batch.encodings or []]}


def _cut(sentence: str, tokenizer: "PreTrainedTokenizerBase", max_length: int) -> str:
    """A sentence without what lies far behind the tokens that can be kept.

    Of a pair that it truncates, the tokenizer makes every combination of the pieces left over: for two sentences of
    100,000 characters, minutes and gigabytes.
    """
    if len(sentence) <= 8 * max_length:
        return sentence
    offsets = tokenizer(sentence, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return sentence[: offsets[2 * max_length][1]] if len(offsets) > 2 * max_length else sentence


def _length_limit(pretrained: Path, tokenizer: "PreTrainedTokenizerBase") -> int:
    """The longest input, in tokens, that the model has positions for."""
    config = json.loads((pretrained / "config.json").read_text(encoding="utf-8"))
    positions = config.get("max_position_embeddings", sys.maxsize)
    if config.get("model_type") in _OFFSET_POSITIONS:
        positions -= config.get("pad_token_id", 1) + 1
    return min(int(positions), tokenizer.model_max_length)


# Their positions start behind the padding token's id, as in fairseq: 514 positions hold 512 tokens.
_OFFSET_POSITIONS = {
    "camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl", "xmod",
}  # fmt: skip


def main() -> None:
    params = load_params()
    tokenize(RAW, PRETRAINED, TOKENIZED, params.tokenize)


if __name__ == "__main__":
    run(main)
