"""The device that this machine computes with, its threads, and the precision it can do."""

import os
import platform
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from pipeline.core.messages import UserError, log
from pipeline.modeling import distributed
from pipeline.params import Precision

# Values of ONEDNN_MAX_CPU_ISA that leave oneDNN no instructions for bf16, and those that leave it AVX-512's alone:
# https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
_WITHOUT_BF16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}
_WITHOUT_AMX = {"AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512", "AVX10_2_512"}

_SETTING = "params.yaml: train.precision"


class Device(NamedTuple):
    """What a stage computes with. kind: torch's name for it."""

    kind: str
    precision: Precision


def set_up_device(precision: Literal["auto", Precision], num_threads: int | None, setting: str = _SETTING) -> Device:
    """Set CPU threads and memory allocation, log the device, and return `usable_device`.

    Collective. Also raises UserError where the ranks' devices differ in what `auto` is.
    """
    import torch

    from pipeline.modeling.cpu import keep_memory

    device = usable_device(precision, setting)
    precisions = set(distributed.all_gather(device.precision))
    if len(precisions) > 1:
        raise UserError(
            f"params.yaml: train.precision is auto, which is {' and '.join(sorted(precisions))} on the devices of "
            "different ranks; set it to one that all of them can do"
        )
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    if device.kind == "cpu":
        keep_memory()
        if device.precision == "bf16" and not cpu_bf16():
            log.warning(  # measured with benchmarks/cpus.py
                "this CPU emulates bf16: training takes about 14 times (AVX2) or 3 times (AVX-512) as long as in fp32, "
                "and scoring takes longer too; with train.precision auto both are in fp32 here"
            )
    chosen = f" ({setting.removeprefix('params.yaml: ')} is auto)" if precision == "auto" else ""
    log.info("device: %s (%s), precision %s%s", device.kind, _device()[1], device.precision, chosen)
    return device


def precision_of_scores(recorded: Precision) -> Precision:
    """The precision in which a model's scores were measured, or another one if this machine does not have it.

    A CPU that emulates bf16 does not have it. The log says so: in another precision, probabilities differ a little.
    """
    kind, name = _device()
    if _obstacle(kind, name, recorded) is None and not (recorded == "bf16" and kind == "cpu" and not cpu_bf16()):
        return recorded
    precision = usable_device("auto").precision
    log.warning(
        "the model's scores were measured in %s, which this machine does not have: it computes in %s, and "
        "probabilities may differ slightly", recorded, precision,
    )  # fmt: skip
    return precision


def warn_where_busy() -> None:
    """Log where the machine has more to do than it has cores: threads then wait for one another."""
    load, cores = psutil.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        log.warning(
            "this machine is busy, with a load of %.1f on %d cores: training is slower; "
            "stop what else is running, or lower train.num_threads", load, cores,
        )  # fmt: skip


def usable_device(precision: Literal["auto", Precision], setting: str = _SETTING) -> Device:
    """The device that this machine computes with, and its precision.

    precision: `auto` is bf16 where the device multiplies it faster than fp32, fp16 on a CUDA GPU without it, and fp32
    elsewhere. setting: where the user set it, for the error.
    Raises UserError where the device cannot do the precision: the Trainer would train fp16 on a CPU without a word,
    many times slower than fp32.
    """
    kind, name = _device()
    if precision == "auto":
        native = _gpu_bf16() if kind == "cuda" else kind == "cpu" and _cpu_gains_from_bf16()
        return Device(kind, "bf16" if native else "fp16" if kind == "cuda" else "fp32")
    if obstacle := _obstacle(kind, name, precision):
        raise UserError(f"{setting} is {precision}; {obstacle}")
    return Device(kind, precision)


def _obstacle(kind: str, name: str, precision: Precision) -> str | None:
    """Why a device cannot compute in a precision, and what to use instead."""
    import torch

    if kind == "cuda" and precision == "bf16" and not _gpu_bf16():
        return f"{name} has none: use auto, fp16 or fp32"
    if kind == "mps" and precision == "fp16":
        return "it needs a CUDA GPU: use auto, bf16 or fp32"
    if kind == "mps" and precision == "bf16" and not torch.backends.mps.is_macos_or_newer(14, 0):
        return "this needs macOS 14: use auto or fp32"
    if kind == "cpu" and precision == "fp16":
        return "there is no GPU: use auto, bf16 or fp32"
    return None


def _gpu_bf16() -> bool:
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _device() -> tuple[str, str]:
    """The kind of device that this machine computes with, by torch's name for it, and a name for people."""
    import torch

    if torch.cuda.is_available():
        return "cuda", torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return "mps", "Apple GPU"
    threads = torch.get_num_threads()
    return "cpu", f"{threads} {'thread' if threads == 1 else 'threads'}"


def get_random_state() -> Any:
    """The state of torch's generators, of the CPU and of this rank's GPU."""
    import torch

    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None


def set_random_state(state: Any) -> None:
    """Go on where `get_random_state` was called."""
    import torch

    cpu, cuda = state
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)


def cpu_bf16() -> list[str]:
    """The instruction sets with which this CPU multiplies bf16 matrices, by torch's names for them.

    Those that the environment forbids are left out: torch.cpu.get_capabilities does not know of its bounds.
    """
    import torch

    # torch before 2.11, as Kaggle's, does not say: none then.
    can: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    found = [name for name in ("avx512_bf16", "amx_bf16", "bf16") if can.get(name)]
    most = (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "").upper()
    if most in _WITHOUT_BF16 or os.environ.get("ATEN_CPU_CAPABILITY") in ("default", "avx2"):
        return []
    return [name for name in found if name != "amx_bf16" or most not in _WITHOUT_AMX]


def _cpu_gains_from_bf16() -> bool:
    """Whether this CPU multiplies bf16 matrices faster than fp32 ones.

    Intel's only with AMX: with AVX-512 alone, training takes 1.4 times as long in bf16 (benchmarks/README.md).
    """
    found = cpu_bf16()
    return bool(found) and not (found == ["avx512_bf16"] and cpu_model().startswith("Intel"))


def cpu_model() -> str:
    """Vendor, family and model of the processor: names alone are often blank or shared, as in virtual machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    named = [entries.get(key) for key in ("model name", "cpu family", "model")]
    return " ".join(filter(None, named)) or platform.machine()
