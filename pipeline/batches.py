"""Which pairs make a batch: of like length to train on, of equal length to score, shares of several processes."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset
from torch.utils.data import Sampler

SCORED_MULTIPLE = 8  # tokens; lengths are padded to a multiple of it when scoring
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

    lengths: tokens of each pair, where each `batch_size` of them shall be of like length, and those batches in random
    order; None: a random order. The short batch, if there is one, stays last, so that all others keep their bounds.
    filled_to: fillers make the number of pairs a multiple of it.
    """

    def __init__(self, pairs: int, seed: int, lengths: list[int] | None, batch_size: int, filled_to: int) -> None:
        self._pairs = pairs
        self._seed = seed
        self._lengths = None if lengths is None else np.asarray(lengths)
        self._batch_size = batch_size
        self._fillers = -pairs % filled_to
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return self._pairs + self._fillers

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self._seed, self._epoch])
        order = rng.permutation(self._pairs)
        if self._lengths is not None:
            order = self._grouped(order, self._lengths, rng)
        return iter([*order.tolist(), *[~int(order[-1])] * self._fillers])

    def _grouped(self, order: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], rng: Any) -> np.ndarray[Any, Any]:
        # As in Trainer: 50 batches to a group, but four groups at least, lest the same pairs meet in every epoch.
        group = self._batch_size * max(1, min(50, len(order) // (4 * self._batch_size)))
        runs = [order[start : start + group] for start in range(0, len(order), group)]
        order = np.concatenate([run[np.argsort(-lengths[run], kind="stable")] for run in runs])
        whole = len(order) // self._batch_size * self._batch_size
        batches = rng.permutation(order[:whole].reshape(-1, self._batch_size))
        return np.concatenate([batches.ravel(), order[whole:]])


class EqualLengthBatches(Sampler[list[int]]):
    """One process's share of batches of consecutive pairs that are padded to one length, in the order given.

    At a time `processes` such shares are scored, each of at most `batch_size` pairs; fillers make them of one size.
    Pairs that need no padding go apart: for a batch without any, transformers leaves the attention mask out, and some
    models then compute the attention in another precision.
    lengths: tokens of each pair. Where they are sorted, most batches are full; other orders give more, smaller ones.
    """

    def __init__(self, lengths: list[int], batch_size: int, processes: int = 1, process: int = 0) -> None:
        padding = [(-(-length // SCORED_MULTIPLE), length % SCORED_MULTIPLE == 0) for length in lengths]
        buckets = itertools.groupby(range(len(lengths)), key=padding.__getitem__)
        batches = [batch for _, run in buckets for batch in _chunks(list(run), batch_size * processes)]
        filled = [[*batch, *[~batch[-1]] * (-len(batch) % processes)] for batch in batches]
        self._batches = [_chunks(batch, len(batch) // processes)[process] for batch in filled]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


def _chunks(items: list[int], size: int) -> list[list[int]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def token_counts(dataset: Dataset) -> list[int]:
    """Tokens of each pair as the tokenize stage wrote it."""
    ids = dataset.select_columns("input_ids").with_format("arrow")[:]["input_ids"]
    return pc.list_value_length(ids).to_pylist()  # type: ignore[no-any-return]


def longest_first(dataset: Dataset) -> Dataset:
    """The pairs sorted by length, so that `EqualLengthBatches` fills its batches and memory runs out early or never."""
    return dataset.select(np.argsort(token_counts(dataset), kind="stable")[::-1])
