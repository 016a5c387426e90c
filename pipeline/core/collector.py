"""Python's garbage collector, kept from going through what stays until the end."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Import modules without the garbage collector, and exempt from it what they made.

    It would go through the million objects of torch and transformers dozens of times, and find nothing.
    """
    imported, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > imported:
            gc.freeze()
        if was_enabled:
            gc.enable()
