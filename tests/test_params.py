"""params.yaml: what DVC writes is read as meant, and every mistake is told in one line."""

from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from pipeline.params import load_params
from pipeline.stage import UserError


def edited(tmp_path: Path, key: str, text: str) -> Path:
    """The project's params.yaml with the text of one value replaced."""
    section, name = key.split(".")
    lines = (ROOT / "params.yaml").read_text().splitlines()
    at = next(n for n in range(lines.index(f"{section}:"), len(lines)) if lines[n].startswith(f"  {name}:"))
    lines[at] = f"  {name}: {text}"
    path = tmp_path / "params.yaml"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("text", ["3e-05", "3e-5", "3.0e-5", "0.00003", ".3e-4"])
def test_a_learning_rate_is_a_number_however_dvc_or_a_person_writes_it(tmp_path: Path, text: str) -> None:
    assert load_params(edited(tmp_path, "train.lr", text)).train.lr == pytest.approx(3e-5, rel=1e-12)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("train.lr", "-1.0", "train.lr is -1.0; it must be greater than 0"),
        ("train.lr", "fast", "train.lr is fast; it must be a number"),
        ("train.lr", ".nan", "train.lr is .nan; it must be a finite number"),
        ("train.lr", "1e999", "train.lr is .inf; it must be a finite number"),
        ("train.epochs", "true", "train.epochs is true; it must be a whole number"),
        ("train.epochs", "2.5", "train.epochs is 2.5; it must be a whole number"),
        ("train.batch_size", "0", "train.batch_size is 0; it must be at least 1"),
        ("train.warmup_ratio", "1", "train.warmup_ratio is 1.0; it must be at least 0 and below 1"),
        ("train.seed", "-1", "train.seed is -1; it must be at least 0 and below 4294967296"),
        ("train.lr_scheduler_type", "zigzag", "train.lr_scheduler_type is zigzag; it must be one of linear, cosine"),
        ("train.keep", "[best]", "train.keep is [best]; it must be one of best, last"),
        ("train.num_threads", "all", "train.num_threads is all; it must be a whole number or null"),
        ("train.group_by_length", "1", "train.group_by_length is 1; it must be true or false"),
        ("train.extra", "no", "train.extra is false; it must be a section of keys"),
        ("tokenize.max_length", "3", "tokenize.max_length is 3; it must be at least 4"),
        ("data.task", "sst2", "data.task is sst2; it must be one of mrpc, sample"),
        ("model.checkpoint", "null", "model.checkpoint is null; it must be text"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_in_one_line_with_its_key(tmp_path: Path, key: str, text: str, message: str) -> None:
    path = edited(tmp_path, key, text)
    with pytest.raises(UserError) as error:
        load_params(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_an_unknown_key_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    path = edited(tmp_path, "train.lr", "1e-5\n  learning_rat: 1")
    with pytest.raises(UserError, match=r"train\.learning_rat is not a parameter"):
        load_params(path)
    path = edited(tmp_path, "train.lr", "1e-5\n  weight_decy: 1")
    with pytest.raises(UserError, match=r'did you mean "train\.weight_decay"\?'):
        load_params(path)


def test_a_missing_key_section_or_file_is_named(tmp_path: Path) -> None:
    tree = yaml.safe_load((ROOT / "params.yaml").read_text())
    del tree["train"]["seed"]
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(UserError, match=r"train\.seed is missing"):
        load_params(path)
    path.write_text(yaml.safe_dump({**tree, "train": None}))
    with pytest.raises(UserError, match="train is null; it must be a section of keys"):
        load_params(path)
    path.write_text("train: [\n")
    with pytest.raises(UserError, match="cannot be read"):
        load_params(path)
    with pytest.raises(UserError, match="is missing; run in the directory"):
        load_params(tmp_path / "nowhere.yaml")


def test_every_scheduler_of_transformers_is_known() -> None:
    import typing

    from transformers import SchedulerType

    from pipeline.params import TrainParams

    known = typing.get_args(typing.get_type_hints(TrainParams)["lr_scheduler_type"])
    unusable = {"greedy"}  # its smallest learning rate, 1e-3, is above any that fine-tuning wants
    assert set(known) == {kind.value for kind in SchedulerType} - unusable
