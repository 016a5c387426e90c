"""Speed up memory allocation and dropout's random numbers on a CPU. benchmarks/README.md has the gain of each."""

import ctypes
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_LANES = 4  # 16-bit numbers in a 64-bit one
_STEPS = 1 << 16

# Constants of malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_memory() -> None:
    """Keep freed memory for the next tensor, if the C library is glibc.

    By default glibc returns large blocks to the system at once, and each new one is mapped and zeroed page by page:
    for the gradient of the word embeddings alone that takes ten times as long as filling it.
    Source: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)


@contextmanager
def fast_dropout() -> Iterator[None]:
    """Draw dropout masks on a CPU from a quarter of the random numbers while the block runs.

    The probability is rounded to a multiple of 2**-16. torch's generator is still the only source of randomness, so
    seeds and checkpoints of its state work as before.
    """
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators|Overriding a previously registered")
        library.impl("bernoulli_.float", _bernoulli, "CPU")  # type: ignore[no-untyped-call]
    yield  # the kernel is unregistered with the library object


def _bernoulli(out: torch.Tensor, p: float = 0.5, *, generator: Any = None) -> torch.Tensor:
    """Fill `out` with ones, with probability `p`, and zeros. All ops in this function have vectorized int16 kernels."""
    ones = round(p * _STEPS)  # the lowest `ones` of the 2**16 values of a lane stand for a one
    if not 0 < ones < _STEPS:
        return out.fill_(ones // _STEPS)
    words = torch.empty(-(-out.numel() // _LANES), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    lanes = words.view(torch.int16)[: out.numel()]
    first_zero = ones - _STEPS // 2
    lanes.clamp_(first_zero - 1, first_zero).neg_().add_(first_zero)
    return out.copy_(lanes.view(out.shape))
