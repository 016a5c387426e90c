"""Wall clock and peak memory of stages, for `metrics/timing.json`, no stage's output."""

import json
import sys
import time
from pathlib import Path
from types import TracebackType

from pipeline.core.output import write_json


class Stopwatch:
    """Time a `with` block, in seconds of wall clock."""

    earlier = 0.0  # seconds of the same run before it was stopped and resumed

    def __enter__(self) -> "Stopwatch":
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.seconds = self.so_far()

    def so_far(self) -> float:
        """Seconds since the block began, plus `earlier`."""
        return self.earlier + time.perf_counter() - self._started

    def write(self, path: Path, stage: str, samples: int) -> None:
        """Write the stage's entry into the JSON file `path`, beside those of other stages."""
        try:
            entries = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            entries = {}  # missing, or with conflict marks of a merge: no reason to lose hours of work
        entries[stage] = {
            "peak_memory_mib": round(_peak_memory() / 2**20),
            "samples_per_second": round(samples / self.seconds, 1),
            "seconds": round(self.seconds, 1),
        }
        write_json(path, entries)


def _peak_memory() -> int:
    """Peak memory so far in bytes: on the GPU where one is in use, else of this process."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
