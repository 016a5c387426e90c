"""Stage tokenize: turn the texts into token ids with the base model's tokenizer."""

from pipeline.cli import parse_arguments, run
from pipeline.params import TokenizeParams, keys_of, load_params

if __name__ == "__main__":  # --help must not wait for the imports below
    ARGUMENTS = parse_arguments(keys_of("tokenize", "runtime.num_proc"))

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, List, Value

from pipeline.core.dataset_files import read_parquet, save
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.packages import require_locked
from pipeline.core.paths import PRETRAINED, RAW, SOURCE, SWAPPED, TOKENIZATION, TOKENIZED, require
from pipeline.core.task import NO_LABEL, TASK, Task, read_task
from pipeline.modeling.loading import load_tokenizer
from pipeline.modeling.tokenization import encode, length_range, pair_separator

_MOST_UNKNOWN = 0.02  # of the tokens
_MOST_TOKENS_PER_WORD = 3  # MRPC, with an English vocabulary, has 1.1


def tokenize(raw: Path, pretrained: Path, out: Path, params: TokenizeParams, num_proc: int) -> None:
    """Write a `datasets.Dataset` of each split to `out/<split>`, with the columns that the model reads.

    There are three more columns: `labels`, unless the labels of the split are unknown, `idx`, and `length`, the number
    of tokens without padding. `out/<split>_swapped` has the pairs of a scored split with their texts swapped. Next to
    them are lengths.json (for each split its number of `rows`, `mean` and `longest` length in tokens, and how many
    examples were `truncated`), tokenization.json (`params`), and copies of task.json and source.json.

    Raises:
        UserError: An input is missing, or `max_length` is out of the model's range.
    """
    require(pretrained, "pretrained")
    task = read_task(raw, "download")
    tokenizer = load_tokenizer(pretrained)
    least, most = length_range(pretrained, tokenizer, len(task.text_columns))
    if not least <= params.max_length <= most:
        raise UserError(
            f"params.yaml: tokenize.max_length is {params.max_length}; for this model it must be {least} to {most}"
        )
    if task.pairs and pair_separator(tokenizer):
        log.info("the tokenizer has no token that separates the texts of a pair, so the second one starts a new line")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # num_proc alone sets the number of cores
    processes = _processes(num_proc)
    lengths = {}
    with atomic_output(out) as draft:
        for split in task.splits:
            examples = _with_model_labels(read_parquet(raw, split, "download", draft.parent / "cache"), task)
            orders = {split: task.text_columns}
            if task.pairs and split in task.scored:
                orders[split + SWAPPED] = task.text_columns[::-1]
            for name, text_columns in orders.items():
                tokenized = examples.map(
                    _encode,
                    batched=True,
                    num_proc=processes if processes > 1 else None,
                    fn_kwargs={
                        "stage": os.getpid(),
                        "tokenizer": tokenizer,
                        "text_columns": text_columns,
                        **params.model_dump(),
                    },
                    remove_columns=[column for column in examples.column_names if column not in ("idx", "labels")],
                    new_fingerprint=name,
                    desc=f"tokenizing {name}",
                )
                if name == split:
                    lengths[split] = _log_lengths(split, tokenized, tokenizer, task)
                save(tokenized.remove_columns(["truncated", "unknown_tokens", "words"]), draft / name)
        write_json(draft / "lengths.json", lengths)
        write_json(draft / TOKENIZATION, params.model_dump())
        for file in (SOURCE, TASK):
            shutil.copy(require(raw / file, "download"), draft)


def _encode(examples: dict[str, list[Any]], stage: int, **settings: Any) -> dict[str, list[Any]]:
    """Tokenize a batch. A worker process ends itself if the stage, which has the process number `stage`, was killed."""
    if stage not in (os.getpid(), os.getppid()):
        os._exit(1)
    return encode(examples, **settings)


def _processes(num_proc: int) -> int:
    cores = os.cpu_count() or 1
    if num_proc > cores:  # not an error: the number does not change the result, and a team's machines differ
        log.warning(
            "warning: runtime.num_proc is %d, and this machine has %d cores; %d are used", num_proc, cores, cores
        )
    return min(num_proc, cores)


def _with_model_labels(examples: Dataset, task: Task) -> Dataset:
    """Name and type the labels as the Trainer and the losses of transformers expect them."""
    if "label" not in examples.column_names:
        return examples
    examples = examples.rename_column("label", "labels")
    if task.problem_type == "multi_label_classification":  # binary cross-entropy compares floats
        return examples.cast_column("labels", List(Value("float32"), length=len(task.labels)))
    if task.problem_type == "regression" and NO_LABEL in np.asarray(examples["labels"][:]):
        raise UserError(f"an example has the label {NO_LABEL}, which transformers ignores; shift or scale the labels")
    return examples


def _log_lengths(split: str, tokenized: Dataset, tokenizer: Any, task: Task) -> dict[str, float]:
    """Log the lengths of a split, and how well the vocabulary of the base model fits its texts."""
    columns = tokenized.with_format("numpy")
    lengths, truncated = columns["length"][:], columns["truncated"][:]
    unknown, words = int(columns["unknown_tokens"][:].sum()), int(columns["words"][:].sum())
    summary = {
        "rows": len(lengths), "mean": float(lengths.mean()), "longest": int(lengths.max()),
        "truncated": int(truncated.sum()),
    }  # fmt: skip
    log.info(
        "%s: %d %s, mean %.1f tokens, longest %d, %d truncated (%.1f%%)",
        split, len(lengths), task.noun, summary["mean"], summary["longest"],
        summary["truncated"], 100 * truncated.mean(),
    )  # fmt: skip
    text_lengths = lengths - tokenizer.num_special_tokens_to_add(pair=task.pairs)
    tokens = int(text_lengths.sum())
    fit = f"{unknown / max(tokens, 1):.1%} of the tokens ({unknown:,} of {tokens:,}) are unknown"
    tokens_per_word = int(text_lengths[~truncated].sum()) / max(words, 1)
    if words:  # else all examples were truncated
        fit += f", {tokens_per_word:.1f} tokens per word"
    if unknown > _MOST_UNKNOWN * tokens or tokens_per_word > _MOST_TOKENS_PER_WORD:
        log.warning("warning: %s: %s; use a base model whose vocabulary fits the language of these texts", split, fit)
    else:
        log.info("%s: %s", split, fit)
    return summary


def main() -> None:
    require_locked()
    params = load_params()
    tokenize(RAW, PRETRAINED, TOKENIZED, params.tokenize, params.runtime.num_proc)


if __name__ == "__main__":
    run(main, ARGUMENTS)
