"""Speed up memory allocation and dropout on a CPU: see docs/notes/speed.md."""

import ctypes
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_LANES = 4  # 16-bit lanes of a 64-bit random number
_STEPS = 1 << 16  # values of a lane
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # from malloc.h


def keep_memory() -> None:
    """Keep freed memory for the next tensor, if the C library is glibc.

    By default, glibc returns large blocks to the system as soon as they are freed, and the system maps and zeroes the
    memory of each new tensor page by page. For example, filling the gradient of MiniLM's word embeddings with zeros
    takes 12 to 20 ms instead of 1 ms. See M_MMAP_MAX and M_TRIM_THRESHOLD in mallopt(3).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)


@contextmanager
def fast_dropout() -> Iterator[None]:
    """Make dropout on a CPU draw only a quarter of the random numbers while the block runs.

    torch draws one random number per element, but a 64-bit number has enough bits for four elements. The dropout
    probability is rounded to a multiple of 2**-16. torch's generator is still the only source of randomness, so seeds
    and the generator states in checkpoints work as before.
    """
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators|Overriding a previously registered")
        library.impl("bernoulli_.float", _bernoulli, "CPU")  # type: ignore[no-untyped-call]
    yield  # After the block, `library` is deleted, which unregisters the kernel.


def _bernoulli(out: torch.Tensor, p: float = 0.5, *, generator: Any = None) -> torch.Tensor:
    """Fill `out` with ones (with probability `p`) and zeros. All operations here have vectorized int16 kernels."""
    ones = round(p * _STEPS)  # The lowest `ones` of the 2**16 values of a lane become a one.
    if not 0 < ones < _STEPS:
        return out.fill_(ones // _STEPS)
    words = torch.empty(-(-out.numel() // _LANES), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    lanes = words.view(torch.int16)[: out.numel()]
    first_zero = ones - _STEPS // 2
    lanes.clamp_(first_zero - 1, first_zero).neg_().add_(first_zero)
    return out.copy_(lanes.view(out.shape))
