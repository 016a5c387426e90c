"""Custom data: the inferred type of task, the warnings before training, and when download runs again."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Project, contents, data_params
from custom_files import csv, download_custom, jsonl, load_files, read_json, read_split, rows

from pipeline.core.data_card import read_data_card
from pipeline.core.messages import UserError
from pipeline.core.task import read_task
from pipeline.download import download
from pipeline.sources.duplicates import hash_rows

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")


CLASSES, SEVERAL, NUMBERS = "single_label_classification", "multi_label_classification", "regression"

INFERRED: dict[str, tuple[dict[str, str | bytes], dict[str, Any], tuple[str, list[str], list[str]]]] = {
    "words": ({"train.csv": csv(rows(60, ["no", "yes"]))}, {}, (CLASSES, ["no", "yes"], ["accuracy", "f1"])),
    "few integers": (
        {"train.csv": csv(rows(60, [10, 9, -1]))},
        {},
        (CLASSES, ["-1", "9", "10"], ["accuracy", "f1_macro"]),
    ),
    "booleans": ({"train.jsonl": jsonl(rows(60, [True, False]))}, {}, (CLASSES, ["False", "True"], ["accuracy"])),
    "many integers": (
        {"train.csv": csv(rows(60, list(range(21))))},
        {},
        (NUMBERS, [], ["pearson", "spearmanr", "rmse"]),
    ),
    "floats": (
        {"train.csv": csv(rows(60, ["1.5", "-2e3", ".5"]))},
        {},
        (NUMBERS, [], ["pearson", "spearmanr", "rmse"]),
    ),
    "whole numbers that pandas writes as floats": (
        {"train.csv": csv(rows(60, ["1.0", "2.0"]))},
        {},
        (CLASSES, ["1", "2"], ["accuracy"]),
    ),
    "codes with leading zeros": (
        {"train.csv": csv(rows(60, ["10", "007"]))},
        {},
        (CLASSES, ["007", "10"], ["accuracy"]),
    ),
    "long numbers that floats cannot distinguish": (
        {"train.jsonl": jsonl(rows(60, [2**53 + 1, 2**53]))},
        {},
        (CLASSES, ["9007199254740992", "9007199254740993"], ["accuracy"]),
    ),
    "floats that are classes": (
        {"train.csv": csv(rows(60, ["1.5", "2.5"]))},
        {"problem_type": CLASSES},
        (CLASSES, ["1.5", "2.5"], ["accuracy"]),
    ),
    "integers that are numbers": (
        {"train.csv": csv(rows(60, [1, 2]))},
        {"problem_type": NUMBERS},
        (NUMBERS, [], ["pearson"]),
    ),
    "lists": ({"train.jsonl": jsonl(rows(60, [["b", "a"], [], ["c"]]))}, {}, (SEVERAL, ["a", "b", "c"], ["f1_micro"])),
    "vertical bars": ({"train.csv": csv(rows(60, ["b|a", "c"]))}, {}, (SEVERAL, ["a", "b", "c"], ["f1_micro"])),
    "semicolons": ({"train.csv": csv(rows(60, ["b; a", "c"]))}, {}, (SEVERAL, ["a", "b", "c"], ["f1_micro"])),
    "a trailing separator": (
        {"train.csv": csv([*rows(60, ["spam", "ham"]), ("more", "spam;")])},
        {},
        (SEVERAL, ["ham", "spam"], ["f1_micro"]),
    ),
    "commas": (
        {"train.csv": csv(rows(60, ['"b,a"', "c"]))},
        {"problem_type": SEVERAL},
        (SEVERAL, ["a", "b", "c"], ["f1_micro"]),
    ),
    "commas in names": ({"train.csv": csv(rows(60, ['"b,a"', "c"]))}, {}, (CLASSES, ["b,a", "c"], ["accuracy"])),
    "named classes": (
        {"train.csv": csv(rows(60, [1, 0]))},
        {"id2label": {"1": "good", "0": "bad"}},
        (CLASSES, ["good", "bad"], ["accuracy"]),
    ),
    "named classes that pandas writes as floats": (
        {"train.csv": csv(rows(60, ["1.0", "0.0"])), "dev.csv": csv(rows(9, [1, 0], 1))},
        {"id2label": {"1": "good", "0.0": "bad"}},
        (CLASSES, ["good", "bad"], ["accuracy"]),
    ),
    "words and numbers listed in id2label": (
        {"train.csv": csv(rows(60, ["1", "x"]))},
        {"id2label": {"x": "X", "1": "one"}},
        (CLASSES, ["X", "one"], ["accuracy"]),
    ),
}


@pytest.mark.parametrize("case", INFERRED)
def test_the_problem_type_is_inferred_and_logged(case: str, caplog: pytest.LogCaptureFixture) -> None:
    files, changes, (problem_type, labels, metrics) = INFERRED[case]
    task = load_files(files, **changes).task
    assert (task.problem_type, task.labels, task.metrics[: len(metrics)]) == (problem_type, labels, metrics)
    messages = [
        message
        for message in caplog.messages
        if message.startswith(f'Inferred problem_type {problem_type}: column "label" has ')
    ]
    assert len(messages) == ("problem_type" not in changes)
    assert all("Set data.problem_type" in message for message in messages)


@pytest.mark.parametrize(
    ("labels", "warns"), [(["spam", "ham"] * 30 + ["spam;"], True), (["spam", "ham", "spam;"] * 30, False)]
)
def test_few_lists_among_single_labels_are_a_warning(
    labels: list[str], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    load_files({"train.csv": csv([(f"text {number}", label) for number, label in enumerate(labels)])})
    assert ('"label" has a list of labels in only 1 of 61 rows (1.6%)' in caplog.text) == warns


@pytest.mark.parametrize(
    ("train", "dev", "expected"),
    [
        ([["b", "a"], [], ["c"]], [["c"]], [0, 0, 1]),
        ([0.5, 2.5], [7], 7.0),
        (["b", "a"], ["b"], 1),
    ],
)
def test_labels_are_stored_by_problem_type(train: list[Any], dev: list[Any], expected: Any) -> None:
    raw = download_custom({"train.jsonl": jsonl(rows(60, train)), "dev.jsonl": jsonl(rows(3, dev, 1))})
    assert [row["label"] for row in read_split(raw, "validation")] == [expected] * 3
    features = json.loads(pq.read_schema(raw / "validation.parquet").metadata[b"huggingface"])["info"]["features"]
    assert features["label"].get("names") == (["a", "b"] if expected == 1 else None)


def test_a_parquet_file_can_have_pairs_slice_columns_and_other_types() -> None:
    columns = {
        "question": pa.array(["one", "two", "three"] * 20).dictionary_encode(),
        "answer": pa.array(range(60)),
        "verdict": pa.array([1.0, 0.0, None] * 20),
        "source": pa.array(["web", None, "book"] * 20, pa.large_string()),
    }
    Path("data/custom").mkdir(parents=True)
    pq.write_table(pa.table(columns), "data/custom/train.parquet")
    names = {"text_column_names": ["question", "answer"], "label_column_name": "verdict", "slice_columns": ["source"]}
    raw = download_custom({}, **names, problem_type=CLASSES, on_missing="drop")
    examples = sorted(
        (row for split in ("train", "validation", "test") for row in read_split(raw, split)), key=lambda row: row["idx"]
    )
    assert list(read_split(raw, "train")[0]) == ["question", "answer", "label", "idx", "source", "sample_group"]
    assert list(read_split(raw, "test")[0]) == ["question", "answer", "label", "idx", "source", "leakage"]
    assert [row["idx"] for row in examples] == [number for number in range(60) if number % 3 < 2]
    assert {key: examples[1][key] for key in ("question", "answer", "label", "source")} == {
        "question": "two", "answer": "1", "label": 0, "source": "",
    }  # fmt: skip
    assert read_json(raw, "task")["slice_columns"] == ["source"]


TEXTS = rows(40, ["good", "bad"])
INVALID: dict[str, tuple[dict[str, str | bytes], dict[str, Any], str]] = {
    "a number among words": (
        {"train.csv": csv([*TEXTS, ("a", 3)])},
        {},
        r"train\.csv line 42: \"label\" is '3', .*data\.id2label",
    ),
    "a word in another split": (
        {"train.csv": csv(rows(40, [0, 1])), "dev.csv": csv([("a", "x")])},
        {},
        r"dev\.csv line 2: \"label\" is 'x', a word among labels that are numbers\. .*id2label",
    ),
    "words in train and numbers in another split": (
        {"train.csv": csv(TEXTS), "dev.csv": csv(rows(10, [0, 1], 1))},
        {},
        r"dev\.csv line 2: \"label\" is '0', a number among labels that are words\. Write the labels of all splits",
    ),
    "a label that id2label does not list": (
        {"train.csv": csv(TEXTS)},
        {"id2label": {"good": "Good", "bat": "Bad"}},
        r"line 3: \"label\" is 'bad', .*data\.id2label only has the labels good, bat\. .*add it",
    ),
    "too many classes": (
        {"train.csv": csv(rows(2_000, [f"c{number}" for number in range(2_000)]))},
        {},
        r"data\.label_column_name: .label. has 2,000 distinct labels in 2,000 rows.*Name the column",
    ),
    "one row per class": (
        {"train.csv": csv(rows(30, [f"c{number}" for number in range(30)]))},
        {},
        r"label. has 30 distinct labels in 30 rows, which is too many",
    ),
    "one class": (
        {"train.csv": csv(rows(30, ["x"]))},
        {},
        r"data\.label_column_name: .*\"label\" is always 'x' in train\. Set it to a different",
    ),
    "one class in two spellings": (
        {"train.csv": csv(rows(30, ["1", "1.0"]))},
        {},
        r"data\.label_column_name: .*\"label\" is always '1' in train\. Set it to a different",
    ),
    "lists without a label": (
        {"train.jsonl": jsonl(rows(30, [[]]))},
        {},
        r"data\.label_column_name: .*\"label\" is always empty in train\. Set it to a different",
    ),
    "a list of objects": (
        {"train.jsonl": jsonl(rows(30, [[{"a": 1}], ["b"]]))},
        {},
        r"line 1: \"label\" is \[\{'a': 1\}\]\. A label must be a string or a number\. Export the data in a flat",
    ),
    "a lone surrogate": (
        {"train.jsonl": jsonl(rows(30, ["b\ud83d", "c"]))},
        {},
        r"line 1: \"label\" is 'b\\ud83d', which is not valid Unicode\. Correct it",
    ),
    "NaN": (
        {"train.csv": csv(rows(30, ["1.5", "2.5", "nan"]))},
        {},
        r"train\.csv line 4: \"label\" is 'nan', a word among labels that are numbers\. If 'nan' means .*=drop",
    ),
    "NaN among classes": (
        {"train.csv": csv(rows(30, ["0", "1", "nan"]))},
        {"problem_type": CLASSES},
        r"line 4: \"label\" is 'nan', a word among labels that are numbers",
    ),
    "NaN in JSON, which counts as missing": (
        {"train.jsonl": jsonl([*TEXTS, (float("nan"), "good"), ("a", float("nan"))])},
        {},
        r"^train has rows without a text .*: 1 of 42 \(2\.4%\), idx 40, .* label: 1 of 42 \(2\.4%\), idx 41",
    ),
    "targets whose squares overflow": (
        {"train.csv": csv(rows(30, ["1.5", "2.5", "-1e308"]))},
        {},
        r"line 4: \"label\" is '-1e308', .*from -1e\+15 to 1e\+15",
    ),
    "a word instead of a number": (
        {"train.csv": csv(rows(30, ["1.5", "2.5", "good"]))},
        {"problem_type": NUMBERS},
        r"line 4: \"label\" is 'good', .*finite",
    ),
    "id2label for a regression": (
        {"train.csv": csv(rows(30, ["1.5", "2.5"]))},
        {"problem_type": NUMBERS, "id2label": {"a": "A", "b": "B"}},
        r"data\.id2label .*null",
    ),
    "a list instead of a class": (
        {"train.jsonl": jsonl(rows(30, [["a", "b"], ["b"]]))},
        {"problem_type": CLASSES},
        r"line 1: \"label\" is \['a', 'b'\]\. .*multi_label",
    ),
    "no text columns": (
        {"train.csv": csv(TEXTS)},
        {"text_column_names": []},
        r"data\.text_column_names must name one .* \[\]",
    ),
    "a column twice": (
        {"train.csv": csv(TEXTS)},
        {"text_column_names": ["text", "text"]},
        r'must not name a column twice.*"text"',
    ),
    "a label twice in id2label": (
        {"train.csv": csv(rows(40, [0, 1]))},
        {"id2label": {"0": "no", "1": "yes", "1.0": "maybe"}},
        r"params\.yaml: data\.id2label has a label twice.*, got 0, 1, 1\.0\. Keep only one",
    ),
    "a class twice": (
        {"train.csv": csv(TEXTS)},
        {"id2label": {"good": "x", "bad": "x"}},
        r"data\.id2label .*all differ",
    ),
    "missing texts and labels": (
        {"train.csv": csv([*TEXTS, ("", "good"), (" ", "bad"), ("a", "")])},
        {},
        r"^train has rows without a text .*: 2 of 43 \(4\.7%\), idx 40, 41, .* label: 1 .* 42\. .*missing=drop",
    ),
    "leakage": (
        {"train.csv": csv(TEXTS), "dev.csv": csv(TEXTS[5:7])},
        {"on_leakage": "error", "split": {"type": "fixed"}},
        r"^train has rows that are also in validation or test: 2 of 40 .*, idx 5, 6\. Remove.*on_leakage=drop",
    ),
}


@pytest.mark.parametrize("fault", INVALID)
def test_invalid_data_is_reported_in_one_line(fault: str) -> None:
    files, changes, message = INVALID[fault]
    with pytest.raises(UserError, match=message):
        download_custom(files, **changes)
    assert not Path("data/raw").exists()


def warnings(raw: Path) -> str:
    return "\n".join(read_data_card(raw).warnings)


def test_incomplete_rows_are_dropped_if_on_missing_is_drop() -> None:
    files = {"train.csv": csv([("", "good"), *TEXTS]), "dev.csv": csv([*TEXTS[:5], ("a", "")])}
    corpus = load_files(files, on_missing="drop", split={"type": "fixed"})
    assert corpus.splits["train"]["idx"].tolist() == list(range(1, 41))
    assert 'train: dropped rows without a text in "text": 1 of 41 (2.4%), idx 0' in corpus.warnings
    assert "validation: dropped rows without a label: 1 of 6 (16.7%), idx 5" in corpus.warnings


def test_a_test_file_without_labels_is_predicted_but_not_scored(caplog: pytest.LogCaptureFixture) -> None:
    empty_labels = csv([(text, "") for text, _ in TEXTS[:4]])
    assert load_files({"train.csv": csv(TEXTS), "test.csv": empty_labels}).task.unlabeled_splits == ["test"]
    raw = download_custom({"test.csv": csv([(text,) for text, _ in TEXTS[:4]], "text")})
    task = read_task(raw, "download")
    assert (task.predicted_splits, task.unlabeled_splits, task.verdict_split) == (
        ["validation", "test"],
        ["test"],
        "validation",
    )
    assert list(read_split(raw, "test")[0]) == ["text", "idx", "leakage"]
    assert read_data_card(raw).splits["test"].labels == []
    [reason] = [message for message in caplog.messages if "test has no labels, so verdicts use validation" in message]
    assert "If train.keep is best" in reason


def test_duplicates_and_leakage_are_counted_and_the_log_has_the_warnings_of_the_data_card(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train = [
        ("It fell.", "He rose.", 1),
        ("x y", "z", 0),
        ("he  ROSE", "it fell", 0),
        ("He rose!", "It fell", 1),
        ("a", "A!", 1),
    ]
    dev = [
        ("It rose", "He came", 1),
        ("It fell", "He went", 0),
        ("He rose", "It fell", 1),
        ("1.5", "...", 0),
        ("15", "!", 0),
    ]
    files = {
        "train.csv": csv(train, "one,other,label"),
        "dev.csv": csv(dev, "one,other,label"),
        "test.csv": csv(dev[:2], "one,other,label"),
    }
    raw = download_custom(files, text_column_names=["one", "other"])
    card = read_data_card(raw)
    counts = card.splits["train"]
    assert (counts.rows, counts.repeated, counts.contradictory) == (5, 2, 2)
    leaks = {(leak.later, leak.earlier): (leak.rows, leak.texts) for leak in card.leakage}
    assert leaks == {("validation", "train"): (1, 2), ("test", "train"): (0, 1), ("test", "validation"): (2, 2)}
    assert [row["leakage"] for row in read_split(raw, "validation")] == [0, 1, 2, 0, 0]
    assert [row["sample_group"] for row in read_split(raw, "train")] == [0, 1, 0, 0, 2]
    assert "train has rows that duplicate an earlier row: 2 of 5 (40.0%), idx 2, 3" in card.warnings
    assert "validation has rows that share a text with train: 2 of 5 (40.0%), idx 1, 2" in card.warnings
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == card.warnings


def test_texts_with_different_emoji_are_different() -> None:
    texts = ["Great 😍", "great😍", "Great 😡", "Great!", "Great™", "great"]
    hashes = hash_rows(pd.DataFrame({"text": texts}), ["text"])["row"]
    assert pd.factorize(hashes)[0].tolist() == [0, 0, 1, 2, 2, 2]


def test_a_text_with_a_different_label_in_another_split_is_a_contradiction(caplog: pytest.LogCaptureFixture) -> None:
    train = [*TEXTS, ("The sky is blue.", "good"), ("It rains.", "good"), ("It snows.", "good"), ("It snows.", "bad")]
    dev = [("the sky IS blue", "bad"), ("It rains!", "good"), ("Fog.", "good"), ("It snows.", "good")]
    test = [("Fog.", "bad"), ("the sky is blue", "good"), ("Hail.", "bad")]
    raw = download_custom(
        {"train.csv": csv(train), "dev.csv": csv(dev), "test.csv": csv(test)}, split={"type": "fixed"}
    )
    card = read_data_card(raw)
    assert {(leak.later, leak.earlier): leak.contradictory for leak in card.leakage} == {
        ("validation", "train"): 2, ("test", "train"): 0, ("test", "validation"): 2,
    }  # fmt: skip
    contradictions = [line for line in caplog.messages if "a different label" in line and "earlier row" not in line]
    assert contradictions == [line for line in card.warnings if line in contradictions]
    assert [re.findall(r"validation|test|train|idx [\d, ]+", line) for line in contradictions] == [
        ["validation", "train", "idx 0, 3"], ["test", "validation", "idx 0, 1"],
    ]  # fmt: skip


def test_regression_and_multi_label_rows_can_contradict_but_unlabeled_rows_cannot() -> None:
    files = {
        "train.jsonl": jsonl([*rows(60, [0.5, 2.5]), ("Fog.", 1.5)]),
        "dev.jsonl": jsonl([("fog", 1.25), ("x", 2)]),
    }
    card = read_data_card(download_custom({**files, "test.csv": csv([("Fog.",), ("y",)], "text")}))
    assert {leak.later: leak.contradictory for leak in card.leakage if leak.earlier == "train"} == {
        "validation": 1, "test": 0,
    }  # fmt: skip
    files = {"train.jsonl": jsonl([*rows(60, [["a"], ["b", "a"]]), ("Fog.", ["a"])])}
    card = read_data_card(download_custom({**files, "dev.jsonl": jsonl([("fog", ["a", "b"]), ("Fog.", ["a"])])}))
    assert card.leakage[0].contradictory == 1


@pytest.mark.parametrize(
    ("files", "changes", "message"),
    [
        (
            {"train.csv": csv(TEXTS), "dev.csv": csv(TEXTS)},
            {"on_leakage": "drop", "split": {"type": "fixed"}},
            r"^train would have no rows\. .*data\.on_missing and data\.on_leakage",
        ),
        (
            {"train.csv": csv([("", label) for _, label in TEXTS])},
            {"on_missing": "drop", "split": {"type": "random"}},
            r'^train: dropped rows without a text in "text": 40 of 40',
        ),
        (  # All rows that train has left are in validation.
            {"train.csv": csv([(*row, "dev") for row in [*TEXTS, ("", "pos")]], "text,label,part")},
            {"on_missing": "drop", "split": {"type": "fixed", "column": "part"}},
            r"^train would have no rows\.",
        ),
        (
            {
                "train.csv": csv(
                    [*((*row, "train") for row in TEXTS), ("a", "bad", "dev"), ("b", "", "test")], "text,label,part"
                )
            },
            {"on_missing": "drop", "split": {"type": "fixed", "column": "part"}},
            r'^test would have no rows, because all rows that "part" assigns to it were dropped\. If test rows have no',
        ),
    ],
)
def test_a_split_that_would_be_empty_is_rejected(
    files: dict[str, str | bytes], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        download_custom(files, **changes)


def test_leaked_rows_are_dropped_from_train_if_on_leakage_is_drop() -> None:
    files = {"train.csv": csv(TEXTS), "dev.csv": csv(TEXTS[5:7]), "test.csv": csv(TEXTS[6:9])}
    raw = download_custom(files, on_leakage="drop")
    assert [row["idx"] for row in read_split(raw, "train")] == [
        number for number in range(40) if number not in range(5, 9)
    ]
    assert (len(read_split(raw, "validation")), len(read_split(raw, "test"))) == (2, 3)
    card = read_data_card(raw)
    assert card.splits["train"].rows == 36
    assert [leak.rows for leak in card.leakage if leak.earlier == "train"] == [0, 0]
    assert "train: dropped rows that are also in validation or test: 4 of 40 (10.0%), idx 5, 6, 7, 8" in card.warnings


def test_classes_that_are_missing_or_rare_in_train_are_reported() -> None:
    files = {"train.csv": csv(rows(120, ["a", "a", "b"])), "dev.csv": csv([*rows(3, ["a"], 1), ("x", "new")])}
    raw = download_custom(files, split={"type": "fixed"})
    assert read_json(raw, "task")["labels"] == ["a", "b", "new"]
    assert "validation has rows with a label that train does not have ('new'): 1 of 4 (25.0%), idx 3" in warnings(raw)
    rare = r"train has fewer than 50 rows for 2 of 3 labels \(66\.7%\).*: 'b' \(40, 33\.3%\), 'new' \(0, 0\.0%\)$"
    assert re.search(rare, warnings(raw), re.M)


def test_mrpcs_known_leakage_is_found(mrpc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRPC_MIRROR", str(mrpc))
    download(Path("data/raw"), data_params(task="mrpc"))
    leaks = {(leak.later, leak.earlier): leak for leak in read_data_card(Path("data/raw")).leakage}
    validation, test = leaks["validation", "train"], leaks["test", "train"]
    assert (validation.rows, validation.texts, test.rows, test.texts) == (0, 43, 7, 252)
    leakage_flags = [
        np.array([row["leakage"] for row in read_split(Path("data/raw"), split)]) for split in ("validation", "test")
    ]
    assert [(int((flags > 0).sum()), int((flags == 2).sum())) for flags in leakage_flags] == [(43, 0), (252, 7)]


def test_the_same_files_give_the_same_output() -> None:
    files = {"train.csv": csv(TEXTS)}
    first = contents(download_custom(files))
    assert contents(download_custom({})) == first
    assert re.fullmatch(r"[0-9a-f]{64}", json.loads(first["source.json"])["sha256"]["train.csv"])


@pytest.mark.slow
def test_an_edited_file_reruns_download(project: Project) -> None:
    file = project.root / "data" / "custom" / "train.csv"
    file.write_text(csv(TEXTS))
    project.set("data.task", "custom")
    assert project.repro("download") == ["check", "download"]
    with file.open("a") as stream:
        stream.write("one more,good\n")
    assert project.repro("download") == ["download"]
    assert read_data_card(project.root / "data/raw").splits["train"].rows == 33


@pytest.mark.parametrize("placeholder", ["nan", "NaN", "NA", "NULL", "\\N", "#NAME?", "#VALUE!", "#REF!"])
def test_a_text_that_may_be_missing_is_a_warning(placeholder: str) -> None:
    table = rows(60, ["good", "bad"])
    table[3] = (f" {placeholder}", "bad")
    [warning] = load_files({"train.csv": csv(table), "test.csv": csv([(placeholder, "bad")])}).warnings
    place = "data/custom/train.csv line 5"
    assert warning.startswith(f'"text" is {placeholder!r} in 2 of 61 rows (3.3%), first in {place}. ')
    assert "leave these fields empty" in warning
    table[3] = ("Not a NULL", "bad")
    assert not load_files({"train.csv": csv(table), "test.csv": csv([("None", "bad")])}).warnings


@pytest.mark.parametrize("text", ["Früh", "Straße", "it\u2019s good"])
def test_texts_that_were_decoded_with_a_wrong_encoding_are_a_warning(text: str) -> None:
    table = rows(60, ["good", "bad"])
    for position in (3, 8):
        table[position] = (f"{text} {position}", "bad")
    assert not load_files({"train.csv": csv(table)}).warnings
    for position in (3, 8):
        table[position] = (f"{text} {position}".encode().decode("cp1252", "ignore"), "bad")
    [warning] = load_files({"train.csv": csv(table)}).warnings
    assert "in 2 of 60 rows (3.3%), first in data/custom/train.csv line 5." in warning and "UTF-8" in warning


def test_many_rows_that_are_also_in_train_come_with_a_remedy() -> None:
    table = rows(200, ["good", "bad"])
    for repeats, has_remedy in ((60, True), (6, False)):
        files = {"train.csv": csv([*table, *table[:repeats]])}
        leaks = [
            line for line in warnings(download_custom(files)).splitlines() if "rows that are also in train" in line
        ]
        assert leaks
        assert any("data.split.type=group" in leak and "data.on_leakage=drop" in leak for leak in leaks) == has_remedy
    files = {"train.csv": csv([*table, *table[:60]])}
    for changes in ({"split": {"type": "group"}}, {"on_leakage": "drop"}):
        assert "rows that are also in train" not in warnings(download_custom(files, **changes))
