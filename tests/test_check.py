"""What no stage would accept is told by the first one, before any output goes."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import TinyMaker, sections

from pipeline.check import check
from pipeline.core.messages import UserError
from pipeline.core.packages import installed, locked
from pipeline.params import RENAMED, Params
from pipeline.training.arguments import training_arguments


@pytest.fixture
def good(params: Params, tiny: TinyMaker) -> Params:
    return dataclasses.replace(params, model=dataclasses.replace(params.model, checkpoint=str(tiny())))


def changed(params: Params, section: str, **values: Any) -> Params:
    return dataclasses.replace(params, **{section: dataclasses.replace(getattr(params, section), **values)})


def test_whatever_is_accepted_leaves_the_same_file(good: Params, tmp_path: Path) -> None:
    check(good, tmp_path / "one")
    check(changed(good, "train", lr=1.0, extra={"label_smoothing_factor": 0.1}), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("section", "values", "told"),
    [
        (
            "train",
            {"optim": "adam"},
            'train.optim: adam is not an optimizer of transformers; did you mean "adamw_torch"',
        ),
        ("runtime", {"report_to": "tensorbord"}, "runtime.report_to: tensorbord is not a tracker"),
        ("train", {"extra": {"label_smoothing": 0.1}}, 'did you mean "label_smoothing_factor"?'),
        ("train", {"extra": {"learning_rate": 0.1}}, "train.extra.learning_rate is set by train.lr"),
        ("train", {"engine": "loop", "torch_compile": True}, "train.torch_compile is True; with train.engine loop"),
        ("train", {"precision": "fp16"}, "train.precision is fp16; there is no GPU"),
        ("model", {"checkpoint": "gpt2"}, "model.checkpoint is gpt2, which is no directory and has no commit"),
    ],
)
def test_what_a_stage_would_refuse_is_refused_first(
    good: Params, tmp_path: Path, section: str, values: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError, match=re.escape(told)) as error:
        check(changed(good, section, **values), tmp_path / "out")
    assert str(error.value).startswith("params.yaml: ")
    assert not (tmp_path / "out").exists()


def test_another_machine_that_trains_is_not_judged_by_this_one(good: Params, tmp_path: Path) -> None:
    away = changed(changed(good, "train", precision="fp16"), "runtime", launcher="srun torchrun --nnodes 2 -m")
    check(away, tmp_path / "out")


@pytest.mark.parametrize(("field", "key"), RENAMED.items())
def test_a_renamed_field_is_one_that_its_key_sets(params: Params, tmp_path: Path, field: str, key: str) -> None:
    device = "cpu"
    owner = "train.batch_size" if key == "predict.batch_size" else key  # it bounds what scores validation, too
    with pytest.raises(UserError, match=re.escape(f"train.extra.{field} is set by {owner};")):
        training_arguments(*sections(params, extra={field: 1}), device, tmp_path)


def test_the_locked_packages_are_the_installed_ones() -> None:
    found = {name: of.partition("+")[0] for name, of in installed().items()}
    assert found == locked()
    assert {"torch", "transformers", "accelerate", "tokenizers", "numpy"} <= found.keys()
