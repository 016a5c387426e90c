"""Labels are read as they are written, and what would have to be guessed is an error in one line."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from custom_files import csv, examples, jsonl, load_error, load_files, parquet, rows
from datasets import ClassLabel, Dataset

from pipeline.sources.corpus import Corpus

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

CLASSES, SEVERAL, NUMBERS = "single_label_classification", "multi_label_classification", "regression"
FIXED = {"type": "fixed"}


def labels_by_row(corpus: Corpus) -> list[Any]:
    """Return the labels of all splits in the order of the user's file."""
    table = [row for split in corpus.splits for row in examples(corpus, split)]
    return [row["label"] for row in sorted(table, key=lambda row: row["idx"])]


READ: dict[str, tuple[list[Any], dict[str, Any], tuple[str, list[str], list[Any]]]] = {
    "words": (["yes", " no "], {}, (CLASSES, ["no", "yes"], [1, 0])),
    "at most 20 whole numbers": ([10, 9, -1], {}, (CLASSES, ["-1", "9", "10"], [2, 1, 0])),
    "1 and 1.0 are one class": (["1", "1.0", 0, 0.0], {}, (CLASSES, ["0", "1"], [1, 1, 0, 0])),
    "1 and 01 are two classes": (["01", "1", "2"], {}, (CLASSES, ["01", "1", "2"], [0, 1, 2])),
    "codes": ([f"{n:03}" for n in range(30)], {}, (CLASSES, [f"{n:03}" for n in range(30)], [*range(30)])),
    "a cell is one label": (["a|b", "a,b", "['a']"], {}, (CLASSES, ["['a']", "a,b", "a|b"], [2, 1, 0])),
    "numbers that are not whole": (["1.5", "-2e3", ".5", 7], {}, (NUMBERS, [], [1.5, -2000, 0.5, 7])),
    "whole numbers on a scale": ([1, 2], {"problem_type": NUMBERS}, (NUMBERS, [], [1, 2])),
    "names": ([1, 0], {"id2label": {"1": "good", "0.0": "bad"}}, (CLASSES, ["good", "bad"], [0, 1])),
    "pairs of a label and a name": (["a", "b"], {"id2label": ["b=B", "a=A"]}, (CLASSES, ["B", "A"], [1, 0])),
    "lists": ([["b", "a"], [], ["c", None]], {}, (SEVERAL, ["a", "b", "c"], [[1, 1, 0], [0, 0, 0], [0, 0, 1]])),
    "a separator": (
        ["b; a", "c;", "", None], {"label_separator": ";"},
        (SEVERAL, ["a", "b", "c"], [[1, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]),
    ),
    "vectors": ([[1, 0, 1], [0, 0, 0]], {}, (SEVERAL, ["0", "1", "2"], [[1, 0, 1], [0, 0, 0]])),
    "vectors of floats and names": (
        [[1.0, 0.0], [0.0, 1.0]], {"id2label": ["0=rude", "1=spam"]}, (SEVERAL, ["rude", "spam"], [[1, 0], [0, 1]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_the_problem_type_is_inferred_and_labels_are_encoded(case: str, caplog: pytest.LogCaptureFixture) -> None:
    labels, changes, (problem_type, names, encoded) = READ[case]
    corpus = load_files({"train.jsonl": jsonl(rows(60, labels))}, **changes)
    assert (corpus.task.problem_type, corpus.task.labels) == (problem_type, names)
    assert labels_by_row(corpus)[: len(encoded)] == encoded
    inferred = [message for message in caplog.messages if message.startswith(f"Inferred problem_type {problem_type}")]
    assert len(inferred) == ("problem_type" not in changes)


def test_more_than_20_whole_numbers_need_a_problem_type() -> None:
    files: dict[str, str | bytes] = {"train.csv": csv(rows(84, list(range(21))))}
    message = load_error(files)
    assert all(word in message for word in ("21 distinct", "data.problem_type", NUMBERS, CLASSES))
    assert load_files(files, problem_type=NUMBERS).task.labels == []
    assert load_files(files, problem_type=CLASSES).task.labels == [str(number) for number in range(21)]
    assert len(load_files({"train.csv": csv(rows(84, list(range(20))))}).task.labels) == 20


REJECTED: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "one class": (["1", "1.0"], {}, ["data.label_column_name", '"label" is always \'1\'']),
    "a class for each row": ([f"c{n}" for n in range(30)], {}, ["30 different labels", "30 rows", "regression"]),
    "a word among numbers": ([0.5, "good"], {"problem_type": NUMBERS}, ["line 2", "'good'", "numbers"]),
    "a number that overflows": ([0.5, "-1e308"], {}, ["line 2", "'-1e308'", "1e+15"]),
    "a label without a name": (["a", "b"], {"id2label": ["a=A", "c=C"]}, ["line 2", "'b'", "data.id2label", "a, c"]),
    "a label with two names": ([1, 0], {"id2label": ["1=A", "1.0=B", "0=C"]}, ["data.id2label", "'1', '1.0', '0'"]),
    "a list among classes": (["a", ["b"]], {"problem_type": CLASSES}, ["line 2", "['b']", "data.problem_type"]),
    "a class among lists": ([["a"], "b"], {}, ["line 2", "'b'", "list of labels"]),
    "a label twice": ([["a"], ["b", "b"]], {}, ["line 2", "['b', 'b']", "twice"]),
    "half a surrogate pair": (["a\ud83d", "b"], {}, ["line 1", r"'a\ud83d'", "surrogate"]),
    "rows without a label": (["a", "", "b"], {}, ["rows without a label: 10 of 30 (33.3%), idx 1, 4, 7", "on_missing"]),
}  # fmt: skip


@pytest.mark.parametrize("fault", REJECTED)
def test_labels_that_do_not_fit_are_an_error_with_their_place(fault: str) -> None:
    labels, changes, words = REJECTED[fault]
    message = load_error({"train.jsonl": jsonl(rows(30, labels))}, **changes)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("train", "label"),
    [
        (["yes", "no"], "Yes"), ([0, 1], -1), (["a", "b"], ["a"]), ([["a"], ["a", "b"]], ["c"]),
        ([[1, 0, 1], [0, 0, 1]], [1, 0]), ([0.5, 1.5], "0,5"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_label_that_train_does_not_have_is_an_error_with_its_place(split: str, train: list[Any], label: Any) -> None:
    files = {"train.jsonl": jsonl(rows(30, train)), f"{split}.jsonl": jsonl([*rows(4, train, 1), ("text", label)])}
    message = load_error(files, split=FIXED if split == "dev" else {})
    assert message.startswith(f"data/custom/{split}.jsonl line 5: ") and "Correct it" in message


HEADER = "text,toxic,insult"
COLUMNS = {"label_column_name": ["toxic", "insult"]}
CELLS = [(0, 1), (1, 1), (0, 0)]


def columns_csv(cells: list[tuple[Any, ...]], count: int = 60, seed: int = 0) -> str:
    return csv([(text, *values) for text, values in rows(count, cells, seed)], HEADER)


@pytest.mark.parametrize("values", [("0", "1"), ("0.0", "1.0"), ("False", "TRUE")])
def test_each_of_several_columns_of_0_and_1_is_a_label(values: tuple[str, str]) -> None:
    corpus = load_files({"train.csv": columns_csv([tuple(values[cell] for cell in row) for row in CELLS])}, **COLUMNS)
    assert (corpus.task.problem_type, corpus.task.labels) == (SEVERAL, ["toxic", "insult"])
    assert labels_by_row(corpus) == [list(row) for row in CELLS] * 20
    corpus = load_files({}, **COLUMNS, id2label={"insult": "Insult", "toxic": "Toxic"})
    assert (corpus.task.labels, labels_by_row(corpus)[0]) == (["Insult", "Toxic"], [1, 0])


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train.csv": columns_csv([*CELLS, (0, 2)])}, ["train.csv line 5", "'2'", "toxic, insult"]),
        ({"train.csv": columns_csv([*CELLS, ("", 1)])}, ["rows without a label: 15 of 60", "idx 3, 7"]),
        ({"train.csv": columns_csv(CELLS), "test.csv": "text,toxic\nx,1\n"}, ["test.csv", 'no column "insult"']),
    ],
)
def test_every_cell_of_the_label_columns_must_be_0_or_1(files: dict[str, str | bytes], words: list[str]) -> None:
    message = load_error(files, **COLUMNS)
    assert all(word in message for word in words), message


UNLABELED: dict[str, tuple[list[Any], list[Any], dict[str, Any]]] = {
    "-1 among classes": ([0, 1], [-1], {}),
    "empty": ([0, 1], [None], {}),
    "empty, and -1 is a target": ([-1, 0.5], [None], {}),
    "vectors": ([[1, 0], [1, 1]], [[-1, -1]], {}),
    "a separator": (["a;b", "a"], [""], {"label_separator": ";"}),
}


@pytest.mark.parametrize("case", UNLABELED)
def test_a_test_split_whose_labels_are_all_minus_one_or_empty_has_no_labels(case: str) -> None:
    train, test, changes = UNLABELED[case]
    files = {"train.jsonl": jsonl(rows(60, train)), "test.jsonl": jsonl(rows(10, test, 1))}
    corpus = load_files(files, **changes)
    assert (corpus.task.unlabeled_splits, corpus.task.verdict_split) == (["test"], "validation")
    assert list(corpus.splits["test"]) == ["text", "idx"] and "-1" not in corpus.task.labels
    assert load_files({"test.jsonl": '{"text": "x"}'}, **changes).task.unlabeled_splits == ["test"], "without a column"


def test_label_columns_of_minus_one_are_unknown_and_label_columns_of_0_are_not() -> None:
    files = {"train.csv": columns_csv(CELLS), "test.csv": columns_csv([(-1, -1)], 9, 1)}
    assert load_files(files, **COLUMNS).task.unlabeled_splits == ["test"]
    files["test.csv"] = columns_csv([(0, 0)], 9, 1)
    assert load_files(files, **COLUMNS).splits["test"]["label"].tolist() == [[0, 0]] * 9
    files["test.csv"] = columns_csv([(1, 0), (-1, -1)], 9, 1)
    assert "test.csv line 3" in load_error(files, **COLUMNS)


@pytest.mark.parametrize(
    ("train", "test", "changes", "expected"),
    [
        ([-1, 0, 1], [-1, 1], {}, [0, 2]),
        ([0, 1], [0, -1], {"id2label": {"-1": "none", "0": "no", "1": "yes"}}, [1, 0]),
        ([0, 1], [-1], {"id2label": {"-1": "none", "0": "no", "1": "yes"}}, [0]),
        ([0.5, 1.5], [-1, 2], {}, [-1.0, 2.0]),
    ],
)
def test_minus_one_is_a_label_like_any_other_unless_all_of_test_has_it(
    train: list[Any], test: list[Any], changes: dict[str, Any], expected: list[Any]
) -> None:
    corpus = load_files({"train.csv": csv(rows(60, train)), "test.csv": csv(rows(6, test, 1))}, **changes)
    assert corpus.splits["test"]["label"].tolist()[: len(expected)] == expected


def write_datasets_parquet(name: str, examples: list[tuple[str, Any]], names: ClassLabel) -> None:
    """Write a Parquet file with the package `datasets`, as many users do."""
    texts, labels = zip(*examples, strict=True)
    Path("data/custom").mkdir(parents=True, exist_ok=True)
    dataset = Dataset.from_dict({"text": texts, "label": labels}).cast_column("label", names)
    dataset.to_parquet(f"data/custom/{name}.parquet")


def names_by_text(corpus: Corpus) -> dict[str, str]:
    names = corpus.task.labels
    return {row["text"]: names[row["label"]] for split in corpus.splits for row in examples(corpus, split)}


def test_the_names_of_a_class_label_beat_its_numbers() -> None:
    train, test = rows(60, ["no", "yes"]), rows(10, ["no", "yes"], 1)
    write_datasets_parquet("train", train, ClassLabel(names=["yes", "no", "unused"]))
    write_datasets_parquet("test", test, ClassLabel(names=["no", "yes"]))
    corpus = load_files({})
    assert corpus.task.labels == ["yes", "no"], "in the order of train's schema"
    assert names_by_text(corpus) == dict(train + test)
    corpus = load_files({}, id2label={"no": "No", "yes": "Yes"})
    assert names_by_text(corpus) == {text: label.title() for text, label in train + test}


def test_minus_one_in_a_class_label_is_a_missing_label() -> None:
    names = ClassLabel(names=["c", "b", "a"])
    write_datasets_parquet("train", rows(60, [0, 1, 2]), names)
    write_datasets_parquet("test", rows(10, [-1], 1), names)
    assert (load_files({}).task.labels, load_files({}).task.unlabeled_splits) == (["c", "b", "a"], ["test"])
    write_datasets_parquet("test", rows(10, [1, -1], 1), names)
    assert "test has rows without a label: 5 of 10 (50.0%), idx 1, 3" in load_error({})


def test_decimals_of_parquet_are_numbers() -> None:
    corpus = load_files({"train.parquet": parquet(rows(60, [Decimal("0.50"), Decimal("0E-9")]), pa.decimal128(20, 9))})
    assert labels_by_row(corpus)[:2] == [0.5, 0.0]
