"""params.yaml: numbers as DVC writes them are read correctly, and every mistake is reported in one line."""

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import PARAMS, ROOT, committed, params_file
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.core.messages import UserError
from pipeline.params import Params, load_params


def test_the_committed_params_yaml_loads(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(committed("params.yaml"))
    assert isinstance(load_params(tmp_path / "params.yaml"), Params)


def test_params_yaml_has_the_same_keys_as_that_of_the_tests() -> None:
    ours, tests = (yaml.safe_load(path.read_text()) for path in (ROOT / "params.yaml", PARAMS))
    assert {section: list(ours[section]) for section in ours} == {section: list(tests[section]) for section in tests}


@pytest.mark.parametrize("text", ["3e-05", "3e-5", "3.0e-5", "0.00003", ".3e-4"])
def test_a_learning_rate_is_a_number_in_every_notation(tmp_path: Path, text: str) -> None:
    assert load_params(params_file(tmp_path, {"train.lr": text})).train.lr == pytest.approx(3e-5, rel=1e-12)


@pytest.mark.parametrize(
    ("key", "text", "shown", "remedy"),
    [
        ("train.lr", "-1.0", "-1.0", "greater than 0"),
        ("train.lr", "fast", "fast", "a number"),
        ("train.lr", ".nan", ".nan", "a finite number"),
        ("train.lr", "1e999", ".inf", "a finite number"),
        ("train.lr", f"1{'0' * 400}", f"1{'0' * 56}...", "a finite number"),
        ("train.epochs", "true", "true", "a whole number"),
        ("train.epochs", "2.5", "2.5", "a whole number"),
        ("train.batch_size", "0", "0", "at least 1"),
        ("train.warmup_ratio", "1", "1.0", "at least 0 and below 1"),
        ("train.seed", "-1", "-1", "at least 0 and below 4294967296"),
        ("train.lr_scheduler_type", "zigzag", "zigzag", "one of linear, cosine"),
        ("train.keep", "[best]", "[best]", "one of best, last"),
        ("train.num_threads", "all", "all", "a whole number or null"),
        ("train.group_by_length", "1", "1", "true or false"),
        ("train.extra", "none", "none", "a section of keys"),
        ("tokenize.max_length", "3", "3", "at least 4"),
        ("data.task", "imdb", "imdb", "one of own, sample, cola"),
        ("model.checkpoint", "null", "null", "text"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_reported_in_one_line_with_its_key(
    tmp_path: Path, key: str, text: str, shown: str, remedy: str
) -> None:
    path = params_file(tmp_path, {key: text})
    with pytest.raises(UserError) as error:
        load_params(path)
    assert re.match(rf"{path}: {key} is {re.escape(shown)}; .*{re.escape(remedy)}", str(error.value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "least", "below"),
    [
        ("tokenize.max_length", "4", "3"),
        ("runtime.num_proc", "1", "0"),
        ("train.seed", "0", "-1"),
        ("train.epochs", "1", "0"),
        ("train.lr", "1e-30", "0"),
        ("train.batch_size", "1", "0"),
        ("train.gradient_accumulation_steps", "1", "0"),
        ("train.weight_decay", "0", "-0.01"),
        ("train.warmup_ratio", "0", "-0.01"),
        ("train.max_grad_norm", "0", "-0.01"),
        ("train.logging_steps", "1", "0"),
        ("runtime.save_steps", "1", "0"),
        ("train.early_stopping_patience", "1", "0"),
        ("train.max_train_samples", "1", "0"),
        ("runtime.dataloader_num_workers", "0", "-1"),
        ("train.num_threads", "1", "0"),
        ("predict.batch_size", "1", "0"),
        ("runtime.timeout", "1", "0"),
    ],
)
def test_a_number_below_its_minimum_is_rejected(tmp_path: Path, key: str, least: str, below: str) -> None:
    section, name = key.split(".")
    loaded = load_params(params_file(tmp_path, {key: least}))
    assert getattr(getattr(loaded, section), name) == float(least)
    with pytest.raises(UserError, match=rf"{key} is .*; it must be (at least|greater than) "):
        load_params(params_file(tmp_path, {key: below}))


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("tokenize.max_length", 10**9),
        ("train.epochs", 10**9),
        ("train.batch_size", 2**16),
        ("train.gradient_accumulation_steps", 2**16),
        ("train.logging_steps", 10**9),
        ("train.early_stopping_patience", 10**9),
        ("train.max_train_samples", 10**9),
        ("train.num_threads", 1024),
        ("predict.batch_size", 2**16),
        ("predict.max_samples", 10**9),
        ("runtime.timeout", 10**9),
        ("runtime.num_proc", 1024),
        ("runtime.save_steps", 10**9),
        ("runtime.dataloader_num_workers", 1024),
    ],
)
def test_a_number_above_its_maximum_is_rejected(tmp_path: Path, key: str, most: int) -> None:
    section, name = key.split(".")
    loaded = load_params(params_file(tmp_path, {key: most}))
    assert getattr(getattr(loaded, section), name) == most
    for value in (most + 1, 10**30):
        with pytest.raises(UserError, match=rf"{key} is {value}; it must be at least \d and at most {most}$"):
            load_params(params_file(tmp_path, {key: value}))


@pytest.mark.parametrize("key", ["model.checkpoint", "data.directory"])
@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ("a/" + "x" * 255, "a/" + "x" * 256, "too long .* 255 between two slashes"),
        ("é" * 127, "é" * 128, "too long"),
        ("x/" * 2047, "x/" * 2048, "too long for a path: 4095 bytes"),
        ('"a b"', '"a\\0b"', "a character that no path may have"),
        ('"a é"', '"a \\ud800"', "a character that no path may have"),
    ],
)
def test_a_text_that_cannot_be_a_path_is_rejected(tmp_path: Path, key: str, good: str, bad: str, reason: str) -> None:
    assert isinstance(load_params(params_file(tmp_path, {key: good})), Params)
    with pytest.raises(UserError, match=rf"{key} is .*{reason}") as error:
        load_params(params_file(tmp_path, {key: bad}))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(("text", "value"), [("010", 10), ("0x10", 16), ("0o17", 15), ("+7", 7)])
def test_integers_follow_yaml_1_2(tmp_path: Path, text: str, value: int) -> None:
    assert load_params(params_file(tmp_path, {"train.epochs": text})).train.epochs == value


@pytest.mark.parametrize("text", ["no", "on", "12:30", "1_000", "2026-01-01"])
def test_yaml_1_1_booleans_times_and_dates_are_text(tmp_path: Path, text: str) -> None:
    assert load_params(params_file(tmp_path, {"model.checkpoint": text})).model.checkpoint == text


def test_the_largest_seed_is_that_of_numpy(tmp_path: Path) -> None:
    assert load_params(params_file(tmp_path, {"train.seed": "4294967295"})).train.seed == 2**32 - 1
    with pytest.raises(UserError, match="below 4294967296"):
        load_params(params_file(tmp_path, {"train.seed": "4294967296"}))


@pytest.mark.parametrize(("length", "shown"), [(60, "x" * 60), (61, "x" * 57 + "...")])
def test_a_long_value_is_shortened_in_the_message(tmp_path: Path, length: int, shown: str) -> None:
    with pytest.raises(UserError, match=rf"data\.task is {shown}; it must be one of"):
        load_params(params_file(tmp_path, {"data.task": "x" * length}))


def test_a_huge_params_yaml_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text() + "#" * 100_000)
    with pytest.raises(UserError, match=r"params\.yaml has 10\d{4} bytes; .*100000"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("learning_rate", r"train\.learning_rate .*learning_rate is called train\.lr\b"),
        ("per_device_eval_batch_size", r"train\.per_device_eval_batch_size .*called predict\.batch_size\b"),
        (
            "label_smoothing_factor",
            r"train\.label_smoothing_factor .*engine, seed, .*; .* train\.extra",
        ),
    ],
)
def test_a_field_of_training_arguments_is_reported_with_its_key(tmp_path: Path, key: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_params(params_file(tmp_path, {"train.lr": f"1e-5\n  {key}: 1"}))


def test_an_unknown_key_is_rejected_with_a_suggestion(tmp_path: Path) -> None:
    path = params_file(tmp_path, {"train.lr": "1e-5\n  learning_rat: 1"})
    with pytest.raises(UserError, match=r"train\.learning_rat is not a parameter"):
        load_params(path)
    path = params_file(tmp_path, {"train.lr": "1e-5\n  weight_decy: 1"})
    with pytest.raises(UserError, match=r'did you mean "train\.weight_decay"\?'):
        load_params(path)


def test_a_missing_key_section_or_file_is_reported(tmp_path: Path) -> None:
    tree = yaml.safe_load(PARAMS.read_text())
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


def test_every_scheduler_of_transformers_is_accepted() -> None:
    import typing

    from transformers import SchedulerType

    from pipeline.params import TrainParams

    known = typing.get_args(typing.get_type_hints(TrainParams)["lr_scheduler_type"])
    unusable = {"greedy"}  # its smallest learning rate, 1e-3, is too high for fine-tuning
    assert set(known) == {kind.value for kind in SchedulerType} - unusable


def loads_or_is_reported_in_one_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "params.yaml")
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            assert isinstance(load_params(path), Params)
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
            assert str(error).startswith(str(path))


OURS = yaml.safe_load(PARAMS.read_text())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.binary()
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(
    key=st.sampled_from([(section, name) for section, keys in OURS.items() for name in keys] + [("train", "new")]),
    value=TREES,
)
@settings(max_examples=150, deadline=20_000)
def test_any_value_of_any_key_loads_or_is_reported_in_one_line(key: tuple[str, str], value: Any) -> None:
    section, name = key
    tree = {**OURS, section: {**OURS[section], name: value}}
    loads_or_is_reported_in_one_line(yaml.safe_dump(tree, allow_unicode=True))


@given(st.text() | TREES.map(yaml.safe_dump))
@example("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n")  # a small billion-laughs bomb
@example("train: &train\n  extra: *train\n")  # an alias that contains itself
@example("[" * 10_000)
@example("{a: " * 10_000)
@example("a: 1\n" * 20_000)
@example("9" * 5000)
@example(" " * 1_000_000)
@example("!!bool x")
@example("!!python/object/apply:os.system [exit 1]")
@example("\x00")
@example("\ud800")
@example("x" * 99_000 + ": 1")
@settings(max_examples=150, deadline=20_000)
def test_any_file_loads_or_is_reported_in_one_line(text: str) -> None:
    loads_or_is_reported_in_one_line(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {task: mrpc}\ndata: {task: sample}", "the key data is given twice .*line 2"),
        ("data: {task: mrpc}\nmodel: {}\nmodel: {}", "the key model is given twice .*line 3"),
        ("data: !!map [1]", "expected a mapping node, but found sequence in line 1"),
        ("data: &d {task: mrpc}\nmodel: *d", r"\*d is an alias; write the value out"),
        ("true: 2", "the key True is not text; quote it"),
        ("train: {extra: {1.5: 2}}", "the key 1.5 is not text; quote it"),
    ],
)
def test_ambiguous_yaml_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"params\.yaml cannot be read: {message}"):
        load_params(tmp_path / "params.yaml")
