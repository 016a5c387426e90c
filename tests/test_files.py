"""The user's files become splits by their names, and every mistake in them is reported in one line."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from custom_files import csv, examples, jsonl, load_error, load_files, parquet, rows

from pipeline.core.messages import UserError
from pipeline.sources.files import find_files

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

FEW = rows(40, ["good", "bad"])
CSV = csv(FEW)
FIXED = {"type": "fixed"}


@pytest.mark.parametrize("name", ["validation", "valid", "Val", "DEV", "eval"])
def test_the_name_of_a_file_determines_its_split(name: str) -> None:
    files = {"train.csv": CSV, f"{name}.jsonl": jsonl(rows(6, ["good", "bad"], 1)), "test.tsv": CSV.replace(",", "\t")}
    corpus = load_files({**files, ".hidden.csv": "x", "train.csv.dvc": "outs: []"})
    assert {split: len(table) for split, table in corpus.splits.items()} == {"train": 40, "validation": 6, "test": 40}


def test_shards_form_one_split_with_a_consecutive_idx() -> None:
    shards = {f"train-{shard:05}-of-00003.parquet": parquet(FEW[10 * shard : 10 * shard + 10]) for shard in range(3)}
    corpus = load_files({**shards, "dev.csv": CSV}, split=FIXED)
    assert [(row["idx"], row["text"]) for row in examples(corpus, "train")] == [
        (number, FEW[number][0]) for number in range(30)
    ]
    assert corpus.splits["train"].index[10] == "data/custom/train-00001-of-00003.parquet row 0"
    assert len(corpus.origin["sha256"]) == 4
    Path("data/custom/train-00001-of-00003.parquet").unlink()
    message = load_error({})
    assert "all of its shards" in message and "train-00000-of-00003.parquet, train-00002-of-00003.parquet" in message
    assert "all of its shards" in load_error({"train.csv": CSV}), "a file that is not a shard does not replace one"


def test_shards_must_have_the_same_columns() -> None:
    plain, more = CSV, csv([(*row, "x") for row in FEW], "text,label,source")
    message = load_error({"train-00000-of-00002.csv": more, "train-00001-of-00002.csv": plain})
    assert 'has no column "source"' in message


BAD_FILES: dict[str, tuple[dict[str, str | bytes], list[str]]] = {
    "a missing column": ({"train.csv": csv(FEW, "text,lable")}, ["train.csv", '"label"', 'mean "lable"']),
    "two files for a split": ({"train.csv": CSV, "train.tsv": CSV}, ["data/custom", "train.csv, train.tsv"]),
    "a shard in two formats": ({"train-00000-of-00002.csv": CSV, "train-00000-of-00002.tsv": CSV}, ["shards"]),
    "two names of a split": ({"train.csv": CSV, "dev.csv": CSV, "val.csv": CSV}, ["dev.csv, val.csv"]),
    "no train file": ({"my.csv": CSV}, ["data.directory", "train.csv", "It has: my.csv"]),
    "a directory for each label": ({"pos/1.txt": "Great", "neg/1.txt": "Awful"}, ["train.csv", "It has: neg, pos"]),
    "no directory": ({}, ["data.directory", "does not exist"]),
    "only a header": ({"train.csv": CSV, "test.csv": "text,label\n"}, ["test.csv has no rows"]),
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_bad_file_is_reported_in_one_line(fault: str) -> None:
    files, words = BAD_FILES[fault]
    message = load_error(files)
    assert all(word in message for word in words), message


def test_an_experiment_in_a_copy_of_the_repository_has_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With only the tracked train.csv, such an experiment would make its validation split from train."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "repository"))
    custom = tmp_path / "repository/data/custom"
    custom.mkdir(parents=True)
    for name in ("train.csv", "train.csv.dvc", ".DS_Store"):
        (custom / name).write_text(CSV)
    load_files({"train.csv": CSV})
    (custom / "dev.csv").write_text(CSV)
    with pytest.raises(UserError, match=r"^data/custom/dev\.csv is not tracked.*dvc add data/custom/dev\.csv"):
        load_files({"train.csv": CSV})


def test_the_settings_of_params_yaml_reach_every_file() -> None:
    content = "".join(f"{text} é;{label},x\n" for text, label in FEW).encode("cp1252")
    shards = {f"Train-{number:05}-of-00002.CSV.gz": gzip.compress(content) for number in range(2)}
    columns = {"text_column_names": ["column_1"], "label_column_name": "column_2"}
    settings = {"encoding": "cp1252", "header": False, "delimiter": ";", **columns}
    corpus = load_files({**shards, "dev.csv": content}, **settings, split=FIXED)
    assert corpus.splits["train"]["column_1"].tolist() == [f"{text} é" for text, _ in FEW] * 2
    assert (len(corpus.splits["validation"]), corpus.task.labels) == (40, ["bad,x", "good,x"])


DROPPINGS = [".DS_Store", "Thumbs.db", ".~lock.train.csv#", "train.csv~", ".train.csv.swp"]


def test_what_systems_and_editors_leave_behind_is_not_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_files({"train.csv": CSV, "my_test.csv": "x", **dict.fromkeys(DROPPINGS, "\0")})
    assert find_files(Path("data/custom")) == {"train": [Path("data/custom/train.csv")]}
    ignored, *_ = [message for message in caplog.messages if "ignored" in message]
    assert "my_test.csv" in ignored and not any(name in ignored for name in DROPPINGS)
    shutil.copy(ROOT / ".dvcignore", tmp_path)
    subprocess.run(["dvc", "init", "--quiet", "--no-scm"], check=True)
    paths = [f"data/custom/{name}" for name in DROPPINGS]
    command = ["dvc", "check-ignore", *paths, "data/custom/train.csv"]
    assert subprocess.check_output(command, text=True).splitlines() == paths, "DVC would run the stage again"
