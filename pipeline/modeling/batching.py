"""Which pairs make a batch: of like length to train on, of one shape to score, shares of several processes."""

import itertools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset
from torch.utils.data import DataLoader, Sampler
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from pipeline.modeling import distributed

SCORED_MULTIPLE = 8  # tokens; lengths are padded to a multiple of it when scoring
# Pairs of a forward pass. Trainer's loop costs more in batches of 8; in those of 32 and 64 the padding examples that
# complete the last one of a length do.
SCORED_ON_CPU = 16
NO_LABEL = -100  # what cross_entropy ignores, and Trainer does not count


class FillablePairs(torch.utils.data.Dataset[dict[str, Any]]):
    """Tokenized pairs. Pair `~n` is pair n as a filler: without a label, it counts neither in a loss nor in a score."""

    def __init__(self, pairs: Dataset) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: list[int]) -> list[dict[str, Any]]:
        found = self.pairs.__getitems__([max(number, ~number) for number in numbers])
        return [
            pair if number >= 0 else {**pair, "labels": NO_LABEL} for number, pair in zip(numbers, found, strict=True)
        ]


class TrainingOrder(Sampler[int]):
    """The training pairs in an order that follows from seed and epoch alone.

    by_length: each effective batch (`batch_size` pairs, for each process and accumulation step) is of like length, and
    those batches come in random order; else all is random. The short batch, if there is one, stays last, so that all
    others keep their bounds. Fillers make it one that several processes can share.
    """

    def __init__(self, pairs: Dataset, batch_size: int, accumulation_steps: int, seed: int, by_length: bool) -> None:
        self._lengths = token_counts(pairs)
        self._by_length = by_length
        self._effective_batch = batch_size * accumulation_steps * distributed.world_size()
        self._fillers = -len(pairs) % (batch_size * distributed.world_size()) if distributed.world_size() > 1 else 0
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths) + self._fillers

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self._seed, self._epoch])
        order = rng.permutation(len(self._lengths))
        if self._by_length:
            order = self._grouped(order, rng)
        return iter([*order.tolist(), *[~int(order[-1])] * self._fillers])

    def _grouped(self, order: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
        # As in Trainer: 50 batches to a group, but four groups at least, lest the same pairs meet in every epoch.
        group = self._effective_batch * max(1, min(50, len(order) // (4 * self._effective_batch)))
        runs = [order[start : start + group] for start in range(0, len(order), group)]
        order = np.concatenate([run[np.argsort(-self._lengths[run], kind="stable")] for run in runs])
        whole = len(order) // self._effective_batch * self._effective_batch
        batches = rng.permutation(order[:whole].reshape(-1, self._effective_batch))
        return np.concatenate([batches.ravel(), order[whole:]])


class FixedShapeBatches(Sampler[list[int]]):
    """One process's share of batches of `size` pairs that are padded to one length, in the order given.

    The kernels that multiply matrices are chosen by shape, and on some CPUs (with AMX, or in fp32) round differently
    from one to another. Here the shape of the batch in which a pair is scored follows from the pair alone: fillers
    complete a batch that lacks pairs.
    Pairs that need no padding go apart: for a batch without any, transformers leaves the attention mask out, and some
    models then compute the attention in another precision.
    shapes: of each pair, from `scored_shapes`. Where equal ones stand together, most batches are full.
    """

    def __init__(self, shapes: list[tuple[int, bool]], size: int) -> None:
        runs = itertools.groupby(range(len(shapes)), key=shapes.__getitem__)
        batches = [batch for _, run in runs for batch in _chunks(list(run), size * distributed.world_size())]
        filled = [[*batch, *[~batch[-1]] * (size * distributed.world_size() - len(batch))] for batch in batches]
        self._batches = [_chunks(batch, size)[distributed.rank()] for batch in filled]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


def _chunks(items: list[int], size: int) -> list[list[int]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def token_counts(dataset: Dataset) -> np.ndarray[Any, Any]:
    """Tokens of each pair, padding not counted. Shape (n,)."""
    masks = dataset.select_columns("attention_mask").with_format("arrow")[:]["attention_mask"].combine_chunks()
    return np.add.reduceat(masks.flatten().to_numpy(), masks.offsets.to_numpy()[:-1], dtype=np.int64)


def scored_shapes(dataset: Dataset) -> list[tuple[int, bool]]:
    """For each pair, the length that it is padded to when it is scored, and whether it fills that length."""
    ids = dataset.select_columns("input_ids").with_format("arrow")[:]["input_ids"]
    padded = -(-pc.list_value_length(ids).to_numpy() // SCORED_MULTIPLE) * SCORED_MULTIPLE
    return list(zip(padded.tolist(), (padded == token_counts(dataset)).tolist(), strict=True))


def longest_first(dataset: Dataset) -> Dataset:
    """The pairs sorted by length, so that `FixedShapeBatches` fills its batches and memory runs out early or never."""
    return dataset.select(np.argsort(token_counts(dataset), kind="stable")[::-1])


def scoring_loader(
    pairs: Dataset, tokenizer: PreTrainedTokenizerBase, batch_size: int, num_workers: int, on_cpu: bool
) -> DataLoader[Any]:
    """This process's share of `pairs` in padded batches to score, in the order given.

    A pair's logits do not depend on what else is scored with it, see `FixedShapeBatches`; nor, on a CPU, on
    `batch_size`, the pairs of a forward pass on a GPU.
    """
    return DataLoader(
        FillablePairs(pairs),
        batch_sampler=FixedShapeBatches(scored_shapes(pairs), SCORED_ON_CPU if on_cpu else batch_size),
        collate_fn=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=SCORED_MULTIPLE),
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=outlive_a_signal,
    )


def outlive_a_signal(worker: int, first: Callable[[int], None] | None = None) -> None:
    """Have a process that loads data leave the first signal to the main process, which still wants this step's batches.

    Ctrl-C, and who stops a whole group, send it to all.
    """
    if first:
        first(worker)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: signal.signal(number, signal.SIG_DFL))
