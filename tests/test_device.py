"""Unsupported precisions are rejected before any work. What torch reports about the hardware is patched here, since a
machine has only one kind."""

import logging
from typing import Any

import pytest
import torch

from pipeline.core.messages import UserError
from pipeline.modeling.device import set_up_device


def hardware(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
    """Patch what torch reports. answers: cuda, cuda_bf16, mps and cpu_bf16, False where not given."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: answers.get("cuda", False))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: answers.get("cuda_bf16", False))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: answers.get("mps", False))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": answers.get("cpu_bf16", False)})


@pytest.mark.parametrize(
    ("answers", "precision", "message"),
    [
        ({}, "fp16", r"train\.precision is fp16; .*no GPU: use bf16 or fp32"),
        ({"cuda": True}, "bf16", r"train\.precision is bf16; Tesla T4 .*: use fp16 or fp32"),
        ({"mps": True}, "fp16", r"train\.precision is fp16; .*CUDA GPU: use bf16 or fp32"),
    ],
)
def test_an_unsupported_precision_is_rejected(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, bool], precision: Any, message: str
) -> None:
    hardware(monkeypatch, **answers)
    with pytest.raises(UserError, match=rf"^params\.yaml: {message}$"):
        set_up_device(precision, None)


@pytest.mark.parametrize("native", [True, False])
def test_bf16_on_a_cpu_without_native_support_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, native: bool
) -> None:
    hardware(monkeypatch, cpu_bf16=native)
    with caplog.at_level(logging.WARNING, logger="pipeline"):
        assert set_up_device("bf16", None) == "cpu"
    assert ("no native bf16" in caplog.text) == (not native)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_a_gpu_with_bf16_supports_every_precision(monkeypatch: pytest.MonkeyPatch, precision: Any) -> None:
    hardware(monkeypatch, cuda=True, cuda_bf16=True)
    assert set_up_device(precision, None) == "cuda"


def test_the_number_of_threads_is_set() -> None:
    before = torch.get_num_threads()
    try:
        set_up_device("fp32", 1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
