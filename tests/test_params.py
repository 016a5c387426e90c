"""params.yaml: every notation of a number is read correctly, and every mistake is reported in one line."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import PARAMS, committed, data_params, params_file
from dvc.utils.hydra import apply_overrides

from pipeline.core.messages import UserError
from pipeline.core.yaml12 import load_yaml
from pipeline.params import Params, TrainParams, load_params, parse_params


def test_the_committed_params_yaml_loads(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(committed("params.yaml"))
    assert isinstance(load_params(tmp_path / "params.yaml"), Params)


def test_an_override_replaces_a_list_of_names_and_values_and_merges_a_mapping(tmp_path: Path) -> None:
    file = params_file(tmp_path, {"train.class_weights": "[old=3, other=1]", "data.id2label": "[0=old, 1=other]"})
    apply_overrides(file, ['train.class_weights=["bad=2","schön=1"]', 'data.id2label=["0=bad","1=schön"]'])
    params = load_params(file)
    assert params.train.class_weights == {"bad": 2, "schön": 1}
    assert params.data.id2label == {"0": "bad", "1": "schön"}
    apply_overrides(file, ['train.class_weights=["bad=2","bad=1"]'])
    with pytest.raises(UserError, match=r"train\.class_weights must not repeat a name"):
        load_params(file)


@pytest.mark.parametrize(
    "changes",
    [
        {"data.dataset": "owner/name@main"},
        {"data.dataset": f"imdb@{'0' * 40}"},
        {"data.splits": "{test: validation}"},
    ],
)
def test_a_dataset_of_the_hub_needs_an_owner_a_commit_and_a_split_to_train_on(
    changes: dict[str, str], tmp_path: Path
) -> None:
    [key] = changes
    pinned = {"data.task": "hub", "data.dataset": f"owner/name@{'0' * 40}"}
    assert load_params(params_file(tmp_path, pinned)).data.dataset == pinned["data.dataset"]
    with pytest.raises(UserError, match=f"{key} must "):
        load_params(params_file(tmp_path, pinned | changes))


def test_a_launcher_without_m_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'runtime\.launcher must end with -m, .* got "torchrun --nproc-per-node 2"'):
        load_params(params_file(tmp_path, {"runtime.launcher": "torchrun --nproc-per-node 2"}))


@pytest.mark.parametrize("text", ["3e-05", "3e-5", "3.0e-5", "0.00003", ".3e-4"])
def test_a_learning_rate_is_read_as_a_number_in_every_notation(tmp_path: Path, text: str) -> None:
    assert load_params(params_file(tmp_path, {"train.lr": text})).train.lr == pytest.approx(3e-5, rel=1e-12)


@pytest.mark.parametrize(
    ("key", "text", "expected", "value"),
    [
        ("train.lr", "-1.0", "a number greater than 0", "-1.0"),
        ("train.lr", "fast", "a number greater than 0", '"fast"'),
        ("train.lr", ".nan", "a number greater than 0", "NaN"),
        ("train.lr", f"1{'0' * 400}", "a number greater than 0", f"1{'0' * 56}..."),
        ("train.epochs", "true", "a whole number of at least 1 and at most 1,000,000,000", "true"),
        ("train.epochs", "2.5", "a whole number of at least 1 and at most 1,000,000,000", "2.5"),
        ("train.batch_size", "65537", "a whole number of at least 1 and at most 65,536", "65537"),
        ("train.weight_decay", "-0.01", "a number of at least 0", "-0.01"),
        ("train.warmup_ratio", "1", "a number of at least 0 and below 1", "1"),
        ("train.keep", "[best]", 'one of "best", "last"', '["best"]'),
        ("train.num_threads", "all", "a whole number of at least 1 and at most 1,024 or null", '"all"'),
        ("train.group_by_length", "1", "true or false", "1"),
        ("train.training_args", "none", "a section of keys", '"none"'),
        (
            "train.class_weights", "{good: 1, bad: 0}", '"balanced", a mapping to numbers greater than 0 or null',
            '0 for entry "bad"',
        ),
        (
            "train.class_weights", '["bad=x"]', '"balanced", a mapping to numbers greater than 0 or null',
            '"x" for entry "bad"',
        ),
        ("data.id2label", "{0: 5}", "a mapping to strings, a list of strings or null", '5 for entry "0"'),
        ("data.text_column_names", "[1]", "a list of strings", "1 for entry 0"),
        ("data.name", "x" * 81, "a string of at least 1 and at most 80 characters or null", '"' + "x" * 56 + "..."),
        ("model.checkpoint", "null", "a string", "null"),
        ("evaluate.metrics", "[]", "a non-empty list of strings or null", "[]"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_reported_in_one_line_with_its_key(key: str, text: str, expected: str, value: str) -> None:
    tree = yaml.safe_load(PARAMS.read_text())
    section, name = key.split(".")
    tree[section][name] = load_yaml(text)
    with pytest.raises(UserError) as error:
        parse_params(tree)
    assert str(error.value) == f"params.yaml: {key} must be {expected}, got {value}."


def test_a_misspelled_choice_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    path = params_file(tmp_path, {"data.task": "mrcp"})
    with pytest.raises(UserError, match=rf'^{path}: data\.task must be one of .*, got "mrcp"\. Did you mean "mrpc"\?$'):
        load_params(path)


@pytest.mark.parametrize(("text", "value"), [("010", 10), ("0x10", 16), ("0o17", 15), ("+7", 7)])
def test_integers_follow_yaml_1_2(tmp_path: Path, text: str, value: int) -> None:
    assert load_params(params_file(tmp_path, {"train.epochs": text})).train.epochs == value


@pytest.mark.parametrize("text", ["no", "on", "12:30", "1_000", "2026-01-01"])
def test_yaml_1_1_booleans_times_and_dates_are_read_as_strings(tmp_path: Path, text: str) -> None:
    assert load_params(params_file(tmp_path, {"model.checkpoint": text})).model.checkpoint == text


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("learning_rate", r'train\.learning_rate is not a parameter\. Did you mean "train\.lr"\?'),
        (
            "label_smoothing_factor",
            r"train\.label_smoothing_factor .* keys are: engine, seed, .*\. .* train\.training_args\.",
        ),
    ],
)
def test_a_field_of_training_arguments_is_rejected_with_a_hint(tmp_path: Path, key: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_params(params_file(tmp_path, {"train.lr": f"1e-5\n  {key}: 1"}))


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("train.weight_decay", {"train": {"weight_decy": 0.1}}),
        ("train.lr", {"train": {"learning_rat": 0.1}}),
        ("data.split.seed", {"data": {"split": {"sed": 1}}}),
        ("predict", {"predcit": {}}),
    ],
)
def test_an_unknown_key_is_rejected_with_a_suggestion(key: str, changes: dict[str, Any]) -> None:
    tree = yaml.safe_load(PARAMS.read_text())
    with pytest.raises(
        UserError, match=rf'^params\.yaml: [\w.]+ is not a parameter\. Did you mean "{re.escape(key)}"\?$'
    ):
        parse_params({**tree, **{section: {**tree.get(section, {}), **values} for section, values in changes.items()}})


def test_a_missing_key_section_or_file_is_reported(tmp_path: Path) -> None:
    tree = yaml.safe_load(PARAMS.read_text())
    del tree["train"]["seed"]
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(UserError, match=r"train\.seed is missing\."):
        load_params(path)
    path.write_text(yaml.safe_dump({**tree, "train": None}))
    with pytest.raises(UserError, match="train must be a section of keys, got null"):
        load_params(path)
    path.write_text("train: [\n")
    with pytest.raises(UserError, match="cannot be read"):
        load_params(path)
    with pytest.raises(UserError, match=r"is missing\. Run this in the directory"):
        load_params(tmp_path / "nowhere.yaml")


def test_every_usable_transformers_scheduler_is_accepted() -> None:
    from transformers import SchedulerType

    accepted = TrainParams.model_json_schema()["properties"]["lr_scheduler_type"]["enum"]
    unusable = {"greedy"}  # its smallest learning rate, 1e-3, is too high for fine-tuning
    assert set(accepted) == {scheduler.value for scheduler in SchedulerType} - unusable


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",  # a small billion-laughs bomb
        "train: &train\n  training_args: *train\n",  # an alias that contains itself
        "[" * 500,
        "{a: " * 500,
        "a: 1\n" * 500,
        "9" * 5000,
        " " * 50_000,
        "!!bool x",
        "!!python/object/apply:os.system [exit 1]",
        "\x00",
        "\ud800",
        "x" * 9_000 + ": 1",
    ],
    ids=range(12),
)
def test_a_file_without_usable_parameters_is_reported_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError, match=f"^{path}") as error:
        load_params(path)
    assert len(str(error.value)) < 1000
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {task: mrpc}\ndata: {task: demo}", "the key data is given twice .*line 2"),
        ("data: !!map [1]", "expected a mapping node, but found sequence in line 1"),
        ("true: 2", "the key true is not text; quote it"),
        ("train: {training_args: {1.5: 2}}", "the key 1.5 is not text; quote it"),
    ],
)
def test_ambiguous_yaml_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"params\.yaml cannot be read: {message}"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize("column", ["labels", "prediction"])
def test_a_column_with_a_name_that_a_stage_needs_is_rejected(column: str) -> None:
    with pytest.raises(UserError, match=rf"data\.text_column_names must not contain any of .*{column}.*rename"):
        data_params(task="custom", text_column_names=[column], label_column_name="category")
