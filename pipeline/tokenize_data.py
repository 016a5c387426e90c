"""Turn the texts into token ids with the base model's tokenizer."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, List, Value
from transformers import PreTrainedTokenizerBase

from pipeline.cli import run_stage
from pipeline.core.dataset_files import read_column, save
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import PRETRAINED, RAW, SOURCE, TOKENIZATION, TOKENIZED, read_output, require
from pipeline.core.task import MAX_TRUNCATED, TASK, TRAIN, Task, read_task
from pipeline.modeling.tokenization import encode, load_tokenizer, pair_separator
from pipeline.modeling.windows import first_windows
from pipeline.params import Params, TokenizeParams

_IGNORED_LABEL = -100  # by the losses of torch and by the Trainer
_MAX_UNKNOWN = 0.02  # as a proportion of the tokens


def tokenize(raw: Path, pretrained: Path, out: Path, params: TokenizeParams, num_proc: int) -> None:
    """Write a `datasets.Dataset` for each split to `out/<split>`, with the columns that the model reads.

    Each dataset also has the columns `labels` (unless the labels of the split are unknown), `idx` and `length` (the
    number of tokens). With a stride, a text has a row for each of its windows, except in train unless
    `train_on_windows` is true. `out` also gets copies of task.json and source.json, and tokenization.json: `params`,
    the `pair_separator`, and for each of the `splits` the number of `rows` in `raw`, the `mean` and `longest` length in
    tokens of what the model reads, and how many rows were `truncated`.

    Raises:
        UserError: An input is missing, `max_length` or `stride` does not fit the model, or a number to predict is -100.
    """
    require(pretrained)
    task = read_task(raw)
    tokenizer = load_tokenizer(pretrained)
    if params.max_length > tokenizer.model_max_length:
        raise UserError(
            f"params.yaml: tokenize.max_length must be at most {tokenizer.model_max_length} for this model, "
            f"got {params.max_length}."
        )
    _check_stride(params, tokenizer, task)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # Only num_proc decides how many cores are used.
    processes = min(num_proc, os.cpu_count() or 1)
    lengths = {}
    with atomic_output(out) as draft:
        cache = str(draft.parent / "cache")  # `datasets` writes its own files there.
        for split in task.splits:
            rows = read_output(raw / f"{split}.parquet", lambda path: Dataset.from_parquet(str(path), cache_dir=cache))
            examples = _with_model_labels(split, rows, task)
            stride = None if split == TRAIN and not params.train_on_windows else params.stride
            settings = {"text_columns": task.text_columns, "max_length": params.max_length, "stride": stride}
            tokenized = examples.map(
                encode,
                batched=True,
                num_proc=processes if processes > 1 else None,
                fn_kwargs={"tokenizer": tokenizer, **settings},
                remove_columns=[name for name in examples.column_names if name not in ("idx", "labels")],
                new_fingerprint=split,
                desc=f"tokenizing {split}",
            )
            lengths[split] = _log_lengths(split, tokenized, tokenizer, task)
            save(tokenized.remove_columns("truncated"), draft / split)
        separator = pair_separator(tokenizer) if task.has_pairs else ""
        write_json(draft / TOKENIZATION, {**params.model_dump(), "pair_separator": separator, "splits": lengths})
        for file in (SOURCE, TASK):
            shutil.copy(require(raw / file), draft)


def _check_stride(params: TokenizeParams, tokenizer: PreTrainedTokenizerBase, task: Task) -> None:
    window = params.max_length - tokenizer.num_special_tokens_to_add(pair=task.has_pairs)
    if task.has_pairs:
        window //= 2  # If both texts are long, the tokenizer gives each of them half.
    if params.stride is not None and params.stride >= window:
        raise UserError(
            f"params.yaml: tokenize.stride must be less than {window} for this model and tokenize.max_length, "
            f"got {params.stride}."
        )


def _with_model_labels(split: str, examples: Dataset, task: Task) -> Dataset:
    """Give the labels the name and the type that the Trainer and the losses of transformers expect."""
    if "label" not in examples.column_names:
        return examples
    examples = examples.rename_column("label", "labels")
    if task.is_multi_label:  # Binary cross-entropy needs floats.
        return examples.cast_column("labels", List(Value("float32"), length=len(task.labels)))
    if task.is_regression:
        # The Trainer compares labels in fp32, in which -100.0000001 is -100.
        labels = examples.with_format("numpy", dtype=np.float32)["labels"][:]
        if (labels == _IGNORED_LABEL).any():
            raise UserError(f"{split} has the label {_IGNORED_LABEL}, which transformers ignores. Shift the labels.")
    return examples


def _log_lengths(split: str, tokenized: Dataset, tokenizer: PreTrainedTokenizerBase, task: Task) -> dict[str, float]:
    """Log the lengths of a split and its unknown tokens, and return the lengths for tokenization.json."""
    lengths, truncated, idx = (read_column(tokenized, name) for name in ("length", "truncated", "idx"))
    unknown = _count_unknown_tokens(tokenized, tokenizer) / lengths.sum()
    rows = len(first_windows(idx))
    noun = f"{task.noun} in {len(lengths):,} windows" if len(lengths) > rows else task.noun
    log.info(
        "%s: %s %s, mean %.1f tokens, longest %d, %s truncated (%.1f%%), %.1f%% of the tokens unknown",
        split, f"{rows:,}", noun, lengths.mean(), lengths.max(), f"{truncated.sum():,}",
        100 * truncated.mean(), 100 * unknown,
    )  # fmt: skip
    if truncated.mean() > MAX_TRUNCATED:
        log.warning("%s: many %s are truncated. Raise tokenize.max_length to read more of them.", split, task.noun)
    if unknown > _MAX_UNKNOWN:
        log.warning("%s: use a base model whose vocabulary fits the language of these texts.", split)
    return {
        "rows": rows, "mean": float(lengths.mean()), "longest": int(lengths.max()),
        "truncated": int(truncated.sum()),
    }  # fmt: skip


def _count_unknown_tokens(tokenized: Dataset, tokenizer: PreTrainedTokenizerBase) -> int:
    """Count the tokens that stand for unknown text. In GPT-2, `unk_token` marks the end of a text instead."""
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id):
        return 0
    ids = pc.list_flatten(tokenized.data.table["input_ids"])
    return pc.sum(pc.equal(ids, unknown), min_count=0).as_py()  # type: ignore[no-any-return]


def main(params: Params) -> None:
    tokenize(RAW, PRETRAINED, TOKENIZED, params.tokenize, params.runtime.num_proc)


if __name__ == "__main__":
    run_stage("tokenize", main)
