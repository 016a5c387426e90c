"""The wall-clock time and peak memory of stages, for metrics/timing.json, which is not an output of any stage."""

import json
import sys
from pathlib import Path

from pipeline.core.output import write_json


def write_timing(path: Path, stage: str, seconds: float) -> None:
    """Write the entry of a stage to the JSON file `path`, and keep the entries of other stages."""
    try:
        entries = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        entries = {}  # The file is missing, has conflict markers of git, or was edited.
    entries[stage] = {"peak_memory_mib": round(_peak_memory() / 2**20), "seconds": round(seconds, 1)}
    write_json(path, entries)


def _peak_memory() -> int:
    """Return the peak memory so far in bytes, for the GPU if there is one, otherwise for this process."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, and Linux counts KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
