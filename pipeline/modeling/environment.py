"""Describe the environment that the exact results of a training run depend on, for `metrics/environment.json`."""

import os
import platform
from typing import Any

import torch

from pipeline.core import packages
from pipeline.modeling import distributed
from pipeline.modeling.device import Device, bf16_instruction_sets, cpu_model

# These variables select the kernels of matrix products. (Variables that limit threads change the entry "threads".)
# https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
# https://uxlfoundation.github.io/oneDNN/dev_guide_attributes_fpmath_mode.html
# oneMKL's Developer Guide, "Conditional Numerical Reproducibility" and "Instruction Set Specific Dispatching"
_KERNELS = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)


def environment(device: Device) -> dict[str, Any]:
    """Return the versions, device and processes of this run, and on a CPU also its model and the number of threads.

    The number of threads is the current one, so a stage calls this function after `set_up_device`, which may change it.
    """
    entries = {
        "precision": device.precision,
        "processes": distributed.world_size(),
        "python": platform.python_version(),
        **packages.installed(),
        **{name: os.environ[name] for name in _KERNELS if os.environ.get(name)},
    }
    # On a GPU, the processor and its threads do not change the results, so a run can move to a host with the same GPU.
    if torch.cuda.is_available():
        entries["device"] = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    elif torch.backends.mps.is_available():
        entries["device"] = f"mps, macOS {platform.mac_ver()[0]}"
    else:
        entries["device"] = "cpu"
        entries["cpu"] = cpu_model()
        entries["instruction_set"] = ", ".join([torch.backends.cpu.get_cpu_capability(), *bf16_instruction_sets()])
        entries["threads"] = torch.get_num_threads()
    return entries
