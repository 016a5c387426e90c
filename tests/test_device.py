"""The device and the precision depend on the hardware. The tests patch what the machine reports about it."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TinyMaker, sections

from pipeline.core.messages import UserError
from pipeline.modeling import device
from pipeline.modeling.device import Device, bf16_instruction_sets, precision_of_scores, set_up_device
from pipeline.modeling.environment import environment
from pipeline.modeling.loading import load_base_model, load_tokenizer
from pipeline.modeling.scoring import scoring_trainer
from pipeline.params import Params
from pipeline.training.arguments import training_arguments


def patch_hardware(monkeypatch: pytest.MonkeyPatch, **reported: Any) -> None:
    """Patch what the machine reports about its hardware.

    Args:
        reported: `cuda`, `cuda_bf16` and `mps` (False by default), `cpu` (the capabilities of the CPU, none by default)
            and `model` (the name of the CPU, by default from AMD).
    """
    for name in ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(device, "cpu_model", lambda: reported.get("model", "AMD EPYC"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: reported.get("cuda", False))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: reported.get("cuda_bf16", False))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: reported.get("mps", False))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(reported.get("cpu", ()), True))


@pytest.mark.parametrize(
    ("reported", "precision", "message"),
    [
        ({}, "fp16", r"must be auto, fp32 or bf16 on this machine \(CPU\), got fp16"),
        ({"cuda": True}, "bf16", r"must be auto, fp16 or fp32 on this machine \(Tesla T4\), got bf16"),
        ({"mps": True}, "fp16", r"must be auto, fp32 or bf16 on this machine \(Apple GPU\), got fp16"),
    ],
)
def test_an_unsupported_precision_is_rejected(
    monkeypatch: pytest.MonkeyPatch, reported: dict[str, bool], precision: Any, message: str
) -> None:
    patch_hardware(monkeypatch, **reported)
    with pytest.raises(UserError, match=rf"^params\.yaml: train\.precision .*{message}\.$"):
        set_up_device(precision, None)


@pytest.mark.parametrize("native", [True, False])
def test_bf16_on_a_cpu_without_native_support_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, native: bool
) -> None:
    patch_hardware(monkeypatch, cpu=["avx512_bf16"] if native else ["avx512_f"])
    with caplog.at_level(logging.WARNING, logger="pipeline"):
        assert set_up_device("bf16", None) == ("cpu", "bf16")
    assert ("emulates bf16" in caplog.text) == (not native)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"cuda": True, "cuda_bf16": True}, ("cuda", "bf16")),
        ({"cuda": True, "cpu": ["avx512_bf16"]}, ("cuda", "fp16")),
        ({"mps": True}, ("mps", "fp32")),
        ({"cpu": ["avx2", "avx512_f"]}, ("cpu", "fp32")),
        ({"cpu": ["avx512_bf16"]}, ("cpu", "bf16")),
        ({"cpu": ["avx512_bf16"], "model": "Intel(R) Xeon(R) Processor 6 143"}, ("cpu", "fp32")),
        ({"cpu": ["avx512_bf16", "amx_bf16"], "model": "Intel(R) Xeon(R) Processor 6 143"}, ("cpu", "bf16")),
        ({"cpu": ["bf16"]}, ("cpu", "bf16")),
    ],
)
def test_auto_chooses_the_precision_in_which_the_hardware_multiplies_fastest(
    monkeypatch: pytest.MonkeyPatch, reported: dict[str, Any], expected: tuple[str, str]
) -> None:
    patch_hardware(monkeypatch, **reported)
    assert set_up_device("auto", None) == expected


@pytest.mark.parametrize(
    ("reported", "recorded", "expected"),
    [
        ({"cpu": ["avx512_bf16"]}, "fp32", "fp32"),  # bf16 is faster
        ({"cpu": ["avx512_bf16"], "model": "Intel(R) Xeon(R) Processor 6 143"}, "bf16", "bf16"),  # fp32 is faster
        ({"cpu": ["avx512_f"]}, "bf16", "fp32"),  # this CPU would emulate bf16
        ({"cuda": True}, "bf16", "fp16"),
        ({"cuda": True, "cuda_bf16": True}, "fp16", "fp16"),
    ],
)
def test_a_model_runs_in_the_precision_of_its_scores_if_the_machine_supports_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reported: dict[str, Any], recorded: Any,
    expected: str,
) -> None:  # fmt: skip
    patch_hardware(monkeypatch, **reported)
    assert precision_of_scores(recorded) == expected
    if recorded == expected:
        assert not caplog.messages
    else:
        [warning] = caplog.messages
        assert f"measured in {recorded}" in warning and f"computes in {expected}" in warning


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("ONEDNN_MAX_CPU_ISA", "avx512_core", []),
        ("DNNL_MAX_CPU_ISA", "AVX512_CORE_VNNI", []),
        ("ATEN_CPU_CAPABILITY", "avx2", []),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", ["avx512_bf16"]),
        ("ONEDNN_MAX_CPU_ISA", "ALL", ["avx512_bf16", "amx_bf16"]),
    ],
)
def test_environment_variables_that_limit_the_instruction_set_are_respected(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: list[str]
) -> None:
    patch_hardware(monkeypatch, cpu=["avx512_bf16", "amx_bf16"])
    monkeypatch.setenv(variable, value)
    assert bf16_instruction_sets() == expected
    assert set_up_device("auto", None).precision == ("bf16" if expected else "fp32")


def test_training_and_scoring_use_one_gpu_per_process(
    monkeypatch: pytest.MonkeyPatch, params: Params, tiny: TinyMaker, tmp_path: Path
) -> None:
    monkeypatch.setattr("transformers.TrainingArguments.n_gpu", 4)
    cpu = Device("cpu", "fp32")
    arguments = training_arguments(*sections(params), cpu, tmp_path, "f1")
    tokenizer, model = load_tokenizer(tiny()), load_base_model(tiny(), "cpu")
    assert arguments._n_gpu == scoring_trainer(model, tokenizer, cpu, 32).args._n_gpu == 1


@pytest.mark.parametrize(("visible", "warns"), [(None, True), ("0", True), ("", False), ("-1", False)])
def test_a_gpu_that_torch_cannot_use_is_named(
    visible: str | None, warns: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patch_hardware(monkeypatch)
    monkeypatch.setattr(device, "_NVIDIA_DRIVER", tmp_path)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    set_up_device("fp32", None)
    assert ("has an NVIDIA driver, but torch" in caplog.text) == warns


def test_a_run_on_a_gpu_can_move_to_a_host_with_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    environments = []
    for model in ("AMD EPYC", "Intel Xeon"):
        patch_hardware(monkeypatch, cuda=True, model=model)
        monkeypatch.setattr("pipeline.modeling.environment.cpu_model", lambda model=model: model)
        environments.append(environment(Device("cuda", "fp16")))
    assert environments[0] == environments[1]
    assert environments[0]["device"].startswith("Tesla T4, CUDA ")


def test_the_number_of_threads_is_set() -> None:
    before = torch.get_num_threads()
    try:
        set_up_device("fp32", 1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_auto_is_fp32_if_torch_cannot_report_the_cpus_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_hardware(monkeypatch)
    monkeypatch.delattr(torch.cpu, "get_capabilities")  # as in torch before 2.11
    assert set_up_device("auto", None) == ("cpu", "fp32")
