"""Splits made from the train file are exact and deterministic, and no row is lost or in two splits."""

import random
from collections import Counter
from itertools import chain
from typing import Any

import pandas as pd
import pytest
from conftest import data_params
from custom_files import csv, examples, load_error, load_files, rows

from pipeline.sources.corpus import Corpus
from pipeline.sources.folds import take_fold

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

SPLITS = ("train", "validation", "test")


def indices_by_split(corpus: Corpus) -> dict[str, list[int]]:
    return {split: table["idx"].tolist() for split, table in corpus.splits.items()}


def sizes(corpus: Corpus) -> tuple[int, ...]:
    return tuple(map(len, corpus.splits.values()))


def with_column(table: list[tuple[Any, ...]], values: list[Any]) -> dict[str, str | bytes]:
    """Return a train file whose third column repeats the values in turn."""
    rows = [(*row, values[number % len(values)]) for number, row in enumerate(table)]
    return {"train.csv": csv(rows, "text,label,column")}


@pytest.mark.parametrize("split_type", ["stratify", "group", "datetime", "fixed"])
@pytest.mark.parametrize("labels", [["a", "b"], [0.5, 1.5, 2.5], list("abcdefghi")])
def test_every_row_is_in_one_split_and_the_same_rows_give_the_same_splits(split_type: str, labels: list[Any]) -> None:
    values = [*range(97)] if split_type != "fixed" else ["train", "Train", "dev", "TEST"]
    files = with_column(rows(400, labels), values)
    split = {"type": split_type, "column": None if split_type == "stratify" else "column"}
    first = load_files(files, split=split)
    assert sorted(chain.from_iterable(indices_by_split(first).values())) == list(range(400))
    assert all(len(indices) >= 20 for indices in indices_by_split(first).values())
    second = load_files(files, split=split)
    assert all(first.splits[name].equals(second.splits[name]) for name in SPLITS)


def test_stratify_is_exact_and_gives_each_class_its_proportion_in_each_split() -> None:
    files: dict[str, str | bytes] = {"train.csv": csv(rows(210, ["a", "b", "b", "b", "c", "c", "c"]))}
    corpus = load_files(files)
    assert sizes(corpus) == (168, 21, 21)
    for split, fraction in zip(SPLITS, (0.8, 0.1, 0.1), strict=True):
        counts = Counter(corpus.splits[split]["label"])
        assert all(abs(counts[label] - fraction * size) <= 1 for label, size in ((0, 30), (1, 90), (2, 90)))
    assert indices_by_split(load_files(files, split={"seed": 7})) != indices_by_split(corpus)
    corpus = load_files(with_column(rows(200, ["a", "b"]), 100 * ["x"] + 100 * ["y"]), split={"column": "column"})
    assert [sum(index < 100 for index in indices) for indices in indices_by_split(corpus).values()] == [80, 10, 10]


@pytest.mark.parametrize("fractions", [[0.8, 0.1, 0.1], [0.2, 0.4, 0.4], [0.6, 0.4, 0]])
@pytest.mark.parametrize("column", [None, "column"])
def test_stratify_keeps_rows_of_each_rare_class_in_train(fractions: list[float], column: str | None) -> None:
    rare = ["one", *2 * ["two"], *3 * ["three"], *4 * ["four"]]
    table = [*rows(90, ["a", "b"]), *((f"text {number}", label) for number, label in enumerate(rare))]
    for seed in range(3):
        split = {"seed": seed, "fractions": fractions, "column": column}
        corpus = load_files(with_column(table, ["x", "y"]), split=split)
        counts = Counter(corpus.task.labels[label] for label in corpus.splits["train"]["label"])
        assert all(counts[label] >= least for label, least in (("one", 1), ("two", 1), ("three", 2), ("four", 2)))


@pytest.mark.parametrize(
    ("file_rows", "fractions", "expected"),
    [
        ({}, [0.9, 0.1, 0], (180, 20)),
        ({"dev": 10}, [0.8, 0.1, 0.1], (178, 10, 22)),
        ({"dev": 10, "test": 12}, [0.8, 0.1, 0.1], (200, 10, 12)),
        ({"dev": 10}, [0.8, 0.2, 0], (200, 10)),
    ],
)
def test_only_splits_without_a_file_are_created(
    file_rows: dict[str, int], fractions: list[float], expected: tuple[int, ...]
) -> None:
    files = {f"{name}.csv": csv(rows(size, ["a", "b"], 1)) for name, size in file_rows.items()}
    corpus = load_files({"train.csv": csv(rows(200, ["a", "b"])), **files}, split={"fractions": fractions})
    assert sizes(corpus) == expected
    assert corpus.task.splits == list(corpus.splits)


def test_the_rows_of_a_group_stay_together_and_a_large_group_is_in_train() -> None:
    authors = [*range(37), *37 * ["everyone"]]
    files, split = with_column(rows(740, ["a", "b"]), authors), {"type": "group", "column": "column", "fold": "1/2"}
    corpus = load_files(files, split=split, slice_columns=["column"])
    assert sum(corpus.splits[split]["column"].nunique() for split in SPLITS) == 38
    assert "everyone" in set(corpus.splits["train"]["column"])
    assert 50 <= sizes(corpus)[1] <= 100 and 50 <= sizes(corpus)[2] <= 100
    fold = take_fold(corpus, data_params(task="custom", split=split).split).splits
    assert sum(table["column"].nunique() for table in fold.values()) == pd.concat(fold.values())["column"].nunique()


def test_pairs_that_are_linked_by_shared_texts_stay_together() -> None:
    texts = [text for text, _ in rows(600, ["a"])]
    chains = [
        (texts[number], texts[number + 1] if number % 3 < 2 else texts[number - 1].upper(), "ab"[number % 2])
        for number in range(599)
    ]
    files: dict[str, str | bytes] = {"train.csv": csv(chains, "one,other,label")}
    corpus = load_files(files, split={"type": "group"}, text_column_names=["one", "other"])
    split_by_row = {row: split for split, indices in indices_by_split(corpus).items() for row in indices}
    assert all(split_by_row[number] == split_by_row[number + 1] for number in range(0, 598, 3))
    assert min(sizes(corpus)) > 20
    train, validation, test = (
        {row[name].lower() for row in examples(corpus, split) for name in ("one", "other")} for split in SPLITS
    )
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)


TIMES = {
    "numbers": ["-30", "-3", "0", "7.5", "1e2", "998", "2024", "1704412800.5"],
    "dates and times": [
        "2020", "2021-01", "2021-01-01T06:00:00+05:00", "2021-01-01T02:00Z", "2021-01-01 03:00", "2021-01-02",
        "20210103", "2021-01-03T10",
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", TIMES)
def test_a_datetime_split_puts_the_latest_rows_into_test(form: str, caplog: pytest.LogCaptureFixture) -> None:
    order = random.Random(form).sample(range(8), 8)
    table = [(*row, TIMES[form][number]) for number, row in zip(order, rows(8, ["a", "b"]), strict=True)]
    files: dict[str, str | bytes] = {"train.csv": csv(table, "text,label,column")}
    split = {"type": "datetime", "column": "column", "fractions": [0.5, 0.25, 0.25]}
    times = {
        split: {order[row] for row in indices}
        for split, indices in indices_by_split(load_files(files, split=split)).items()
    }
    assert times == {"train": {0, 1, 2, 3}, "validation": {4, 5}, "test": {6, 7}}
    assert any(message.startswith("times: train from ") for message in caplog.messages)


def test_a_column_can_name_the_split_of_each_row() -> None:
    files = with_column([("", "a"), *rows(79, ["a", "b", "b"])], ["train", "train", "dev", " Test"])
    corpus = load_files(files, split={"type": "fixed", "column": "column"}, on_missing="drop")
    indices = indices_by_split(corpus)
    assert len(indices["train"]) == 39, "the row without a text is dropped, and does not shift the column"
    assert (indices["validation"], indices["test"]) == ([*range(2, 80, 4)], [*range(3, 80, 4)])


FEW = rows(40, ["a", "b"])
PLAIN = csv(FEW)
REJECTED: dict[str, tuple[dict[str, str | bytes], dict[str, Any], list[str]]] = {
    "no validation": ({"train.csv": PLAIN, "test.csv": PLAIN}, {"type": "fixed"}, ["validation", "data.split.type"]),
    "a fraction of 0": ({"train.csv": PLAIN}, {"fractions": [0.9, 0, 0.1]}, ["validation", "data.split.fractions"]),
    "a sum above 1": ({}, {"fractions": [0.8, 0.2, 0.2]}, ["data.split.fractions", "[0.8, 0.2, 0.2]"]),
    "no time": ({}, {"type": "datetime"}, ["data.split.column", "null"]),
    "an unknown column": ({"train.csv": PLAIN}, {"column": "user"}, ["train.csv", '"user"']),
    "another date": (with_column(FEW, ["3/4/2024"]), {"type": "datetime"}, ["train.csv line 2", "'3/4/2024'"]),
    "a number among dates": (with_column(FEW, ["2024-01-01", "17.5"]), {"type": "datetime"}, ["line 3", "'17.5'"]),
    "no split": (with_column(FEW, ["train", "x"]), {"type": "fixed"}, ["train.csv line 3", "'x'", "validation"]),
    "no group": (with_column(FEW, ["x", " "]), {"type": "group"}, ["train.csv line 3", "''"]),
    "two sources": ({**with_column(FEW, ["train", "dev"]), "dev.csv": PLAIN}, {"type": "fixed"}, ["also has a file"]),
}  # fmt: skip


@pytest.mark.parametrize("fault", REJECTED)
def test_an_impossible_split_is_rejected_in_one_line(fault: str) -> None:
    files, split, words = REJECTED[fault]
    column = "column" if ",column\n" in str(files.get("train.csv")) else None
    message = load_error(files, split={"column": column, **split})
    assert all(word in message for word in words), message
