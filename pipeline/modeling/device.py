"""Detect and set up the device of this machine, its CPU threads and its precisions."""

import os
import platform
from pathlib import Path
from typing import NamedTuple

import torch

from pipeline.core.messages import UserError, log
from pipeline.core.paths import PARAMS
from pipeline.modeling.cpu import keep_memory
from pipeline.params import Precision, PrecisionSetting


class Device(NamedTuple):
    """The type of device that a stage computes on, as torch calls it, and the precision of its matrix products."""

    type: str
    precision: Precision


def set_up_device(precision: PrecisionSetting, num_threads: int | None) -> Device:
    """Set the number of CPU threads and the memory allocation, log the device, and return it."""
    device = usable_device(precision)
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"threads: {torch.get_num_threads()}"
    if device.type == "cpu":
        keep_memory()
    log.info("device: %s (%s), precision: %s", device.type, name, device.precision)
    return device


def usable_device(precision: PrecisionSetting) -> Device:
    """Return the device of this machine. The precision `auto` means the fastest one that trains well on it.

    Raises:
        UserError: The device does not support the precision. (On a CPU, the Trainer would train in fp16, very slowly.)
    """
    device, precisions = _detect_hardware()
    chosen = precisions[0] if precision == "auto" else precision
    if chosen not in precisions:
        raise UserError(
            f"{PARAMS}: train.precision (--precision in classify) must be auto or one of {', '.join(precisions)} on "
            f"this machine ({device}), got {chosen}."
        )
    return Device(device, chosen)


def precision_of_scores(recorded: Precision) -> Precision:
    """Return the precision that a model's scores were measured in, or another one if this machine is slow in it."""
    device, precisions = _detect_hardware()
    is_emulated = recorded == "bf16" and device == "cpu" and not bf16_instruction_sets()
    if recorded in precisions and not is_emulated:
        return recorded
    log.warning("the model was scored in %s, so probabilities in %s may differ slightly", recorded, precisions[0])
    return precisions[0]


def _detect_hardware() -> tuple[str, list[Precision]]:
    """Return the device and the precisions that it supports, starting with the one that `auto` means."""
    if torch.cuda.is_available():
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return "cuda", ["bf16", "fp16", "fp32"] if has_bf16 else ["fp16", "fp32"]
    if torch.backends.mps.is_available():
        return "mps", ["fp32", "bf16"]
    instructions = bf16_instruction_sets()
    # On Intel CPUs, bf16 is faster than fp32 only with AMX. With AVX-512 alone, training takes 1.4 times as long as in
    # fp32 (docs/notes/speed.md).
    without_gain = instructions == ["avx512_bf16"] and cpu_model().startswith("Intel")
    return "cpu", ["bf16", "fp32"] if instructions and not without_gain else ["fp32", "bf16"]


def bf16_instruction_sets() -> list[str]:
    """Return the instruction sets that this CPU can multiply bf16 matrices with, by their names in torch."""
    if os.environ.get("ATEN_CPU_CAPABILITY") in ("default", "avx2"):  # torch emulates an older CPU, as in our tests.
        return []
    capabilities = torch.cpu.get_capabilities()
    return [name for name in ("avx512_bf16", "amx_bf16", "bf16") if capabilities.get(name)]


def cpu_model() -> str:
    """Return the name, family and model number of the processor. In virtual machines, the name alone is often blank."""
    try:
        first_core = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return platform.processor() or platform.machine()
    entries = dict(line.replace("\t", "").split(": ", 1) for line in first_core.splitlines() if ": " in line)
    parts = [entries.get(key) for key in ("model name", "cpu family", "model")]
    return " ".join(filter(None, parts)) or platform.machine()
