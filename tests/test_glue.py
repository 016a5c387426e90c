"""GLUE tasks are read from a mirror or from the Hub, and every damaged file is reported in one line."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import data_params
from custom_files import parquet_file
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.core.task import read_task
from pipeline.download import download
from pipeline.sources import glue_rows
from pipeline.sources.glue import GLUE, HUB_REPO, HUB_REVISION, glue_task
from pipeline.sources.glue_rows import load_glue

REAL = {  # rows per split; rows of train per label, or the mean label; entries of the first row of train
    "rte": (
        (2490, 277, 3000), [1249, 1241],
        {"sentence1": "No Weapons of Mass Destruction Found in Iraq Yet.", "label": 1, "idx": 0},
    ),
    "cola": (
        (8551, 1043, 1063), [2528, 6023],
        {"sentence": "Our friends won't buy this analysis, let alone the next one we propose.", "label": 1, "idx": 0},
    ),
    "stsb": ((5749, 1500, 1379), 2.701, {"sentence1": "A plane is taking off.", "label": 5.0, "idx": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_a_task_from_its_archive_has_the_published_rows(
    name: str, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GLUE_MIRROR", str(glue))
    download(tmp_path, data_params(task=name))
    rows, labels, first = REAL[name]
    task = read_task(tmp_path)
    tables = {split: pq.read_table(tmp_path / f"{split}.parquet") for split in task.splits}
    assert tuple(map(len, tables.values())) == rows
    train_labels = tables["train"]["label"].to_pylist()
    if task.labels:
        assert [train_labels.count(number) for number in range(len(task.labels))] == labels
    else:
        assert sum(train_labels) / len(train_labels) == pytest.approx(labels, abs=5e-4)
        assert min(train_labels) == 0 and max(train_labels) == 5
        assert 2.4 in train_labels, "labels must not be rounded to 32 bits, which gives 2.4000000953674316"
    assert tables["train"].slice(0, 1).to_pylist()[0].items() >= first.items()
    assert tables["validation"]["idx"].to_pylist() == list(range(rows[1]))
    assert "label" not in tables["test"].column_names and task.unlabeled_splits == ["test"]
    assert not [message for message in caplog.messages if "checksum" in message]


def test_an_altered_archive_file_is_rejected(glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(glue / "RTE", tmp_path / "RTE", copy_function=shutil.copyfile)
    tmp_path.chmod(0o700), (tmp_path / "RTE").chmod(0o700)
    text = (tmp_path / "RTE" / "dev.tsv").read_text()
    (tmp_path / "RTE" / "dev.tsv").write_text(text.replace("Dana", "Diana"))
    monkeypatch.setenv("GLUE_MIRROR", str(tmp_path))
    with pytest.raises(UserError, match=r"^\S*RTE/dev\.tsv is not the published file: .*\. Replace it\.$"):
        load_glue(data_params(task="rte"))


SMALL_SIZES = (3, 2, 2, 2, 2)  # rows per split
SMALL_TASKS = {name: dataclasses.replace(entry, rows=SMALL_SIZES[: len(entry.rows)]) for name, entry in GLUE.items()}


@pytest.fixture
def small_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty mirror, limit every task to a few rows, and turn off the checksums of the archives."""
    for name, entry in SMALL_TASKS.items():
        monkeypatch.setitem(GLUE, name, entry)
    monkeypatch.setattr(glue_rows, "ARCHIVE_SHA256", {})
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    monkeypatch.setenv("GLUE_MIRROR", str(mirror))
    return mirror


# The columns in each task's archive, the name of the label column, and some labels.
PAIR = ["sentence1", "sentence2"]
COLUMNS = {
    "cola": (["source", "label", "star", "sentence"], "label", ["0", "1"]),
    "sst2": (["sentence", "label"], "label", ["0", "1"]),
    "qqp": (["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], "is_duplicate", ["0", "1"]),
    "stsb": (["index", "genre", *PAIR, "score"], "score", ["0.000", "2.4", "5"]),
    "mnli": (["index", *PAIR, "label1", "gold_label"], "gold_label", ["entailment", "neutral", "contradiction"]),
    "qnli": (["index", "question", "sentence", "label"], "label", ["entailment", "not_entailment"]),
    "rte": (["index", *PAIR, "label"], "label", ["entailment", "not_entailment"]),
    "wnli": (["index", *PAIR, "label"], "label", ["0", "1"]),
}
TEXT = 'a "quoted text, \u2028 not two \x85 lines, of {} {}'


def write_archive(mirror: Path, name: str) -> Path:
    columns, label, labels = COLUMNS[name]
    folder = mirror / SMALL_TASKS[name].folder
    folder.mkdir()
    for split, rows in zip(glue_task(name).splits, SMALL_SIZES, strict=False):
        hidden = split.startswith("test")
        names = ["index", *(SMALL_TASKS[name].columns or columns)] if hidden else columns
        names = [column for column in dict.fromkeys(names) if not hidden or column not in (label, "source", "star")]
        lines = [] if name == "cola" and not hidden else ["\t".join(names)]
        for row in range(rows):
            values = {column: TEXT.format(row, column) for column in names} | {label: labels[row % len(labels)]}
            lines.append("\t".join(values[column] for column in names))
        file = published_name(name, split).replace("validation", "dev")
        (folder / f"{file}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return folder


def published_name(name: str, split: str) -> str:
    return f"{split}_matched" if name == "mnli" and split in ("validation", "test") else split


@pytest.mark.parametrize("name", COLUMNS)
def test_every_task_is_read_from_its_archive_layout(
    name: str, small_mirror: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_archive(small_mirror, name)
    corpus, labels = load_glue(data_params(task=name)), COLUMNS[name][2]
    numbers = {label: number for number, label in enumerate(corpus.task.labels)}
    for split, size in zip(corpus.task.splits, SMALL_SIZES, strict=False):
        columns = corpus.splits[split].to_dict("list")
        assert columns.pop("idx") == list(range(size))
        expected = [labels[row % len(labels)] for row in range(size)]
        split_labels = [numbers[label] if label in numbers else float(label) for label in expected]
        assert columns.pop("label", None) == (None if split.startswith("test") else split_labels)
        assert list(columns) == corpus.task.text_columns
        names = (SMALL_TASKS[name].columns or corpus.task.text_columns)[: len(columns)]
        assert list(columns.values()) == [[TEXT.format(row, column) for row in range(size)] for column in names]
    assert [message for message in caplog.messages if "its checksum is not known" in message]


def test_labels_have_the_same_order_as_on_the_hub() -> None:
    """The order decides what 0 and 1 in a file mean, and which class is positive."""
    assert {name: glue_task(name).labels for name in GLUE} == {
        "cola": ["unacceptable", "acceptable"], "sst2": ["negative", "positive"],
        "mrpc": ["not_equivalent", "equivalent"], "qqp": ["not_duplicate", "duplicate"], "stsb": [],
        "mnli": ["entailment", "neutral", "contradiction"], "qnli": ["entailment", "not_entailment"],
        "rte": ["entailment", "not_entailment"], "wnli": ["not_entailment", "entailment"],
    }  # fmt: skip


def test_mnli_is_scored_on_the_matched_and_mismatched_splits() -> None:
    task = glue_task("mnli")
    assert task.predicted_splits == ["validation", "test", "validation_mismatched", "test_mismatched"]
    assert task.scored_splits == ["validation", "validation_mismatched"]
    assert task.verdict_split == "validation"
    assert glue_task("mrpc").scored_splits == ["validation", "test"]


@pytest.mark.parametrize(
    ("name", "file", "damage", "message"),
    [
        ("wnli", "dev.tsv", lambda text: None, r"WNLI/dev\.tsv is missing"),
        ("wnli", "train.tsv", lambda text: text[:-2] + b"2\n", "GLUE_MIRROR: train has the label '2', .* or 0 or 1"),
        ("stsb", "train.tsv", lambda text: text[:-2] + b"5.1\n", r"train has the label '5\.1', .* from 0 to 5"),
        ("wnli", "train.tsv", lambda text: text[: text[:-1].rindex(b"\n")], "MIRROR: train must have 3 rows, got 2"),
        ("wnli", "dev.tsv", lambda text: text[:-1] + b"\t1\n", r"dev\.tsv is not .*Expected 4 fields in line 3, saw 5"),
        ("wnli", "dev.tsv", lambda text: text.replace(b"lines", b"\xff\xfe"), r"dev\.tsv is not .*can't decode byte"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_reported_in_one_line(
    name: str, file: str, damage: Callable[[bytes], bytes | None], message: str, small_mirror: Path, tmp_path: Path
) -> None:
    path = write_archive(small_mirror, name) / file
    text = damage(path.read_bytes())
    path.unlink() if text is None else path.write_bytes(text)
    with pytest.raises(UserError, match=rf"{message}.*\. (Restore it|Replace it|Replace its files)\.$"):
        download(tmp_path / "raw", data_params(task=name))
    assert not (tmp_path / "raw").exists()


def test_a_task_without_a_source_is_reported_in_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GLUE_MIRROR", str(tmp_path))
    with pytest.raises(UserError, match=r"^nyu-mll/glue: qnli/train.* docs/choose_a_base_model\.md#without-the-hub\.$"):
        load_glue(data_params(task="qnli"))
    assert "GLUE_MIRROR has no directory QNLI" in caplog.text


def hub_files() -> dict[str, bytes]:
    """Return GLUE as on the Hub: labels are numbers, hidden labels are -1, and the labels of STS-B have 32 bits."""
    files = {}
    for name in COLUMNS:
        task = glue_task(name)
        for split, size in zip(task.splits, SMALL_SIZES, strict=False):
            labels = [-1.0] * size if split.startswith("test") else [0.0, 1.0, 2.4 if name == "stsb" else 1.0][:size]
            columns: dict[str, Any] = {name: [f"{name} {row}" for row in range(size)] for name in task.text_columns}
            columns["label"] = pa.array(labels, pa.float32() if name == "stsb" else pa.int64())
            columns["idx"] = pa.array(range(size), pa.int32())
            file = f"{name}/{published_name(name, split)}-00000-of-00001.parquet"
            files[f"datasets/{HUB_REPO}/{HUB_REVISION}/{file}"] = parquet_file(pa.table(columns))
    return files


def test_every_task_is_read_from_the_hub(
    tmp_path: Path, small_mirror: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLUE_MIRROR")
    hub.files = hub_files()
    for name in COLUMNS:
        corpus = load_glue(data_params(task=name))
        task = corpus.task
        assert [len(rows) for rows in corpus.splits.values()] == [*SMALL_SIZES[: len(task.splits)]]
        assert corpus.splits["train"]["label"].tolist() == [0, 1, 2.4 if name == "stsb" else 1]
        assert corpus.splits["train"][task.text_columns[-1]].iloc[1] == f"{task.text_columns[-1]} 1"
        assert [split for split, rows in corpus.splits.items() if "label" not in rows] == task.unlabeled_splits
    monkeypatch.setitem(GLUE, "rte", dataclasses.replace(GLUE["rte"], rows=(4, 2, 2)))
    with pytest.raises(UserError, match=r"^the Hub \(nyu-mll/glue\): train must have 4 rows, got 3\."):
        load_glue(data_params(task="rte"))
