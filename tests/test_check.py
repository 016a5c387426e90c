"""The check stage rejects bad parameters before any output is removed."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import TinyMaker, sections

from pipeline.check import check
from pipeline.core.messages import UserError
from pipeline.core.packages import installed, locked
from pipeline.modeling.device import Device
from pipeline.params import RENAMED, Params
from pipeline.training.arguments import training_arguments


@pytest.fixture
def good(params: Params, tiny: TinyMaker) -> Params:
    return dataclasses.replace(params, model=dataclasses.replace(params.model, checkpoint=str(tiny())))


def changed(params: Params, section: str, **values: Any) -> Params:
    return dataclasses.replace(params, **{section: dataclasses.replace(getattr(params, section), **values)})


def test_all_valid_params_give_the_same_output(good: Params, tmp_path: Path) -> None:
    check(good, tmp_path / "one")
    check(
        changed(good, "train", lr=1.0, extra={"label_smoothing_factor": 1, "include_for_metrics": ["loss"]}),
        tmp_path / "two",
    )
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (
            "train",
            {"optim": "adam"},
            r'train\.optim: adam .*did you mean "adamw_torch"',
        ),
        ("runtime", {"report_to": "tensorbord"}, r'runtime\.report_to: tensorbord .*did you mean "tensorboard"'),
        (
            "train",
            {"extra": {"label_smoothing": 0.1}},
            r'train\.extra: label_smoothing .*did you mean "label_smoothing_factor"\?',
        ),
        ("train", {"extra": {"learning_rate": 0.1}}, r"train\.extra\.learning_rate .* train\.lr; remove it"),
        ("train", {"extra": {"label_smoothing_factor": "a"}}, r"label_smoothing_factor is a; it must be a number"),
        ("train", {"extra": {"label_smoothing_factor": 5}}, r"label_smoothing_factor is 5; .*at most 1"),
        ("train", {"extra": {"neftune_noise_alpha": -5}}, r"neftune_noise_alpha is -5; it must be at least 0"),
        ("train", {"extra": {"optim_args": 5}}, r"optim_args is 5; it must be text or null"),
        ("train", {"extra": {"adam_beta2": None}}, r"adam_beta2 is None; it must be a number"),
        (
            "train",
            {"engine": "loop", "torch_compile": True},
            r"train\.torch_compile is True; .*train\.engine loop .*False",
        ),
        ("train", {"precision": "fp16"}, r"train\.precision is fp16; .*no GPU.* bf16 or fp32"),
        ("model", {"checkpoint": "gpt2"}, r"model\.checkpoint is gpt2, .*gpt2@"),
    ],
)
def test_bad_params_are_rejected_before_any_output(
    good: Params, tmp_path: Path, section: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        check(changed(good, section, **values), tmp_path / "out")
    assert str(error.value).startswith("params.yaml: ")
    assert not (tmp_path / "out").exists()


def test_a_metric_of_another_kind_of_task_is_rejected_before_any_output(good: Params, tmp_path: Path) -> None:
    mrpc = changed(changed(good, "data", task="mrpc"), "train", metric_for_best_model="pearson")
    with pytest.raises(
        UserError, match=r'^params\.yaml: train\.metric_for_best_model .* one of loss, acc.*, got "pearson"'
    ):
        check(mrpc, tmp_path / "out")
    check(changed(mrpc, "data", task="stsb"), tmp_path / "out")
    mrpc = changed(changed(good, "data", task="mrpc"), "evaluate", metrics=["roc_auc", "f1_marco"])
    with pytest.raises(
        UserError, match=r'^params\.yaml: evaluate\.metrics .*, got "f1_marco"\. Did you mean "f1_macro"\?$'
    ):
        check(mrpc, tmp_path / "out")


def test_precision_is_not_checked_where_other_machines_train(good: Params, tmp_path: Path) -> None:
    away = changed(changed(good, "train", precision="fp16"), "runtime", launcher="srun torchrun --nnodes 2 -m")
    check(away, tmp_path / "out")


@pytest.mark.parametrize(("field", "key"), RENAMED.items())
def test_every_renamed_field_is_set_by_its_key(params: Params, tmp_path: Path, field: str, key: str) -> None:
    device = Device("cpu", "fp32")
    owner = "train.batch_size" if key == "predict.batch_size" else key  # it bounds the validation batches too
    with pytest.raises(UserError, match=rf"train\.extra\.{field} .* {re.escape(owner)}; remove it"):
        training_arguments(*sections(params, extra={field: 1}), device, tmp_path, "f1")


def test_the_installed_packages_match_the_lock() -> None:
    found = {name: of.partition("+")[0] for name, of in installed().items()}
    assert found == locked()
    assert {"torch", "transformers", "accelerate", "tokenizers", "numpy"} <= found.keys()
