"""Stage tokenize: turn the texts into token ids with the checkpoint's fast tokenizer."""

import functools
import json
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.cli import run
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.packages import require_locked
from pipeline.core.paths import PRETRAINED, RAW, SOURCE, SWAPPED, TOKENIZED, require
from pipeline.core.task import NO_LABEL, TASK, read_task
from pipeline.modeling.loading import load_tokenizer
from pipeline.params import TokenizeParams, keys_of, load_params

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa
    from transformers import PreTrainedTokenizerBase

_BATCH_ROWS = 25_000  # in memory at a time, and in a batch of the Arrow file, each of which takes memory to open


def tokenize(raw: Path, pretrained: Path, out: Path, params: TokenizeParams, num_proc: int) -> None:
    """Write an Arrow file of each split to `out`: `input_ids, attention_mask, labels, idx, length`, and token_type_ids.

    labels only where they are known; length: tokens without padding; token_type_ids only where the model has them
    (BERT, not DistilBERT, RoBERTa or MPNet). Rows longer than `params.max_length` tokens are truncated, the longer text
    of a pair first. <split>_swapped.arrow: the pairs of a scored split with their texts swapped. lengths.json, per
    split: number of `rows`, `mean` and `longest` length in tokens, number `truncated`. source.json and task.json are
    copied from `raw`.
    Raises UserError where an input is missing, `max_length` is out of the model's range, or a label is one that stands
    for none.
    """
    require(pretrained, "pretrained")

    import pyarrow as pa

    from pipeline.core.tables import kind_of, read_batches, schema, to_numpy, writing_arrow

    task = read_task(raw, "download")
    tokenizer = load_tokenizer(pretrained)
    # A token of each text, and the special ones.
    least = tokenizer.num_special_tokens_to_add(pair=task.pairs) + len(task.text_columns)
    most = _length_limit(pretrained, tokenizer)
    if not least <= params.max_length <= most:
        raise UserError(
            f"params.yaml: tokenize.max_length is {params.max_length}; for this model it must be {least} to {most}"
        )
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # num_proc alone sets the number of cores
    with atomic_output(out) as draft, _workers(num_proc) as in_order:
        draft.mkdir()
        summaries = {}
        for split in (*task.splits, *(split + SWAPPED for split in task.scored if task.pairs)):
            original = split.removesuffix(SWAPPED)
            order = task.text_columns if split == original else task.text_columns[::-1]
            of_raw, rows = read_batches(raw, original, "download", _BATCH_ROWS)
            types = {"idx": pa.int32(), "length": pa.int32()}
            if original not in task.unlabelled:
                types["labels"] = kind_of(of_raw, "label")
            for name in tokenizer.model_input_names:
                types[name] = pa.list_(pa.int32() if name == "input_ids" else pa.int8())
            columns = schema(types)
            settings = {"max_length": params.max_length, "padding": params.padding, "schema": columns}
            work = functools.partial(encode, tokenizer=tokenizer, order=order, **settings)
            count = tokens = longest = truncated = 0
            with writing_arrow(columns, draft, split) as write:
                for encoded in in_order(work, rows):
                    write(encoded.batch)
                    lengths = to_numpy(encoded.batch["length"])
                    count, tokens = count + len(lengths), tokens + int(lengths.sum())
                    longest, truncated = max(longest, int(lengths.max())), truncated + encoded.truncated
            if split != original:
                continue
            summaries[split] = {"rows": count, "mean": tokens / count, "longest": longest, "truncated": truncated}
            log.info(
                f"%s: %d {task.noun}, mean %.1f tokens, longest %d, %d truncated", split, *summaries[split].values()
            )
        write_json(draft / "lengths.json", summaries)
        for file in (SOURCE, TASK):
            shutil.copy(require(raw / file, "download"), draft)


class Encoded(NamedTuple):
    """A batch of tokenized rows, and the number of those cut."""

    batch: "pa.RecordBatch"
    truncated: int


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

    tokens = tokenizer(
        *([_cut(text, tokenizer, max_length) for text in rows[column].to_pylist()] for column in order),
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
    truncated = sum(bool(encoding.overflowing) for encoding in tokens.encodings or [])
    return Encoded(pa.RecordBatch.from_pydict(columns, schema), truncated)


@contextmanager
def _workers(processes: int) -> Iterator[Callable[..., Iterator[Encoded]]]:
    """Yield an ordered `map` over worker processes that reads ahead by at most two batches per process."""
    if processes == 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor

    def in_order(work: Callable[[Any], Encoded], batches: Iterable[Any]) -> Iterator[Encoded]:
        ahead: deque[Future[Encoded]] = deque()
        for batch in batches:
            ahead.append(pool.submit(work, batch))
            if len(ahead) > 2 * processes:
                yield ahead.popleft().result()
        yield from (future.result() for future in ahead)

    with ProcessPoolExecutor(processes) as pool:
        yield in_order


def _cut(text: str, tokenizer: "PreTrainedTokenizerBase", max_length: int) -> str:
    """Cut a text far behind the last token that can be kept.

    For a truncated pair, the tokenizer builds every combination of the overflowing pieces: with two texts of 100,000
    characters, that takes minutes and gigabytes.
    """
    if len(text) <= 8 * max_length:
        return text
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return text[: offsets[2 * max_length][1]] if len(offsets) > 2 * max_length else text


def _length_limit(pretrained: Path, tokenizer: "PreTrainedTokenizerBase") -> int:
    """Longest input, in tokens, that the model has positions for."""
    config = json.loads((pretrained / "config.json").read_text(encoding="utf-8"))
    positions = config.get("max_position_embeddings", sys.maxsize)
    if config.get("model_type") in _OFFSET_POSITIONS:
        positions -= config.get("pad_token_id", 1) + 1
    return min(int(positions), tokenizer.model_max_length)


# Their positions start after the padding token's id, as in fairseq: 514 positions for 512 tokens.
_OFFSET_POSITIONS = {
    "camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl", "xmod",
}  # fmt: skip


def main() -> None:
    require_locked()
    params = load_params()
    tokenize(RAW, PRETRAINED, TOKENIZED, params.tokenize, params.runtime.num_proc)


if __name__ == "__main__":
    run(main, keys_of("tokenize", "runtime.num_proc"))
