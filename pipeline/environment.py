"""What the bits of a training run depend on beside its inputs: `metrics/environment.json`."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline import processes
from pipeline.device import cpu_bf16
from pipeline.params import Precision

_PACKAGES = ("accelerate", "numpy", "pyarrow", "tokenizers", "torch", "transformers")


def environment(precision: Precision) -> dict[str, Any]:
    """Versions, processor, device, threads and processes of this run, after `set_up_device` has set them."""
    import torch

    entries = {
        "cpu": _cpu_model(),
        "device": "cpu",
        "instruction_set": ", ".join([torch.backends.cpu.get_cpu_capability(), *cpu_bf16()]),
        "precision": precision,
        "processes": processes.count(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        **{package: version(package) for package in _PACKAGES},
    }
    if torch.cuda.is_available():
        entries["device"] = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    elif torch.backends.mps.is_available():
        entries["device"] = f"mps, macOS {platform.mac_ver()[0]}"
    return entries


def _cpu_model() -> str:
    """Vendor, family and model of the processor: names alone are often blank or shared, as in virtual machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    named = [entries.get(key) for key in ("model name", "cpu family", "model")]
    return " ".join(filter(None, named)) or platform.machine()
