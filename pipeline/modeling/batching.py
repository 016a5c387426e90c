"""Which pairs make a batch: of like length to train on, of one shape to score; and each rank's share of both."""

import itertools
import signal
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from pipeline.core.tables import from_numpy, to_numpy
from pipeline.modeling import distributed

SCORED_MULTIPLE = 8  # tokens; lengths are padded to a multiple of it when scoring
# Pairs of a forward pass that scores on a CPU. With fewer, the loop around it costs more; with more, the padding
# examples do. Measured in benchmarks/README.md.
SCORED_ON_CPU = 16
NO_LABEL = -100  # ignored by cross_entropy, and not counted by Trainer


class PaddedDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Tokenized pairs and padding examples: number `~n` is pair n without a label, so that it counts in no loss."""

    def __init__(self, pairs: pa.Table) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitems__(self, numbers: list[int]) -> list[dict[str, Any]]:
        rows = from_numpy(np.array([max(number, ~number) for number in numbers]))
        found = self._pairs.take(rows).to_pylist()
        return [
            pair if number >= 0 else {**pair, "labels": NO_LABEL} for number, pair in zip(numbers, found, strict=True)
        ]


class TrainingBatches(Sampler[list[int]]):
    """This rank's batches of an epoch, in an order that follows from seed and epoch alone.

    by_length: each effective batch (`batch_size` pairs for each rank and accumulation step) is of like length, and
    those batches come in random order; else all is random. (Trainer sorts 50 batches by length and feeds them as
    sorted, so that the length of the pairs, and with it the gradient, drifts up and down during an epoch.) The short
    batch, if there is one, stays last, so that all others keep their bounds. Padding examples make it one that
    several ranks can share; Accelerate would repeat pairs, which count in the loss.
    """

    def __init__(self, pairs: pa.Table, batch_size: int, accumulation_steps: int, seed: int, by_length: bool) -> None:
        self._lengths = token_counts(pairs)
        self._size = batch_size
        self._effective_batch = batch_size * accumulation_steps * distributed.world_size()
        self._seed = seed
        self._by_length = by_length
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return -(-len(self._lengths) // (self._size * distributed.world_size()))

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng([self._seed, self._epoch])
        order = rng.permutation(len(self._lengths))
        if self._by_length:
            order = self._grouped(order, rng)
        padding = len(self) * self._size * distributed.world_size() - len(order) if distributed.world_size() > 1 else 0
        batches = _chunks([*order.tolist(), *[~int(order[-1])] * padding], self._size)
        return iter(batches[distributed.rank() :: distributed.world_size()])

    def _grouped(self, order: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        # As in Trainer, 50 batches to a group; but at least four groups, or the same pairs would meet in every epoch.
        group = self._effective_batch * max(1, min(50, len(order) // (4 * self._effective_batch)))
        groups = [order[start : start + group] for start in range(0, len(order), group)]
        order = np.concatenate([one[np.argsort(-self._lengths[one], kind="stable")] for one in groups])
        full = len(order) // self._effective_batch * self._effective_batch
        batches = rng.permutation(order[:full].reshape(-1, self._effective_batch))
        return np.concatenate([batches.ravel(), order[full:]])


class ScoringBatches(Sampler[list[int]]):
    """This rank's share of batches of `size` pairs that are padded to one length, longest first.

    The kernels that multiply matrices are chosen by shape, and on some CPUs (with AMX, or in fp32) round differently
    from one to another. Here the shape of the batch in which a pair is scored follows from the pair alone: padding
    examples complete a batch that lacks pairs.
    Pairs that need no padding go apart: for a batch without any, transformers leaves the attention mask out, and some
    models then compute the attention in another precision.
    order: the pairs of all ranks' batches, batch by batch and in each rank by rank; padding examples are negative.
    """

    def __init__(self, pairs: pa.Table, size: int) -> None:
        tokens, world = token_counts(pairs), distributed.world_size()
        padded = -(-to_numpy(pc.list_value_length(pairs["input_ids"])) // SCORED_MULTIPLE) * SCORED_MULTIPLE
        shapes = list(zip(padded.tolist(), (padded == tokens).tolist(), strict=True))
        longest_first = np.argsort(tokens, kind="stable")[::-1].tolist()  # memory runs out early or never
        runs = (list(run) for _, run in itertools.groupby(longest_first, key=shapes.__getitem__))
        batches = [batch for run in runs for batch in _chunks(run, size * world)]
        complete = [[*batch, *[~batch[-1]] * (size * world - len(batch))] for batch in batches]
        self.order = np.array(complete, dtype=np.int64).ravel()
        self._batches = [_chunks([max(number, ~number) for number in batch], size) for batch in complete]

    def __iter__(self) -> Iterator[list[int]]:
        return (batch[distributed.rank()] for batch in self._batches)

    def __len__(self) -> int:
        return len(self._batches)


class TrainingLoader(DataLoader[Any]):
    """Padded batches to train on. batches: `TrainingBatches`, or those left of an epoch. options: of DataLoader."""

    def __init__(
        self,
        pairs: pa.Table,
        tokenizer: PreTrainedTokenizerBase,
        batches: Iterable[list[int]],
        device: str,
        **options: Any,
    ) -> None:
        super().__init__(
            PaddedDataset(pairs),
            batch_sampler=batches,
            # Tensor cores multiply shapes that are multiples of 8; on a CPU padding costs more than it gives.
            collate_fn=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=None if device == "cpu" else 8),
            pin_memory=device == "cuda",
            worker_init_fn=ignore_first_signal,
            **options,
        )

    def set_epoch(self, epoch: int) -> None:
        """Called by Trainer."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


def token_counts(pairs: pa.Table) -> NDArray[np.int64]:
    """Tokens of each pair, padding not counted. Shape (n,)."""
    masks = pairs["attention_mask"].combine_chunks()
    values, starts = to_numpy(masks.flatten()), to_numpy(masks.offsets)[:-1]
    return np.add.reduceat(values, starts, dtype=np.int64)


def ignore_first_signal(worker: int) -> None:
    """Have a process that loads data leave the first signal to the main process, which still needs its batches.

    Ctrl-C, and whatever stops a process group, sends it to all.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: signal.signal(number, signal.SIG_DFL))


def _chunks(items: list[int], size: int) -> list[list[int]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
