"""Turn the texts into token ids with the base model's tokenizer."""

from pipeline.cli import as_command, parse_arguments
from pipeline.params import TokenizeParams, keys_of, load_params, require_unchanged

if __name__ == "__main__":  # --help must not wait for the imports below.
    parse_arguments(keys_of("tokenize", "runtime.num_proc"))

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset, List, Value
from transformers import PreTrainedTokenizerBase

from pipeline.core.data_card import GROUP, MAX_TRUNCATED
from pipeline.core.dataset_files import read_parquet, save
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.packages import require_locked
from pipeline.core.paths import PRETRAINED, RAW, SOURCE, SWAPPED, TOKENIZATION, TOKENIZED, require
from pipeline.core.task import NO_LABEL, TASK, Task, read_task
from pipeline.modeling.loading import load_tokenizer
from pipeline.modeling.tokenization import (
    count_unknown_tokens,
    count_words,
    encode,
    ignores_token_types,
    length_range,
    pair_separator,
)

_MAX_UNKNOWN = 0.02  # as a proportion of the tokens
_MAX_TOKENS_PER_WORD = 3  # MRPC has 1.1 with an English vocabulary.


def tokenize(raw: Path, pretrained: Path, out: Path, params: TokenizeParams, num_proc: int) -> None:
    """Write a `datasets.Dataset` for each split to `out/<split>`, with the columns that the model reads.

    Each dataset also has the columns `labels` (unless the labels of the split are unknown), `idx`, `length` (the number
    of tokens without padding) and, in train, `GROUP`. `out/<split>_swapped` has the pairs of a scored split with their
    texts swapped. `out` also gets lengths.json (the number of `rows` of each split, their `mean` and `longest` length
    in tokens, and how many of them were `truncated`), tokenization.json (`params` and the `pair_separator`), and copies
    of task.json and source.json.

    Raises:
        UserError: An input is missing, the model does not support `max_length`, or a number to predict is -100.
    """
    require(pretrained, "pretrained")
    task = read_task(raw, "download")
    tokenizer = load_tokenizer(pretrained)
    smallest, largest = length_range(pretrained, tokenizer, len(task.text_columns))
    if not smallest <= params.max_length <= largest:
        raise UserError(
            f"params.yaml: tokenize.max_length must be between {smallest} and {largest} for this model, got "
            f"{params.max_length}."
        )
    separator = pair_separator(tokenizer) if task.pairs else ""
    if separator:
        log.info("the tokenizer has no separator for the texts of a pair, so the second text starts on a new line")
    if task.pairs and ignores_token_types(pretrained, tokenizer):
        log.warning(
            "the model distinguishes the texts of a pair by token types, but its tokenizer does not return them. Set "
            "tokenizer_class in its tokenizer_config.json to the class for this model, such as BertTokenizer."
        )
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # Only num_proc decides how many cores are used.
    processes = min(num_proc, os.cpu_count() or 1)
    lengths = {}
    with atomic_output(out) as draft:
        for split in task.splits:
            examples = read_parquet(raw, split, "download", draft.parent / "cache")
            examples = _with_model_labels(split, examples, task)
            orders = {split: task.text_columns}
            if task.pairs and split in task.scored_splits:
                orders[split + SWAPPED] = task.text_columns[::-1]
            for output, text_columns in orders.items():
                tokenized = examples.map(
                    encode,
                    batched=True,
                    num_proc=processes if processes > 1 else None,
                    fn_kwargs={
                        "tokenizer": tokenizer,
                        "text_columns": text_columns,
                        "max_length": params.max_length,
                        "padding": params.padding,
                    },
                    remove_columns=[name for name in examples.column_names if name not in ("idx", "labels", GROUP)],
                    new_fingerprint=output,
                    desc=f"tokenizing {output}",
                )
                if output == split:
                    lengths[split] = _log_lengths(split, tokenized, task)
                    _log_vocabulary_fit(split, examples, tokenized, tokenizer, task)
                save(tokenized.remove_columns("truncated"), draft / output)
        write_json(draft / "lengths.json", lengths)
        write_json(draft / TOKENIZATION, {**params.model_dump(), "pair_separator": separator})
        for file in (SOURCE, TASK):
            shutil.copy(require(raw / file, "download"), draft)


def _with_model_labels(split: str, examples: Dataset, task: Task) -> Dataset:
    """Give the labels the name and the type that the Trainer and the losses of transformers expect."""
    if "label" not in examples.column_names:
        return examples
    examples = examples.rename_column("label", "labels")
    if task.problem_type == "multi_label_classification":  # Binary cross-entropy needs floats.
        return examples.cast_column("labels", List(Value("float32"), length=len(task.labels)))
    if task.problem_type == "regression":
        columns = examples.with_format("numpy")
        # The Trainer compares labels in fp32, in which -100.0000001 is -100.
        ignored = columns["idx"][:][columns["labels"][:].astype(np.float32) == NO_LABEL]
        if len(ignored):
            raise UserError(
                f"{split}: the example with idx {ignored[0]} has the label {NO_LABEL}, which transformers ignores. "
                "Shift or scale the labels."
            )
    return examples


def _log_lengths(split: str, tokenized: Dataset, task: Task) -> dict[str, float]:
    """Log the lengths of a split, and return them for lengths.json."""
    columns = tokenized.with_format("numpy")
    lengths, truncated = columns["length"][:], columns["truncated"][:]
    summary = {
        "rows": len(lengths), "mean": float(lengths.mean()), "longest": int(lengths.max()),
        "truncated": int(truncated.sum()),
    }  # fmt: skip
    log.info(
        "%s: %s %s, mean %.1f tokens, longest %d, %s truncated (%.1f%%)",
        split, f"{len(lengths):,}", task.noun, summary["mean"], summary["longest"],
        f"{summary['truncated']:,}", 100 * truncated.mean(),
    )  # fmt: skip
    if truncated.mean() > MAX_TRUNCATED:
        log.warning("%s: many %s are truncated. Raise tokenize.max_length to read more of them.", split, task.noun)
    return summary


def _log_vocabulary_fit(
    split: str, examples: Dataset, tokenized: Dataset, tokenizer: PreTrainedTokenizerBase, task: Task
) -> None:
    """Log how well the vocabulary of the base model fits the texts of a split, with a warning if it does not."""
    columns = tokenized.with_format("numpy")
    lengths = columns["length"][:] - tokenizer.num_special_tokens_to_add(pair=task.pairs)
    tokens = int(lengths.sum())
    unknown = count_unknown_tokens(tokenized.data.table["input_ids"], tokenizer)
    fit = f"{unknown / max(tokens, 1):.1%} of the tokens ({unknown:,} of {tokens:,}) are unknown"
    # Truncated examples do not count, because their tokens do not cover all of their words.
    complete = ~columns["truncated"][:]
    texts = examples.data.table.select(task.text_columns).filter(pa.array(complete))
    words = sum(count_words(column) for column in texts.columns)
    tokens_per_word = int(lengths[complete].sum()) / max(words, 1)
    if words:
        fit += f", {tokens_per_word:.1f} tokens per word"
    if unknown > _MAX_UNKNOWN * tokens or tokens_per_word > _MAX_TOKENS_PER_WORD:
        log.warning("%s: %s. Use a base model whose vocabulary fits the language of these texts.", split, fit)
    else:
        log.info("%s: %s", split, fit)


def main() -> None:
    require_locked()
    params = load_params()
    tokenize(RAW, PRETRAINED, TOKENIZED, params.tokenize, params.runtime.num_proc)
    require_unchanged(params, ["tokenize"])


if __name__ == "__main__":
    with as_command():
        main()
