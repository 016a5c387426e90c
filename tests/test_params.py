"""params.yaml: every notation of a value is read as DVC reads it, and every mistake ends in one line with its key."""

from pathlib import Path
from typing import get_args

import pytest
from conftest import PARAMS, committed, data_params, params_file
from dvc.utils.hydra import apply_overrides

from pipeline.core.messages import UserError
from pipeline.evaluation.metrics import METRICS
from pipeline.params import MetricName, load_params


def rejection(path: Path) -> str:
    """Return the error that a params.yaml causes."""
    with pytest.raises(UserError) as error:
        load_params(path)
    assert str(error.value).startswith(f"{path}") and "\n" not in str(error.value)
    assert len(str(error.value)) < 1000
    return str(error.value)


def test_every_metric_can_be_chosen() -> None:
    assert {*get_args(MetricName)} == {*METRICS}


def test_the_committed_params_yaml_and_the_one_of_the_tests_have_the_same_keys(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(committed("params.yaml"))
    for path in (tmp_path / "params.yaml", PARAMS):
        load_params(path)


def test_scalars_follow_yaml_1_2(tmp_path: Path) -> None:
    for text in ("3e-05", "3e-5", "3.0e-5", "0.00003", ".3e-4"):
        assert load_params(params_file(tmp_path, {"train.lr": text})).train.lr == pytest.approx(3e-5, rel=1e-12)
    for text in ("no", "on", "12:30", "2026-01-01"):  # In YAML 1.1, these are booleans, a time and a date.
        assert load_params(params_file(tmp_path, {"model.checkpoint": text})).model.checkpoint == text
    assert load_params(params_file(tmp_path, {"train.epochs": "010"})).train.epochs == 10
    names = load_params(params_file(tmp_path, {"data.id2label": "{0: no, true: yes}"})).data.id2label
    assert names == {"0": "no", "true": "yes"}, "the keys of a mapping are labels, so they are text"


@pytest.mark.parametrize(("key", "value"), [("optim", "adafactor"), ("training_args", "{adam_beta1: 0.5}")])
def test_settings_that_the_loop_does_not_support_are_rejected(key: str, value: str, tmp_path: Path) -> None:
    settings = {f"train.{key}": value}
    load_params(params_file(tmp_path, settings))
    assert f"train.{key}" in rejection(params_file(tmp_path, {**settings, "train.engine": "loop"}))


def test_an_override_replaces_a_list_of_names_and_values(tmp_path: Path) -> None:
    """DVC would merge a mapping with the previous one."""
    path = params_file(tmp_path, {"train.class_weights": "[old=3, other=1]"})
    apply_overrides(path, ['train.class_weights=["bad=2","schön=1"]', 'data.id2label=["0=bad","1=schön"]'])
    params = load_params(path)
    assert params.train.class_weights == {"bad": 2, "schön": 1}
    assert params.data.id2label == {"0": "bad", "1": "schön"}
    apply_overrides(path, ['train.class_weights=["bad=2","bad=1"]'])
    assert "train.class_weights" in rejection(path)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("train.lr", "-1.0", "-1.0"), ("train.lr", "fast", '"fast"'), ("train.epochs", "2.5", "2.5"),
        ("train.class_weights", "{good: 1, bad: 0}", "got 0"), ("train.class_weights", '["bad=x"]', '"x"'),
        ("data.id2label", "{0: 5}", "got 5"), ("data.encoding", "utf-9", '"utf-9"'),
        ("data.task", "mrcp", '"mrcp". Did you mean "mrpc"?'),
        ("evaluate.metrics", "[]", "[]"), ("predict.max_samples", "1", "got 1"),
        ("runtime.launcher", "torchrun --nproc-per-node 2", '"torchrun --nproc-per-node 2"'),
    ],
)  # fmt: skip
def test_a_wrong_value_is_reported_with_its_key(key: str, text: str, value: str, tmp_path: Path) -> None:
    message = rejection(params_file(tmp_path, {key: text}))
    assert f" {key}" in message and value in message


@pytest.mark.parametrize(
    ("line", "key", "suggestion"),
    [
        ("  weight_decy: 0.1", "train.weight_decy", '"train.weight_decay"'),
        ("  learning_rate: 0.1", "train.learning_rate", '"train.lr"'),  # its name in TrainingArguments
        ("  label_smoothing_factor: 0.1", "train.label_smoothing_factor", "training_args"),
        ("predcit: {}", "predcit", '"predict"'),
    ],
)
def test_an_unknown_key_is_rejected_with_a_suggestion(line: str, key: str, suggestion: str, tmp_path: Path) -> None:
    message = rejection(params_file(tmp_path, {"train.training_args": f"{{}}\n{line}"}))
    assert f" {key} " in message and suggestion in message


def test_a_missing_key_or_section_is_reported(tmp_path: Path) -> None:
    path = params_file(tmp_path)
    path.write_text(path.read_text().replace("  logging_steps: 20\n", ""))
    assert " train.logging_steps " in rejection(path)
    path.write_text("data: null\n")
    assert " data" in rejection(path)


def test_a_file_without_usable_parameters_is_reported(tmp_path: Path) -> None:
    for text in (
        "", "train: [", "<<<<<<< HEAD\ntrain: {}\n", "train:\n\tlr: 1\n", "!!python/object/apply:os.system [exit 1]",
        "9" * 5000, "x" * 9_000 + ": 1", "\x00",
    ):  # fmt: skip
        (tmp_path / "params.yaml").write_text(text)
        rejection(tmp_path / "params.yaml")


def test_a_dataset_of_the_hub_needs_an_owner_a_commit_and_a_split_to_train_on(tmp_path: Path) -> None:
    pinned = {"data.task": "hub", "data.dataset": f"owner/name@{'0' * 40}"}
    load_params(params_file(tmp_path, pinned))
    datasets, splits = ["owner/name@main", f"imdb@{'0' * 40}"], ["{test: validation}", "{train: all, test: all}"]
    for key, text in [("dataset", name) for name in datasets] + [("splits", names) for names in splits]:
        assert f" data.{key} " in rejection(params_file(tmp_path, {**pinned, f"data.{key}": text}))


def test_a_column_with_a_name_that_a_stage_needs_is_rejected() -> None:
    for column in ("labels", "prediction", "probability", "nearest_text"):
        with pytest.raises(UserError, match=rf"data\.text_column_names .*{column}"):
            data_params(task="custom", text_column_names=[column], label_column_name="category")


@pytest.mark.parametrize("output", ["models/classifier", "models/pretrained"])
def test_an_output_is_not_a_base_model(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, every change of a parameter would train on top of the last result."""
    monkeypatch.chdir(tmp_path)
    for path in (output, f"./{output}/", f"models/../{output}", tmp_path / output):
        message = rejection(params_file(tmp_path, {"model.checkpoint": path}))
        assert " model.checkpoint" in message and f"cp -r {output} models/base/" in message
    load_params(params_file(tmp_path, {"model.checkpoint": "models/base/mine"}))
