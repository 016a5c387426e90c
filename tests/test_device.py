"""What the device cannot do is told before any work. torch's answers about hardware are set here, since one machine
has only one kind of it."""

import logging
from typing import Any

import pytest
import torch

from pipeline.core.messages import UserError
from pipeline.modeling.device import set_up_device


def hardware(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
    """cuda, cuda_bf16, mps, cpu_bf16: whether torch says that the machine has it; False where not named."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: answers.get("cuda", False))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: answers.get("cuda_bf16", False))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: answers.get("mps", False))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": answers.get("cpu_bf16", False)})


@pytest.mark.parametrize(
    ("answers", "precision", "message"),
    [
        ({}, "fp16", "train.precision is fp16; there is no GPU: use bf16 or fp32"),
        ({"cuda": True}, "bf16", "train.precision is bf16; Tesla T4 has none: use fp16 or fp32"),
        ({"mps": True}, "fp16", "train.precision is fp16; it needs a CUDA GPU: use bf16 or fp32"),
    ],
)
def test_a_precision_that_the_device_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, bool], precision: Any, message: str
) -> None:
    hardware(monkeypatch, **answers)
    with pytest.raises(UserError) as error:
        set_up_device(precision, None)
    assert str(error.value) == f"params.yaml: {message}"


@pytest.mark.parametrize("native", [True, False])
def test_bf16_on_a_cpu_without_it_gets_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, native: bool
) -> None:
    hardware(monkeypatch, cpu_bf16=native)
    with caplog.at_level(logging.WARNING, logger="pipeline"):
        assert set_up_device("bf16", None) == {"use_cpu": True, "fp16": False, "bf16": True}
    assert ("no native bf16" in caplog.text) == (not native)


@pytest.mark.parametrize(
    ("precision", "flags"), [("fp16", (True, False)), ("bf16", (False, True)), ("fp32", (False, False))]
)
def test_a_gpu_gets_the_precision_asked_for(
    monkeypatch: pytest.MonkeyPatch, precision: Any, flags: tuple[bool, bool]
) -> None:
    hardware(monkeypatch, cuda=True, cuda_bf16=True)
    assert set_up_device(precision, None) == {"use_cpu": False, "fp16": flags[0], "bf16": flags[1]}


def test_the_number_of_threads_is_set() -> None:
    before = torch.get_num_threads()
    try:
        set_up_device("fp32", 1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
