"""What download writes and shows: incomplete rows, duplicates, leakage, the label table, and when it runs again."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import Project, data_params
from custom_files import csv, download_custom, jsonl, load_error, parquet_file, read_split, rows, write_files

from pipeline.core.task import read_task
from pipeline.download import download
from pipeline.sources.data_card import label_table, read_data_card
from pipeline.sources.duplicates import hash_rows

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

FIXED = {"type": "fixed"}
TEXTS = rows(40, ["good", "bad"])
PAIR = {"text_column_names": ["one", "other"]}


def warnings(raw: Path) -> str:
    return "\n".join(read_data_card(raw).warnings)


def table_cells(raw: Path) -> dict[str, list[str]]:
    """Return the rows of the label table by their first cell."""
    return {first: cells for first, *cells in label_table(read_task(raw), read_data_card(raw))}


def test_pairs_and_slices_are_stored_as_texts() -> None:
    columns = {
        "question": pa.array(["one", "two", "three"] * 20).dictionary_encode(),
        "answer": pa.array(range(60)),
        "verdict": pa.array([1.0, 0.0, None] * 20),
        "source": pa.array(["web", None, "book"] * 20, pa.large_string()),
    }
    names = {"text_column_names": ["question", "answer"], "label_column_name": "verdict", "slice_columns": ["source"]}
    raw = download_custom({"train.parquet": parquet_file(pa.table(columns))}, **names, on_missing="drop")
    examples = {row["idx"]: row for part in ("train", "validation", "test") for row in read_split(raw, part)}
    assert list(read_split(raw, "test")[0]) == ["question", "answer", "label", "idx", "source", "leakage"]
    assert sorted(examples) == [number for number in range(60) if number % 3 < 2]
    row = {"question": "two", "answer": "1", "label": 0, "idx": 1, "source": ""}
    assert examples[1].items() >= row.items()
    assert read_task(raw).slice_columns == ["source"]


def test_rows_without_a_text_or_a_label_are_an_error_or_dropped_with_their_labels_counted() -> None:
    incomplete = [("", "good"), (" ", "bad"), ("a", ""), (" ", "bad")]
    files = {"train.csv": csv([*TEXTS, *incomplete]), "dev.csv": csv([*TEXTS[:5], ("b", "")])}
    message = load_error(files)
    for words in ("train has rows without a text: 3 of 44 (6.8%), idx 40, 41, 43", "label: 1 of 44", "on_missing=drop"):
        assert words in message
    raw = download_custom(files, on_missing="drop", split=FIXED)
    assert [row["idx"] for row in read_split(raw, "train")] == list(range(40))
    assert re.search("^train: dropped .*: 3 of 44 .* 1 of 44 .*labels: 'bad' 2, 'good' 1$", warnings(raw), re.M)
    assert re.search(r"^validation: dropped rows without a label: 1 of 6 \(16.7%\), idx 5$", warnings(raw), re.M)


def test_a_split_that_would_have_no_row_or_a_single_one_is_rejected() -> None:
    assigned = [*((*row, "train") for row in TEXTS), ("a", "bad", "dev"), ("c", "bad", "dev"), ("b", "", "test")]
    for lines in (assigned, [*assigned, ("d", "bad", "test")]):
        files = {"train.csv": csv(lines, "text,label,part")}
        message = load_error(files, on_missing="drop", split={**FIXED, "column": "part"})
        assert "test would have fewer than 2 rows" in message
    files = {"train.csv": csv(TEXTS), "dev.csv": csv(TEXTS)}
    assert "train would have fewer than 2 rows" in load_error(files, on_leakage="drop", split=FIXED)


def test_a_pair_may_have_one_empty_text_which_is_counted_but_connects_nothing() -> None:
    train = [("a", "", 0), ("", "b", 1), ("c", "", 0), ("", "", 0), ("d", "e", 1)]
    dev = [("f", "", 1), ("", "a", 0)]
    files = {"train.csv": csv(train, "one,other,label"), "dev.csv": csv(dev, "one,other,label")}
    assert "rows without a text: 1 of 5 (20.0%), idx 3" in load_error(files, **PAIR, split=FIXED)
    raw = download_custom(files, **PAIR, split=FIXED, on_missing="drop")
    card = read_data_card(raw)
    assert [(part.rows, part.half_empty, part.repeated) for part in card.splits.values()] == [(4, 3, 0), (2, 2, 0)]
    assert [(leak.rows, leak.texts) for leak in card.leakage] == [(1, 1)], "only a and nothing, in another order"
    assert "train has pairs with an empty text: 3 of 4 (75.0%), idx 0, 1, 2" in warnings(raw)


def test_a_test_file_without_labels_is_predicted_but_not_scored(caplog: pytest.LogCaptureFixture) -> None:
    raw = download_custom({"train.csv": csv(TEXTS), "test.csv": csv([(text,) for text, _ in TEXTS[:4]], "text")})
    task = read_task(raw)
    assert (task.predicted_splits, task.unlabeled_splits) == (["validation", "test"], ["test"])
    assert list(read_split(raw, "test")[0]) == ["text", "idx", "leakage"]
    assert [table_cells(raw)[name][2] for name in ("rows", "'good'", "'bad'")] == ["4", "?", "?"]
    assert any("verdicts use validation" in message for message in caplog.messages)


def test_duplicates_leakage_and_contradictions_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    train = [("It fell.", "He rose.", 1), ("x y", "z", 0), ("he  ROSE", "it fell", 0), ("He rose!", "It fell", 1)]
    dev = [("It rose", "He came", 1), ("It fell", "He went", 0), ("He rose", "It fell", 1), ("1.5", "...", 0)]
    parts = {"train": train, "dev": dev, "test": [*dev[:1], ("IT FELL", "he went", 1)]}
    files = {f"{name}.csv": csv(table, "one,other,label") for name, table in parts.items()}
    raw = download_custom(files, **PAIR)
    card = read_data_card(raw)
    counts = card.splits["train"]
    assert (counts.rows, counts.repeated, counts.contradictory) == (4, 2, 2)
    assert {(leak.later, leak.earlier): (leak.rows, leak.texts, leak.contradictory) for leak in card.leakage} == {
        ("validation", "train"): (1, 2, 1), ("test", "train"): (0, 1, 0), ("test", "validation"): (2, 2, 1),
    }  # fmt: skip
    assert [row["leakage"] for row in read_split(raw, "validation")] == [0, 1, 2, 0]
    assert re.search(r"^train has rows that duplicate .*: 2 of 4 \(50\.0%\), idx 2, 3$", warnings(raw), re.M)
    assert "share a text with train: 2 of 4" in warnings(raw)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == card.warnings


@pytest.mark.parametrize(
    ("train", "dev", "contradictory"),
    [
        ([0.5, 2.5], [("fog", 1.25), ("Fog!", 0.5)], 1),
        ([["a"], ["b", "a"]], [("fog", ["a", "b"]), ("Fog.", ["a"])], 1),
        (["a", "b"], [("fog", "b"), ("FOG", "a"), ("f o g", "b")], 1),
    ],
)
def test_labels_of_every_type_can_contradict(train: list[Any], dev: list[tuple[str, Any]], contradictory: int) -> None:
    files = {"train.jsonl": jsonl([("Fog.", train[0]), *rows(60, train)]), "dev.jsonl": jsonl(dev)}
    [leak] = read_data_card(download_custom(files, split=FIXED)).leakage
    assert (leak.rows, leak.contradictory) == (2, contradictory)


def test_texts_with_different_emoji_are_different() -> None:
    texts = ["Great 😍", "great😍", "Great 😡", "Great!", "great", "?!", "!"]
    hashes = hash_rows(pd.DataFrame({"text": texts}), ["text"])["row"]
    assert pd.factorize(hashes)[0].tolist() == [0, 1, 2, 3, 3, 4, 5]


def test_leaked_rows_are_kept_dropped_or_an_error() -> None:
    files = {"train.csv": csv(TEXTS), "dev.csv": csv(TEXTS[5:7]), "test.csv": csv(TEXTS[6:9])}
    assert re.search(r"4 of 40 \(10.0%\), idx 5, 6, 7, 8\b.*on_leakage=drop", load_error(files, on_leakage="error"))
    assert len(read_split(download_custom(files), "train")) == 40
    raw = download_custom(files, on_leakage="drop")
    assert [row["idx"] for row in read_split(raw, "train")] == [*range(5), *range(9, 40)]
    assert (len(read_split(raw, "validation")), len(read_split(raw, "test"))) == (2, 3)
    assert [leak.rows for leak in read_data_card(raw).leakage if leak.earlier == "train"] == [0, 0]
    assert re.search(r"^train: dropped rows that are also in validation or test: 4 of 40", warnings(raw), re.M)


def test_the_label_table_counts_every_label_of_every_split() -> None:
    labels = ["good"] * 4 + ["bad"] * 3 + ["Good"]
    files = {"train.csv": csv(rows(400, labels)), "dev.csv": csv([(30 * "é", "bad"), ("x", "good")])}
    raw = download_custom(files, split=FIXED)
    longest = max(len(text) for text, _ in rows(400, labels))
    assert table_cells(raw) == {
        "": ["train", "validation"], "rows": ["400", "2"], "longest text": [str(longest), "30"],
        "'good'": ["200 (50.0%)", "1 (50.0%)"], "'bad'": ["150 (37.5%)", "1 (50.0%)"],
        "'Good'": ["50 (12.5%)", "0 (0.0%)"],
    }  # fmt: skip
    assert list(table_cells(raw))[3:] == ["'good'", "'bad'", "'Good'"], "the most frequent first"
    assert "'Good', 'good'" in warnings(raw)


def test_the_label_table_has_the_20_most_frequent_and_the_20_rarest_of_many_labels() -> None:
    labels = [f"c{number}" for number in range(45) for _ in range(1 + (number < 30) + 9 * (number < 20))]
    files = {"train.csv": csv(rows(3 * len(labels), labels)), "dev.csv": csv(rows(9, labels))}
    names = [name.strip("'") for name in table_cells(download_custom(files))][3:]
    assert {*names[:20]} == {f"c{number}" for number in range(20)}
    assert {*names[-15:]} == {f"c{number}" for number in range(30, 45)}
    assert len(names) == 41 and "5 more labels" in names[20]


def test_the_table_of_a_regression_has_the_statistics_of_pandas() -> None:
    files = {"train.csv": csv(rows(60, [0.25, 1.5, 3])), "dev.csv": csv([("x", 2), ("y", 2)])}
    cells = table_cells(download_custom(files, split=FIXED))
    names = ["mean", "std", "min", "max"]
    statistics = pd.Series(20 * [0.25, 1.5, 3]).agg(names)
    assert [float(cells[name][0]) for name in names] == pytest.approx(statistics.tolist(), rel=1e-3)
    assert [cells[name][1] for name in names] == ["2", "0", "2", "2"]


def test_the_log_shows_the_first_rows_and_the_label_table(caplog: pytest.LogCaptureFixture) -> None:
    download_custom({"train.csv": csv([("\u200bodd", "a\tb"), *TEXTS])})
    log = "\n".join(caplog.messages)
    assert re.search(r"'\\u200bodd' -> 'a\\tb'", log)
    assert re.search(r"^'bad' +\d+ \(\d+\.\d%\) +\d+ \(\d+\.\d%\) +\d+ \(\d+\.\d%\)$", log, re.M)
    assert re.search(r"fewer than 50 rows for 3 of 3 labels .*'a\\tb' \(first idx 0\), 'bad' .*, 'good' ", log)


def test_mrpcs_known_leakage_is_found(mrpc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRPC_MIRROR", str(mrpc))
    write_files({})
    download(Path("data/raw"), data_params(task="mrpc"))
    leaks = {(leak.later, leak.earlier): leak for leak in read_data_card(Path("data/raw")).leakage}
    validation, test = leaks["validation", "train"], leaks["test", "train"]
    assert (validation.rows, validation.texts, test.rows, test.texts) == (1, 43, 9, 252)
    flags = np.array([row["leakage"] for row in read_split(Path("data/raw"), "test")])
    assert (int((flags > 0).sum()), int((flags == 2).sum())) == (252, 9)


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
