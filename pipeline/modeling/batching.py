"""Which rows make a batch: of like length to train on, of one shape to score; and each rank's share of both."""

import signal
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from pipeline.core.signals import ENDING
from pipeline.core.tables import from_numpy, to_numpy
from pipeline.core.task import NO_LABEL
from pipeline.modeling import distributed

SCORED_MULTIPLE = 8  # tokens; lengths are padded to a multiple of it when scoring
# Rows of a forward pass that scores on a CPU. With fewer, the loop around it costs more; with more, the padding
# examples do. Measured in benchmarks/README.md.
SCORED_ON_CPU = 16


class PaddedDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Tokenized rows and padding examples: number `~n` is row n without a label, so that it counts in no loss."""

    def __init__(self, rows: pa.Table) -> None:
        self._batches = rows.to_batches()
        self._starts = np.cumsum([0, *map(len, self._batches)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitems__(self, numbers: list[int]) -> list[dict[str, Any]]:
        rows = np.array([max(number, ~number) for number in numbers])
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        found: list[dict[str, Any]] = [{}] * len(rows)
        for batch in np.unique(batches):  # not `take` of the table, which would copy it whole
            at = np.flatnonzero(batches == batch)
            taken = self._batches[batch].take(from_numpy(rows[at] - self._starts[batch])).to_pylist()
            for place, row in zip(at.tolist(), taken, strict=True):
                found[place] = row if numbers[place] >= 0 else {**row, "labels": _unlabelled(row["labels"])}
        return found


def _unlabelled(label: float | list[int]) -> float | list[int]:
    return [NO_LABEL] * len(label) if isinstance(label, list) else NO_LABEL


class TrainingBatches(Sampler[list[int]]):
    """This rank's batches of an epoch, in an order that follows from seed and epoch alone.

    by_length: each effective batch (`batch_size` rows for each rank and accumulation step) is of like length, and
    those batches come in random order; else all is random. (Trainer sorts 50 batches by length and feeds them as
    sorted, so that the length of the rows, and with it the gradient, drifts up and down during an epoch.) The short
    batch, if there is one, stays last, so that all others keep their bounds. Padding examples make it one that
    several ranks can share; Accelerate would repeat rows, which count in the loss.
    """

    def __init__(self, rows: pa.Table, batch_size: int, accumulation_steps: int, seed: int, by_length: bool) -> None:
        self._lengths = token_counts(rows)
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
        # Of ten million rows, each copy of the order takes memory: int32, sorted in place, batches taken one by one.
        rng, step = np.random.default_rng([self._seed, self._epoch]), self._effective_batch
        order = np.arange(len(self._lengths), dtype=np.int32)
        rng.shuffle(order)
        starts = np.arange(0, len(order) // step * step, step)
        if self._by_length:
            # As in Trainer, 50 batches to a group; but at least four groups, or the same rows would meet in each epoch.
            size = step * max(1, min(50, len(order) // (4 * step)))
            for start in range(0, len(order), size):
                group = order[start : start + size]
                group[:] = group[np.argsort(-self._lengths[group], kind="stable")]
            rng.shuffle(starts)
        every = self._size * distributed.world_size()
        for start in np.append(starts, len(starts) * step):  # no list, whose numbers are objects
            rows = order[start : start + step]
            if distributed.world_size() > 1:
                rows = np.append(rows, np.repeat(~rows[-1:], -len(rows) % every))
            for at in range(self._size * distributed.rank(), len(rows), every):
                yield rows[at : at + self._size].tolist()


class ScoringBatches(Sampler[list[int]]):
    """This rank's share of batches of `size` rows that are padded to one length, longest first.

    The kernels that multiply matrices are chosen by shape, and on some CPUs (with AMX, or in fp32) round differently
    from one to another. Here the shape of the batch in which a row is scored follows from the row alone: padding
    examples complete a batch that lacks rows.
    Rows that need no padding go apart: for a batch without any, transformers leaves the attention mask out, and some
    models then compute the attention in another precision.
    order: the rows of all ranks' batches, batch by batch and in each rank by rank; padding examples are negative.
    """

    def __init__(self, rows: pa.Table, size: int) -> None:
        tokens, every = token_counts(rows), size * distributed.world_size()
        given = np.concatenate([np.diff(to_numpy(chunk.offsets)) for chunk in rows["input_ids"].chunks])
        padded = -(-given // SCORED_MULTIPLE) * SCORED_MULTIPLE
        longest_first = np.argsort(tokens, kind="stable")[::-1]  # memory runs out early or never
        shapes = (2 * padded + (padded == tokens))[longest_first]
        runs = np.split(longest_first, np.flatnonzero(np.diff(shapes)) + 1)
        complete = [np.append(run, np.repeat(~run[-1:], -len(run) % every)) for run in runs]
        self.order = np.concatenate(complete)
        self._batches = np.maximum(self.order, ~self.order).reshape(-1, distributed.world_size(), size)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch[distributed.rank()].tolist() for batch in self._batches)

    def __len__(self) -> int:
        return len(self._batches)


class TrainingLoader(DataLoader[Any]):
    """Padded batches to train on. batches: `TrainingBatches`, or those left of an epoch. options: of DataLoader."""

    def __init__(
        self,
        rows: pa.Table,
        tokenizer: PreTrainedTokenizerBase,
        batches: Iterable[list[int]],
        device: str,
        **options: Any,
    ) -> None:
        super().__init__(
            PaddedDataset(rows.select([*tokenizer.model_input_names, "labels"])),
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


def token_counts(rows: pa.Table) -> NDArray[np.int32]:
    """Tokens of each row, padding not counted. Shape (n,)."""
    return to_numpy(rows["length"])


def ignore_first_signal(worker: int) -> None:
    """Have a process that loads data leave the first signal to the main process, which still needs its batches.

    Ctrl-C, and whatever stops a process group, sends it to all.
    """
    for number in ENDING:
        signal.signal(number, lambda number, frame: signal.signal(number, signal.SIG_DFL))
