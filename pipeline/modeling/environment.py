"""Describe the environment that the exact results of a training run depend on."""

import os
import platform
from typing import Any

import torch

from pipeline.core import packages
from pipeline.modeling import distributed
from pipeline.modeling.device import Device, bf16_instruction_sets, cpu_model

# The beginnings of variables that select the kernels of matrix products.
_KERNELS = ("ATEN_CPU", "CUBLAS_", "DNNL_", "MKL_", "NVIDIA_TF32", "ONEDNN_", "TORCH_ALLOW_TF32")


def environment(device: Device) -> dict[str, Any]:
    """Return the versions, device and processes of this run, and on a CPU also its model and the number of threads."""
    entries = {
        "device": "cpu",
        "precision": device.precision,
        "processes": distributed.world_size(),
        "python": platform.python_version(),
        **packages.installed(),
        **{name: value for name, value in os.environ.items() if name.startswith(_KERNELS) and value},
    }
    # On a GPU, the processor and its threads do not change the results, so a run can move to a host with the same GPU.
    if torch.cuda.is_available():
        return entries | {"device": f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"}
    if torch.backends.mps.is_available():
        return entries | {"device": f"mps, macOS {platform.mac_ver()[0]}"}
    return entries | {
        "cpu": cpu_model(),
        "instruction_set": ", ".join([torch.backends.cpu.get_cpu_capability(), *bf16_instruction_sets()]),
        "threads": torch.get_num_threads(),  # `set_up_device` may have changed it.
    }
