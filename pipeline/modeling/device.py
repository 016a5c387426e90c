"""Detect and set up the device of this machine, its CPU threads and its precisions."""

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pipeline.core.messages import UserError, log
from pipeline.params import PARAMS, Precision

if TYPE_CHECKING:
    from transformers import TrainingArguments

# With these values of ONEDNN_MAX_CPU_ISA, oneDNN uses no bf16 instructions at all, or only those of AVX-512 (no AMX):
# https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
_WITHOUT_BF16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}
_WITHOUT_AMX = {"AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512", "AVX10_2_512"}

_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


class Device(NamedTuple):
    """The type of the device that a stage computes on, and the precision of its matrix products."""

    type: str
    precision: Precision


class Hardware(NamedTuple):
    """The device of this machine and its precisions.

    Attributes:
        type: The device's name in torch, such as "cpu".
        name: A name to show to the user.
        precisions: The precisions that the device supports. `auto` means the first one.
    """

    type: str
    name: str
    precisions: list[Precision]


def set_up_device(precision: Literal["auto", Precision], num_threads: int | None) -> Device:
    """Set the number of CPU threads and the memory allocation, log the device, and return it.

    See `usable_device` for the arguments and the errors.
    """
    import torch

    from pipeline.modeling.cpu import keep_memory

    device = usable_device(precision)
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    name = detect_hardware().name
    if device.type == "cpu":
        threads = torch.get_num_threads()
        name = f"{threads} {'thread' if threads == 1 else 'threads'}"
        keep_memory()
        if _NVIDIA_DRIVER.exists() and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1"):  # Both hide it.
            log.warning(
                "this machine has an NVIDIA driver, but torch %s cannot use a GPU (see docs/several_machines.md)",
                torch.__version__,
            )
        if device.precision == "bf16" and not bf16_instruction_sets():
            log.warning(  # The factors were measured with benchmarks/cpus.py.
                "this CPU emulates bf16. Training takes about 14 times (AVX2) or 3 times (AVX-512) as long as in fp32, "
                "and scoring is slower, too. Set train.precision (--precision in classify) to auto to use fp32."
            )
    reason = " (auto)" if precision == "auto" else ""
    log.info("device: %s (%s), precision %s%s", device.type, name, device.precision, reason)
    return device


def usable_device(precision: Literal["auto", Precision]) -> Device:
    """Return the device of this machine, with the precision that it will compute in.

    Args:
        precision: `auto` means the fastest precision that trains well on this device.

    Raises:
        UserError: The device does not support the precision. (The Trainer would silently train in fp16 on a CPU, many
            times slower than in fp32.)
    """
    hardware = detect_hardware()
    if precision == "auto":
        return Device(hardware.type, hardware.precisions[0])
    if precision not in hardware.precisions:
        *choices, last = "auto", *hardware.precisions
        raise UserError(
            f"{PARAMS}: train.precision (--precision in classify) must be {', '.join(choices)} or {last} on this "
            f"machine ({hardware.name}), got {precision}."
        )
    return Device(hardware.type, precision)


def use_one_gpu(arguments: "TrainingArguments") -> None:
    """Limit the Trainer to one GPU per process.

    If several GPUs are visible, it would use all of them in each forward pass (DataParallel), and the effective batch
    size would depend on the machine.
    """
    arguments._n_gpu = min(arguments.n_gpu, 1)


def precision_of_scores(recorded: Precision) -> Precision:
    """Return the precision that a model's scores were measured in, or this machine's default if it is not supported.

    A CPU that emulates bf16 does not count as supporting it. If the precision changes, the probabilities may differ
    slightly, so a warning is logged.
    """
    hardware = detect_hardware()
    emulated = recorded == "bf16" and hardware.type == "cpu" and not bf16_instruction_sets()
    if recorded in hardware.precisions and not emulated:
        return recorded
    precision = hardware.precisions[0]
    log.warning(
        "the model's scores were measured in %s, which this machine does not support. It computes in %s instead, so "
        "probabilities may differ slightly.", recorded, precision,
    )  # fmt: skip
    return precision


def detect_hardware() -> Hardware:
    """Detect the device of this machine and its precisions.

    The first precision is bf16 if the device multiplies it faster than fp32, fp16 on a CUDA GPU without bf16, and
    otherwise fp32.
    """
    import torch

    if torch.cuda.is_available():
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        precisions: list[Precision] = ["bf16", "fp16", "fp32"] if has_bf16 else ["fp16", "fp32"]
        return Hardware("cuda", torch.cuda.get_device_name(), precisions)
    if torch.backends.mps.is_available():
        return Hardware("mps", "Apple GPU", ["fp32", "bf16"])
    instructions = bf16_instruction_sets()
    # On Intel CPUs, bf16 is faster than fp32 only with AMX. With AVX-512 alone, training takes 1.4 times as long as in
    # fp32 (docs/notes/speed.md).
    without_gain = instructions == ["avx512_bf16"] and cpu_model().startswith("Intel")
    return Hardware("cpu", "CPU", ["bf16", "fp32"] if instructions and not without_gain else ["fp32", "bf16"])


def bf16_instruction_sets() -> list[str]:
    """Return the instruction sets that this CPU can multiply bf16 matrices with, by their names in torch.

    `torch.cpu.get_capabilities` ignores the limits that environment variables set, so they are applied here.
    """
    import torch

    # torch before 2.11 (Kaggle has such a version) cannot detect them, so the CPU counts as having none.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    instructions = [name for name in ("avx512_bf16", "amx_bf16", "bf16") if capabilities.get(name)]
    limit = (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "").upper()
    if limit in _WITHOUT_BF16 or os.environ.get("ATEN_CPU_CAPABILITY") in ("default", "avx2"):
        return []
    return [name for name in instructions if name != "amx_bf16" or limit not in _WITHOUT_AMX]


def cpu_model() -> str:
    """Return the name, family and model number of the processor. In virtual machines, the name alone is often blank."""
    try:
        first_core = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return platform.processor() or platform.machine()
    entries = dict(line.replace("\t", "").split(": ", 1) for line in first_core.splitlines() if ": " in line)
    parts = [entries.get(key) for key in ("model name", "cpu family", "model")]
    return " ".join(filter(None, parts)) or platform.machine()
