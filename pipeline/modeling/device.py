"""The device that this machine computes with, its threads, and the precisions that it supports."""

import os
import platform
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from pipeline.core.messages import UserError, log
from pipeline.params import Precision

# Values of ONEDNN_MAX_CPU_ISA that leave oneDNN no instructions for bf16, and those that leave it only AVX-512's:
# https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
_WITHOUT_BF16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}
_WITHOUT_AMX = {"AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512", "AVX10_2_512"}

_SETTING = "params.yaml: train.precision"


class Device(NamedTuple):
    """What a stage computes with.

    Attributes:
        type: The name that torch has for it, such as "cpu".
        precision: The precision of the matrix products.
    """

    type: str
    precision: Precision


class Hardware(NamedTuple):
    """What this machine has.

    Attributes:
        type: The name that torch has for the device, such as "cpu".
        name: A name for people.
        precisions: The precisions that the device computes in. The first one is the choice of `auto`.
    """

    type: str
    name: str
    precisions: list[Precision]


def set_up_device(precision: Literal["auto", Precision], num_threads: int | None, setting: str = _SETTING) -> Device:
    """Set CPU threads and memory allocation, log the device, and return it as `usable_device` does."""
    import torch

    from pipeline.modeling.cpu import keep_memory

    device = usable_device(precision, setting)
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    name = detect_hardware().name
    if device.type == "cpu":
        threads = torch.get_num_threads()
        name = f"{threads} {'thread' if threads == 1 else 'threads'}"
        keep_memory()
        if device.precision == "bf16" and not cpu_bf16():
            log.warning(  # measured with benchmarks/cpus.py
                "this CPU emulates bf16: training takes about 14 times (AVX2) or 3 times (AVX-512) as long "
                "as in fp32, and scoring takes longer too. Set train.precision to auto to use fp32 on this machine."
            )
    reason = f" ({setting.removeprefix('params.yaml: ')} is auto)" if precision == "auto" else ""
    log.info("device: %s (%s), precision %s%s", device.type, name, device.precision, reason)
    return device


def usable_device(precision: Literal["auto", Precision], setting: str = _SETTING) -> Device:
    """Return the device that this machine computes with, and its precision.

    Args:
        precision: `auto` is the fastest precision of the device that trains well.
        setting: Where the user has set the precision, for the error.

    Raises:
        UserError: The device does not support the precision. (The Trainer would silently train fp16 on a CPU, many
            times slower than fp32.)
    """
    hardware = detect_hardware()
    if precision == "auto":
        return Device(hardware.type, hardware.precisions[0])
    if precision not in hardware.precisions:
        *choices, last = "auto", *hardware.precisions
        raise UserError(
            f"{setting} must be {', '.join(choices)} or {last} on this machine ({hardware.name}), got {precision}."
        )
    return Device(hardware.type, precision)


def precision_of_scores(recorded: Precision) -> Precision:
    """Return the precision in which a model's scores were measured, or the best one that this machine supports.

    A CPU that emulates bf16 does not count as supporting it. The log has a warning if the precision differs, because
    probabilities then differ a little.
    """
    hardware = detect_hardware()
    emulated = recorded == "bf16" and hardware.type == "cpu" and not cpu_bf16()
    if recorded in hardware.precisions and not emulated:
        return recorded
    precision = hardware.precisions[0]
    log.warning(
        "the model's scores were measured in %s, which this machine does not have. It computes in %s, and "
        "probabilities may differ slightly.", recorded, precision,
    )  # fmt: skip
    return precision


def detect_hardware() -> Hardware:
    """Return what this machine computes with.

    `auto` is bf16 if the device multiplies it faster than fp32, and fp16 on a CUDA GPU without bf16.
    """
    import torch

    if torch.cuda.is_available():
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        precisions: list[Precision] = ["bf16", "fp16", "fp32"] if has_bf16 else ["fp16", "fp32"]
        return Hardware("cuda", torch.cuda.get_device_name(), precisions)
    if torch.backends.mps.is_available():
        return Hardware("mps", "Apple GPU", ["fp32", "bf16"])
    instructions = cpu_bf16()
    # Intel CPUs gain from bf16 only with AMX: with AVX-512 alone, training takes 1.4 times as long as in fp32
    # (benchmarks/README.md).
    without_gain = instructions == ["avx512_bf16"] and cpu_model().startswith("Intel")
    return Hardware("cpu", "CPU", ["bf16", "fp32"] if instructions and not without_gain else ["fp32", "bf16"])


def warn_if_busy() -> None:
    """Log a warning if the machine has more to do than it has cores: threads then wait for one another."""
    load, cores = psutil.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        log.warning(
            "this machine is busy, with a load of %.1f on %d cores, so training is slower. Stop what else is "
            "running, or lower train.num_threads.", load, cores,
        )  # fmt: skip


def cpu_bf16() -> list[str]:
    """Return the instruction sets with which this CPU multiplies bf16 matrices, as torch calls them.

    `torch.cpu.get_capabilities` does not know of limits that the environment sets; these are respected here.
    """
    import torch

    # torch before 2.11, as on Kaggle, cannot tell. Then there are none.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    instructions = [name for name in ("avx512_bf16", "amx_bf16", "bf16") if capabilities.get(name)]
    limit = (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "").upper()
    if limit in _WITHOUT_BF16 or os.environ.get("ATEN_CPU_CAPABILITY") in ("default", "avx2"):
        return []
    return [name for name in instructions if name != "amx_bf16" or limit not in _WITHOUT_AMX]


def cpu_model() -> str:
    """Return vendor, family and model of the processor. The name alone is often blank or shared in virtual machines."""
    try:
        first_core = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return platform.processor() or platform.machine()
    entries = dict(line.replace("\t", "").split(": ", 1) for line in first_core.splitlines() if ": " in line)
    parts = [entries.get(key) for key in ("model name", "cpu family", "model")]
    return " ".join(filter(None, parts)) or platform.machine()


def get_random_state() -> Any:
    """Return the state of torch's generators, of the CPU and of this rank's GPU."""
    import torch

    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None


def set_random_state(state: Any) -> None:
    """Restore what `get_random_state` returned."""
    import torch

    cpu, cuda = state
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)
