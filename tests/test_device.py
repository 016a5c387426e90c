"""The device and the precision depend on the hardware. The tests patch what the machine reports about it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TinyMaker, sections

from pipeline.core.messages import UserError
from pipeline.modeling import device
from pipeline.modeling.device import Device, precision_of_scores, set_up_device
from pipeline.modeling.loading import load_base_model
from pipeline.modeling.scoring import scoring_trainer
from pipeline.modeling.tokenization import load_tokenizer
from pipeline.params import Params
from pipeline.sources.demo import DEMO
from pipeline.training.arguments import training_arguments

INTEL = "Intel(R) Xeon(R) Processor 6 143"


def patch_hardware(monkeypatch: pytest.MonkeyPatch, **reported: Any) -> None:
    """Patch what the machine reports: `cuda`, `cuda_bf16`, `mps`, `cpu` (its capabilities) and `model` (its name)."""
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.setattr(device, "cpu_model", lambda: reported.get("model", "AMD EPYC"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: reported.get("cuda", False))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: reported.get("cuda_bf16", False))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: reported.get("mps", False))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(reported.get("cpu", ()), True))


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"cuda": True, "cuda_bf16": True}, ("cuda", "bf16")),
        ({"cuda": True, "cpu": ["avx512_bf16"]}, ("cuda", "fp16")), ({"mps": True}, ("mps", "fp32")),
        ({"cpu": ["avx512_bf16"]}, ("cpu", "bf16")), ({"cpu": ["avx512_bf16"], "model": INTEL}, ("cpu", "fp32")),
        ({"cpu": ["avx512_bf16", "amx_bf16"], "model": INTEL}, ("cpu", "bf16")),
    ],
)  # fmt: skip
def test_auto_chooses_the_precision_in_which_the_hardware_multiplies_fastest(
    monkeypatch: pytest.MonkeyPatch, reported: dict[str, Any], expected: tuple[str, str]
) -> None:
    patch_hardware(monkeypatch, **reported)
    assert set_up_device("auto", None) == expected


def test_an_unsupported_precision_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_hardware(monkeypatch)
    with pytest.raises(UserError, match=r"^params\.yaml: train\.precision .* fp16\.$"):
        set_up_device("fp16", None)
    patch_hardware(monkeypatch, cuda=True)
    with pytest.raises(UserError, match=r"^params\.yaml: train\.precision .* bf16\.$"):
        set_up_device("bf16", None)


@pytest.mark.parametrize(
    ("reported", "recorded", "expected"),
    [
        ({"cpu": ["avx512_bf16"], "model": INTEL}, "bf16", "bf16"),  # fp32 is faster
        ({"cpu": ["avx512_f"]}, "bf16", "fp32"),  # this CPU would emulate bf16
        ({"cuda": True}, "bf16", "fp16"),
    ],
)
def test_a_model_runs_in_the_precision_of_its_scores_if_the_machine_supports_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reported: dict[str, Any], recorded: Any,
    expected: str,
) -> None:  # fmt: skip
    patch_hardware(monkeypatch, **reported)
    assert precision_of_scores(recorded) == expected
    assert (recorded in caplog.text and expected in caplog.text) == (recorded != expected)


def test_training_and_scoring_use_one_gpu_per_process(
    monkeypatch: pytest.MonkeyPatch, params: Params, tiny: TinyMaker, tmp_path: Path
) -> None:
    monkeypatch.setattr("transformers.TrainingArguments.n_gpu", 4)
    cpu = Device("cpu", "fp32")
    arguments = training_arguments(*sections(params), cpu, tmp_path, DEMO)
    scoring = scoring_trainer(load_base_model(tiny(), "cpu"), load_tokenizer(tiny()), cpu, 32)
    assert arguments._n_gpu == scoring.args._n_gpu == 1
