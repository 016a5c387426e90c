"""The order of the training examples in an epoch."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

_GROUP = 50  # effective batches, as in transformers' LengthGroupedSampler


class EpochSampler(Sampler[int]):
    """Shuffles the examples by the seed and the epoch alone, so that an interrupted run resumes in the same order.

    Args:
        examples: Number of training examples.
        lengths: Tokens of each example, to put examples of similar length into one effective batch, or None for a plain
            shuffle. Unlike in transformers' LengthGroupedSampler, the batches come in random order, so the gradient
            does not drift with the length. The examples that do not fill a batch come last.
        effective_batch: Examples per optimizer step.
        seed: Seed of the run.
    """

    def __init__(self, examples: int, lengths: NDArray[np.integer] | None, effective_batch: int, seed: int) -> None:
        self._examples, self._lengths, self._effective_batch, self._seed = examples, lengths, effective_batch, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return self._examples

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self._seed, self._epoch])
        order = rng.permutation(self._examples)
        if self._lengths is not None:
            full = len(order) // self._effective_batch
            batches = order[: full * self._effective_batch]
            # At least four groups, because in fewer the same examples would meet in every epoch.
            group = self._effective_batch * max(1, min(_GROUP, full // 4))
            for start in range(0, len(batches), group):
                members = batches[start : start + group]
                members[:] = members[np.argsort(-self._lengths[members], kind="stable")]
            shuffled = rng.permutation(batches.reshape(full, self._effective_batch))
            order[: len(batches)] = shuffled.ravel()
        return iter(order.tolist())
