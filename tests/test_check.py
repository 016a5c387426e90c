"""The check stage rejects bad parameters before any output is removed."""

import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import TinyMaker, edit, params_file

from pipeline.check import check, main
from pipeline.core import packages
from pipeline.core.messages import UserError
from pipeline.core.packages import REPORT_PACKAGES, locked, require_locked
from pipeline.core.paths import CHECKED
from pipeline.params import PARAMS, Params, parse_params


@pytest.fixture
def valid_params(params: Params, tiny: TinyMaker) -> Params:
    return changed(params, "model", checkpoint=str(tiny()))


def changed(params: Params, section: str, **values: Any) -> Params:
    return parse_params({**params.model_dump(), section: {**getattr(params, section).model_dump(), **values}})


@pytest.fixture
def project(tiny: TinyMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with a params.yaml, a dvc.yaml and the scores of a previous model."""
    monkeypatch.chdir(tmp_path)
    params_file(tmp_path, {"data.task": "demo", "model.checkpoint": tiny()})
    outputs = {"metrics": [{"scores.json": {"cache": False}}], "plots": ["roc.csv"]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"evaluate": outputs}}))
    for name in ("scores.json", "roc.csv"):
        (tmp_path / name).touch()
    return tmp_path


def test_check_removes_the_previous_scores_and_its_output_does_not_depend_on_the_values(project: Path) -> None:
    main()
    first = CHECKED.read_bytes()
    assert not Path("scores.json").exists() and not Path("roc.csv").exists()
    edit(PARAMS, "train.lr", "1.0")
    edit(PARAMS, "train.training_args", "{label_smoothing_factor: 1, include_for_metrics: [loss]}")
    main()
    assert CHECKED.read_bytes() == first


def test_other_files_of_a_local_base_model_change_the_output(project: Path) -> None:
    """Otherwise, DVC would restore a copy of the old files, if it has one for the same path in its run cache."""
    shutil.copytree(yaml.safe_load(PARAMS.read_text())["model"]["checkpoint"], "mine")
    edit(PARAMS, "model.checkpoint", "./mine")
    outputs = []
    for file in ("config.json", "notes.txt"):
        main()
        outputs.append(CHECKED.read_bytes())
        with Path("mine", file).open("a") as changed_file:
            changed_file.write("\n")
    main()
    first, after_config, after_notes = *outputs, CHECKED.read_bytes()
    assert first != after_config == after_notes


def test_a_bad_value_keeps_the_scores_of_the_previous_model(project: Path) -> None:
    edit(PARAMS, "train.training_args", "{label_smoothing_factor: fast}")
    with pytest.raises(UserError) as error:
        main()
    assert str(error.value) == (
        "params.yaml: train.training_args.label_smoothing_factor must be a number of at least 0 and at most 1, "
        'got "fast".'
    )
    assert Path("scores.json").exists() and not CHECKED.exists()


def test_a_missing_dvc_yaml_is_reported_in_one_line(project: Path) -> None:
    Path("dvc.yaml").unlink()
    with pytest.raises(UserError, match=r"^dvc\.yaml is missing\. "):
        main()
    assert not CHECKED.exists()


@pytest.mark.parametrize(("lock", "package"), [("compute.lock", "accelerate"), ("requirements.lock", "altair")])
def test_a_package_whose_version_is_not_the_locked_one_is_rejected(
    lock: str, package: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "version", lambda name: "1.14.0" if name == package else version(name))
    with pytest.raises(UserError, match=rf"^{re.escape(lock)}: .*: {package} 1\.14\.0 \(locked: .*make setup"):
        main()
    assert Path("scores.json").exists() and not CHECKED.exists()


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("train", {"metric_for_best_model": "acuracy"}, r'got "acuracy"\. Did you mean "accuracy"'),
        ("train", {"optim": "adam"}, r'train\.optim .*got "adam"\. Did you mean "adamw_torch"'),
        ("runtime", {"report_to": "tensorbord"}, r'runtime\.report_to .*"tensorbord"\. Did you mean "tensorboard"'),
        (
            "train",
            {"training_args": {"label_smoothing": 0.1}},
            r'train\.training_args .*got "label_smoothing"\. Did you mean "label_smoothing_factor"\?',
        ),
        ("train", {"training_args": {"zzz": 1}}, r'one of .* and \d+ more, got "zzz"\.$'),
        ("train", {"training_args": {"output_dir": "x"}}, r'"output_dir", because the pipeline controls it'),
        ("train", {"training_args": {"learning_rate": 1}}, r'"learning_rate", because train\.lr sets it'),
        ("runtime", {"report_to": "clearml"}, r"runtime\.report_to is clearml, which is not installed"),
        ("train", {"training_args": {"include_for_metrics": "loss"}}, r"must be a list of strings, got \"loss\""),
        ("runtime", {"report_to": "dvclive"}, r"runtime\.report_to must not be dvclive"),
        ("train", {"precision": "fp16"}, r"train\.precision .*must be auto, (bf16|fp32) or .*, got fp16"),
        ("model", {"checkpoint": "gpt2"}, r'model\.checkpoint is "gpt2", .*NAME@'),
    ],
)
def test_bad_params_are_rejected(valid_params: Params, section: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        check(changed(valid_params, section, **values))
    assert str(error.value).startswith("params.yaml: ")


def test_changed_keys_that_the_task_ignores_are_named(valid_params: Params, caplog: pytest.LogCaptureFixture) -> None:
    check(valid_params)
    assert caplog.text == ""
    split = {**valid_params.data.split.model_dump(), "seed": 1, "fold": "1/5", "fractions": [0.6, 0.2, 0.2]}
    check(changed(valid_params, "data", directory="data/mine", encoding="cp1252", split=split))
    assert "demo, which ignores data.directory, data.encoding, data.split.fractions. Set data" in caplog.text


@pytest.mark.parametrize("encoding", ["rot13", "base64", "utf-99"])
def test_an_encoding_that_is_not_one_of_texts_is_rejected(valid_params: Params, encoding: str) -> None:
    check(changed(valid_params, "data", encoding="latin-1"))
    with pytest.raises(UserError, match=rf'^"{encoding}" is not a text encoding .* Set data\.encoding .*\.$'):
        check(changed(valid_params, "data", encoding=encoding))


def test_a_metric_that_does_not_fit_the_task_is_rejected(valid_params: Params) -> None:
    mrpc = changed(changed(valid_params, "data", task="mrpc"), "train", metric_for_best_model="pearson")
    with pytest.raises(
        UserError, match=r'^params\.yaml: train\.metric_for_best_model .* one of loss, acc.*, got "pearson"'
    ):
        check(mrpc)
    check(changed(mrpc, "data", task="stsb"))
    for task in ("mrpc", "demo", "custom"):
        misspelled = changed(changed(valid_params, "data", task=task), "evaluate", metrics=["roc_auc", "f1_marco"])
        with pytest.raises(
            UserError, match=r'^params\.yaml: evaluate\.metrics .*, got "f1_marco"\. Did you mean "f1_macro"\?$'
        ):
            check(misspelled)


def test_precision_is_not_checked_if_other_machines_train(valid_params: Params) -> None:
    on_other_machines = changed(
        changed(valid_params, "train", precision="fp16"), "runtime", launcher="srun torchrun --nnodes 2 -m"
    )
    check(on_other_machines)


def test_a_lock_file_may_spell_a_name_in_any_way(tmp_path: Path) -> None:
    """pip freeze, pip-compile and uv write the same package as Jinja2 or jinja2."""
    lines = [f"{name}=={version(name)}\n" for name in ("Altair", "jinja2", "vl_convert.Python")]
    (tmp_path / "requirements.lock").write_text("".join(lines))
    require_locked(tmp_path / "requirements.lock", REPORT_PACKAGES)
    assert locked(tmp_path / "requirements.lock").keys() == {*REPORT_PACKAGES}
