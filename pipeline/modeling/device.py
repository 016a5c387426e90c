"""The device that this machine computes with, its threads, and the precisions that it supports."""

import os
import platform
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from pipeline.core.messages import UserError, log
from pipeline.modeling import distributed
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
        precision: Of the matrix products.
    """

    type: str
    precision: Precision


def set_up_device(precision: Literal["auto", Precision], num_threads: int | None, setting: str = _SETTING) -> Device:
    """Set CPU threads and memory allocation, log the device, and return it as `usable_device` does.

    Every rank of a distributed run must call it.

    Raises:
        UserError: As `usable_device`, or `auto` is not the same precision on all ranks.
    """
    import torch

    from pipeline.modeling.cpu import keep_memory

    device = usable_device(precision, setting)
    precisions = set(distributed.all_gather(device.precision))
    if len(precisions) > 1:
        raise UserError(
            f"params.yaml: train.precision is auto, which is {' and '.join(sorted(precisions))} on the devices of "
            "different ranks; set it to one that all of them support"
        )
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    if device.type == "cpu":
        keep_memory()
        if device.precision == "bf16" and not cpu_bf16():
            log.warning(  # measured with benchmarks/cpus.py
                "this CPU emulates bf16: training takes about 14 times (AVX2) or 3 times (AVX-512) as long as in fp32, "
                "and scoring takes longer too; with train.precision auto both are in fp32 here"
            )
    reason = f" ({setting.removeprefix('params.yaml: ')} is auto)" if precision == "auto" else ""
    log.info("device: %s (%s), precision %s%s", device.type, _detect_device()[1], device.precision, reason)
    return device


def precision_of_scores(recorded: Precision) -> Precision:
    """Return the precision in which a model's scores were measured, or the best one that this machine supports.

    A CPU that emulates bf16 does not count as supporting it. The log has a warning if the precision differs, because
    probabilities then differ a little.
    """
    device, name = _detect_device()
    emulated = recorded == "bf16" and device == "cpu" and not cpu_bf16()
    if not emulated and _obstacle(device, name, recorded) is None:
        return recorded
    precision = usable_device("auto").precision
    log.warning(
        "the model's scores were measured in %s, which this machine does not have: it computes in %s, and "
        "probabilities may differ slightly", recorded, precision,
    )  # fmt: skip
    return precision


def warn_if_busy() -> None:
    """Log a warning if the machine has more to do than it has cores: threads then wait for one another."""
    load, cores = psutil.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        log.warning(
            "this machine is busy, with a load of %.1f on %d cores: training is slower; "
            "stop what else is running, or lower train.num_threads", load, cores,
        )  # fmt: skip


def usable_device(precision: Literal["auto", Precision], setting: str = _SETTING) -> Device:
    """Return the device that this machine computes with, and its precision.

    Args:
        precision: `auto` is bf16 if the device multiplies it faster than fp32, fp16 on a CUDA GPU without bf16, and
            otherwise fp32.
        setting: Where the user has set the precision, for the error.

    Raises:
        UserError: The device does not support the precision. (The Trainer would silently train fp16 on a CPU, many
            times slower than fp32.)
    """
    device, name = _detect_device()
    if precision == "auto":
        gains = _gpu_has_bf16() if device == "cuda" else device == "cpu" and _cpu_gains_from_bf16()
        return Device(device, "bf16" if gains else "fp16" if device == "cuda" else "fp32")
    if obstacle := _obstacle(device, name, precision):
        raise UserError(f"{setting} is {precision}; {obstacle}")
    return Device(device, precision)


def _obstacle(device: str, name: str, precision: Precision) -> str | None:
    """Return why a device cannot compute in a precision and what to use instead, or None if it can."""
    import torch

    if device == "cuda" and precision == "bf16" and not _gpu_has_bf16():
        return f"{name} has none: use auto, fp16 or fp32"
    if device == "mps" and precision == "fp16":
        return "it needs a CUDA GPU: use auto, bf16 or fp32"
    if device == "mps" and precision == "bf16" and not torch.backends.mps.is_macos_or_newer(14, 0):
        return "this needs macOS 14: use auto or fp32"
    if device == "cpu" and precision == "fp16":
        return "there is no GPU: use auto, bf16 or fp32"
    return None


def _gpu_has_bf16() -> bool:
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _detect_device() -> tuple[str, str]:
    """Return the type of this machine's device, as torch calls it, and a name for people."""
    import torch

    if torch.cuda.is_available():
        return "cuda", torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return "mps", "Apple GPU"
    threads = torch.get_num_threads()
    return "cpu", f"{threads} {'thread' if threads == 1 else 'threads'}"


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


def _cpu_gains_from_bf16() -> bool:
    """Return whether this CPU multiplies bf16 matrices faster than fp32 ones.

    Intel's do so only with AMX: with AVX-512 alone, training takes 1.4 times as long in bf16 (benchmarks/README.md).
    """
    instructions = cpu_bf16()
    return bool(instructions) and not (instructions == ["avx512_bf16"] and cpu_model().startswith("Intel"))


def cpu_model() -> str:
    """Return vendor, family and model of the processor. The name alone is often blank or shared in virtual machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    parts = [entries.get(key) for key in ("model name", "cpu family", "model")]
    return " ".join(filter(None, parts)) or platform.machine()
