"""Stage tokenize: turn the texts into token ids with the checkpoint's fast tokenizer."""

import functools
import multiprocessing
import os
import shutil
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cli import run
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.packages import require_locked
from pipeline.core.paths import PRETRAINED, RAW, SOURCE, SWAPPED, TOKENIZATION, TOKENIZED, require
from pipeline.core.task import TASK, read_task
from pipeline.modeling.loading import load_tokenizer
from pipeline.modeling.tokenization import Encoded, encode, length_range, pair_separator, token_columns
from pipeline.params import TokenizeParams, keys_of, load_params

if TYPE_CHECKING:
    from concurrent.futures import Future


_MOST_UNKNOWN = 0.02  # of the tokens
_MOST_TOKENS_PER_WORD = 3  # MRPC, under an English vocabulary, has 1.1
_BATCH_ROWS = 25_000  # in memory at a time, and in a batch of the Arrow file, each of which takes memory to open


def tokenize(raw: Path, pretrained: Path, out: Path, params: TokenizeParams, num_proc: int) -> None:
    """Write an Arrow file of each split to `out`: `input_ids, attention_mask, labels, idx, length`, and token_type_ids.

    labels only where they are known; length: tokens without padding; token_type_ids only where the model has them
    (BERT, not DistilBERT, RoBERTa or MPNet). Rows longer than `params.max_length` tokens are truncated, the longer text
    of a pair first. <split>_swapped.arrow: the pairs of a scored split with their texts swapped. lengths.json, per
    split: number of `rows`, `mean` and `longest` length in tokens, number `truncated`. tokenization.json: `params`.
    source.json and task.json are copied from `raw`.
    Raises UserError where an input is missing, `max_length` is out of the model's range, or a label is one that stands
    for none.
    """
    require(pretrained, "pretrained")

    from pipeline.core.tables import kind_of, read_batches, schema, to_numpy, writing_arrow

    task = read_task(raw, "download")
    tokenizer = load_tokenizer(pretrained)
    least, most = length_range(pretrained, tokenizer, len(task.text_columns))
    if not least <= params.max_length <= most:
        raise UserError(
            f"params.yaml: tokenize.max_length is {params.max_length}; for this model it must be {least} to {most}"
        )
    cores = os.cpu_count() or 1
    if num_proc > cores:  # not an error: the number does not change the result, and a team's machines differ
        log.warning(
            "warning: runtime.num_proc is %d, and this machine has %d cores; %d are used", num_proc, cores, cores
        )
    if task.pairs and pair_separator(tokenizer):
        log.info("the tokenizer has no token that separates the texts of a pair, so the second one starts a new line")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # num_proc alone sets the number of cores
    with atomic_output(out) as draft, _workers(min(num_proc, cores)) as in_order:
        draft.mkdir()
        summaries = {}
        for split in (*task.splits, *(split + SWAPPED for split in task.scored if task.pairs)):
            original = split.removesuffix(SWAPPED)
            order = task.text_columns if split == original else task.text_columns[::-1]
            of_raw, rows = read_batches(raw, original, "download", _BATCH_ROWS)
            types = token_columns(tokenizer)
            if original not in task.unlabelled:
                types["labels"] = kind_of(of_raw, "label")
            columns = schema(types)
            settings = {"max_length": params.max_length, "padding": params.padding, "schema": columns}
            work = functools.partial(encode, tokenizer=tokenizer, order=order, **settings)
            count = tokens = longest = truncated = 0
            counts: Counter[str] = Counter()
            with writing_arrow(columns, draft, split) as write:
                for encoded in in_order(work, rows):
                    write(encoded.batch)
                    lengths = to_numpy(encoded.batch["length"])
                    count, tokens = count + len(lengths), tokens + int(lengths.sum())
                    longest, truncated = max(longest, int(lengths.max())), truncated + encoded.truncated
                    counts.update(encoded.counts)
            if split != original:
                continue
            summaries[split] = {"rows": count, "mean": tokens / count, "longest": longest, "truncated": truncated}
            log.info(
                f"%s: %d {task.noun}, mean %.1f tokens, longest %d, %d truncated", split, *summaries[split].values()
            )
            _log_vocabulary(split, counts)
        write_json(draft / "lengths.json", summaries)
        write_json(draft / TOKENIZATION, params.model_dump())
        for file in (SOURCE, TASK):
            shutil.copy(require(raw / file, "download"), draft)


def _log_vocabulary(split: str, counts: Counter[str]) -> None:
    """Log how well the vocabulary of the base model fits the texts of a split. counts: as in `Encoded`."""
    unknown = counts["unknown"] / max(1, counts["tokens"])
    tokens_per_word = counts["whole_tokens"] / max(1, counts["words"])
    fit = f"{100 * unknown:.1f}% of the tokens ({counts['unknown']:,} of {counts['tokens']:,}) are unknown"
    if counts["words"]:  # else all rows were truncated
        fit += f", {tokens_per_word:.1f} tokens per word"
    if unknown > _MOST_UNKNOWN or tokens_per_word > _MOST_TOKENS_PER_WORD:
        log.warning("%s: %s; use a base model whose vocabulary fits the language of these texts", split, fit)
    else:
        log.info("%s: %s", split, fit)


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

    with ProcessPoolExecutor(processes, initializer=_end_with_parent) as pool:
        try:
            yield in_order
        except BaseException:  # the pool would wait for the batches that are being tokenized
            for worker in multiprocessing.active_children():
                worker.kill()
            raise


def _end_with_parent() -> None:
    """End this worker process when its parent has ended: killed, the parent cannot tell it to."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    require_locked()
    params = load_params()
    tokenize(RAW, PRETRAINED, TOKENIZED, params.tokenize, params.runtime.num_proc)


if __name__ == "__main__":
    run(main, keys_of("tokenize", "runtime.num_proc"))
