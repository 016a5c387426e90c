"""The device that this machine computes with, its threads, and the precision it can do."""

from typing import Any

from pipeline.core.messages import UserError, log
from pipeline.params import Precision


def set_up_device(precision: Precision, num_threads: int | None) -> str:
    """Set CPU threads and memory allocation, log the device, and return `usable_device`."""
    import torch

    from pipeline.modeling.cpu import keep_memory

    usable_device(precision)
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    device, name = _device()
    if device == "cpu":
        keep_memory()
        if precision == "bf16" and not cpu_bf16():
            log.warning("this CPU has no native bf16: train.precision=fp32 may be faster")
    log.info("device: %s (%s), precision %s", device, name, precision)
    return device


def usable_device(precision: Precision) -> str:
    """The device that this machine computes with, by torch's name for its kind.

    Raises UserError where the device cannot do the precision: the Trainer would train fp16 on a CPU without a word,
    many times slower than fp32.
    """
    import torch

    device, name = _device()
    trouble = None
    if device == "cuda" and precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        trouble = f"{name} has none: use fp16 or fp32"
    elif device == "mps" and precision == "fp16":
        trouble = "it needs a CUDA GPU: use bf16 or fp32"
    elif device == "mps" and precision == "bf16" and not torch.backends.mps.is_macos_or_newer(14, 0):
        trouble = "this needs macOS 14: use fp32"
    elif device == "cpu" and precision == "fp16":
        trouble = "there is no GPU: use bf16 or fp32"
    if trouble:
        raise UserError(f"params.yaml: train.precision is {precision}; {trouble}")
    return device


def _device() -> tuple[str, str]:
    """The kind of device that this machine computes with, by torch's name for it, and a name for people."""
    import torch

    if torch.cuda.is_available():
        return "cuda", torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return "mps", "Apple GPU"
    return "cpu", f"{torch.get_num_threads()} threads"


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
    """The instruction sets of this CPU that multiply bf16 matrices, by torch's names for them."""
    import torch

    can = torch.cpu.get_capabilities()
    return [name for name in ("avx512_bf16", "amx_bf16", "bf16") if can.get(name)]
