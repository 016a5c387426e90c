"""Clock and memory of a stage, for `metrics/timing.json`: shown by `dvc metrics show`, an output of no stage."""

import json
import resource
import sys
import time
from pathlib import Path
from types import TracebackType

from pipeline.core.output import write_json


class Stopwatch:
    """Times the block it is the context of, in seconds of wall clock."""

    earlier = 0.0  # seconds that a run took before it was stopped, where this block resumes it

    def __enter__(self) -> "Stopwatch":
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.seconds = self.so_far()

    def so_far(self) -> float:
        """Seconds since the block began, and those of earlier."""
        return self.earlier + time.perf_counter() - self._started

    def write(self, path: Path, stage: str, samples: int) -> None:
        """Put the stage's entry into the JSON file `path`, beside those of other stages."""
        try:
            entries = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            entries = {}  # missing, or full of a merge's conflict marks: no reason to lose hours of work
        entries[stage] = {
            "peak_memory_mib": round(_peak_memory() / 2**20),
            "samples_per_second": round(samples / self.seconds, 1),
            "seconds": round(self.seconds, 1),
        }
        write_json(path, entries)


def _peak_memory() -> int:
    """The most bytes held so far: on the GPU where there is one in use, else by this process."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
