"""Shuffle the training examples of each epoch, for both engines."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from pipeline.modeling.windows import Idx, first_windows

_GROUP = 50  # effective batches, as in LengthGroupedSampler of transformers


class EpochSampler(Sampler[int]):
    """A sampler whose order depends only on the seed and the epoch, so that a resumed run continues in the same order.

    The Trainer's own LengthGroupedSampler draws from torch's global generator, so after a resume in the middle of an
    epoch, the rest comes in another order. It also sorts the batches of each group from long to short, so the gradient
    drifts with the length. Here, the batches come in random order.

    Args:
        idx: The example that each row of the dataset belongs to. A long text has several rows, its windows, and each
            epoch reads a random one of them.
        lengths: The number of tokens of each row, to put examples of similar length into one effective batch. The
            examples that do not fill a batch come last. None means a plain shuffle.
        effective_batch: The number of examples per optimizer step, over all forward passes and processes.
        seed: The seed of the run.

    Attributes:
        steps: The number of optimizer steps per epoch.
    """

    def __init__(self, idx: Idx, lengths: NDArray[Any] | None, effective_batch: int, seed: int) -> None:
        self._first_rows = first_windows(idx)
        self._windows = np.diff(self._first_rows, append=len(idx))
        self._lengths = None if lengths is None else lengths[self._first_rows]
        self._seed, self._epoch = seed, 0
        self.effective_batch = effective_batch
        self.steps = math.ceil(len(self) / effective_batch)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._first_rows)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self._seed, self._epoch])
        order = rng.permutation(len(self))
        if self._lengths is not None:
            full = len(order) // self.effective_batch
            batches = order[: full * self.effective_batch]
            # Make at least four groups. With fewer, the same examples would be in a batch together in every epoch.
            group = self.effective_batch * max(1, min(_GROUP, full // 4))
            for start in range(0, len(batches), group):
                members = batches[start : start + group]
                members[:] = members[np.argsort(-self._lengths[members], kind="stable")]
            shuffled = rng.permutation(batches.reshape(full, self.effective_batch))
            order[: len(batches)] = shuffled.ravel()
        return iter((self._first_rows[order] + rng.integers(self._windows[order])).tolist())
