"""Labels in the formats that people use are read correctly, or rejected in one line."""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from custom_files import csv, download_custom, examples, jsonl, load_files, parquet, parquet_file, read_split, rows

from pipeline.core.messages import UserError
from pipeline.sources.corpus import Corpus

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

SEVERAL = "multi_label_classification"


def labels_by_row(corpus: Corpus) -> list[Any]:
    """Return the labels of all splits in the order of the user's file."""
    table = [row for split in corpus.splits for row in examples(corpus, split)]
    return [row["label"] for row in sorted(table, key=lambda row: row["idx"])]


def load_error(files: Mapping[str, str | bytes], **changes: Any) -> str:
    """Load files that must be rejected, and return the error."""
    with pytest.raises(UserError) as error:
        load_files(files, **changes)
    return str(error.value)


VECTORS = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
FORMS: dict[str, dict[str, str | bytes]] = {
    "whole numbers": {"train.jsonl": jsonl(rows(60, VECTORS))},
    "floats": {"train.jsonl": jsonl(rows(60, [[float(bit) for bit in vector] for vector in VECTORS]))},
    "booleans": {"train.jsonl": jsonl(rows(60, [[bool(bit) for bit in vector] for vector in VECTORS]))},
    "strings": {"train.jsonl": jsonl(rows(60, [[str(bit) for bit in vector] for vector in VECTORS]))},
    "Parquet": {"train.parquet": parquet(rows(60, VECTORS), pa.list_(pa.int8()))},
    "fixed-size Parquet lists": {"train.parquet": parquet(rows(60, VECTORS), pa.list_(pa.float32(), 3))},
    "separators": {"train.csv": csv(rows(60, ["1|0|1", "0|0|0", "0|1|0"]))},
    "lists as text": {"train.csv": csv(rows(60, ['"[1, 0, 1]"', '"[0, 0, 0]"', '"[0, 1, 0]"']))},
    "lists of booleans as text": {
        "train.csv": csv(rows(60, ['"[True, False, True]"', '"[False, False, False]"', '"[False, True, False]"']))
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_vectors_of_0_and_1_are_read_in_every_form(form: str, caplog: pytest.LogCaptureFixture) -> None:
    corpus = load_files(FORMS[form])
    task = corpus.task
    assert (task.problem_type, task.labels) == (SEVERAL, ["0", "1", "2"])
    assert labels_by_row(corpus) == VECTORS * 20
    assert any("multi-hot" in message and "data.id2label" in message for message in caplog.messages)
    assert not any(record.levelname == "WARNING" for record in caplog.records)


@pytest.mark.parametrize(
    ("id2label", "names", "first"),
    [
        (["toxic", "rude", "spam"], ["toxic", "rude", "spam"], [1, 0, 1]),
        ({"2": "spam", "0": "toxic", "1": "rude"}, ["spam", "toxic", "rude"], [1, 1, 0]),
    ],
)
def test_id2label_names_the_positions_of_vectors(id2label: Any, names: list[str], first: list[int]) -> None:
    corpus = load_files({"train.jsonl": jsonl(rows(60, VECTORS))}, id2label=id2label)
    assert corpus.task.labels == names
    assert labels_by_row(corpus)[0] == first


def test_a_list_in_id2label_names_the_classes_0_1_and_so_on() -> None:
    corpus = load_files({"train.csv": csv(rows(60, [1, 0]))}, id2label=["bad", "good"])
    assert corpus.task.labels == ["bad", "good"]
    assert labels_by_row(corpus)[:2] == [1, 0]


@pytest.mark.parametrize(
    ("labels", "names", "first"),
    [
        ([[0], [0, 1], [1]], ["0", "1"], [1, 0]),
        ([[0], [1]], ["0", "1"], [1, 0]),
        ([[1], [0, 1], [], [2]], ["0", "1", "2"], [0, 1, 0]),
        ([[2, 0], [0, 1]], ["0", "1", "2"], [1, 0, 1]),
        ([[0, 1], [1, 0], [1, 1]], ["0", "1"], [0, 1]),  # these are vectors, because all lists have the same length
    ],
)
def test_lists_of_label_numbers_remain_lists_of_labels(labels: list[Any], names: list[str], first: list[int]) -> None:
    corpus = load_files({"train.jsonl": jsonl(rows(60, labels))})
    assert corpus.task.labels == names
    assert labels_by_row(corpus)[0] == first


@pytest.mark.parametrize(
    ("label", "quoted"),
    [
        ([1, 0], "[1, 0]"),
        ([1, 0, 1, 0], "[1, 0, 1, 0]"),
        ([1, 0, 2], "[1, 0, 2]"),
        ([1, None, 0], "[1, None, 0]"),
        ([], "[]"),
        (1, "[1]"),
    ],
)
def test_a_label_that_is_not_a_matching_vector_is_reported(label: Any, quoted: str) -> None:
    files = {"train.jsonl": jsonl(rows(30, VECTORS)), "dev.jsonl": jsonl([*rows(4, VECTORS, 1), ("a text", label)])}
    message = load_error(files, split={"type": "fixed"})
    assert message.startswith(f'data/custom/dev.jsonl line 5: "label" is {quoted}, but in ')
    assert "which contains 0 or 1 twice" in message


def test_a_list_of_only_zeros_and_ones_must_not_repeat_one_among_other_lists() -> None:
    message = load_error({"train.jsonl": jsonl(rows(60, [[2, 3], [0, 0]]))})
    assert 'line 1: "label" is [2, 3], but in data/custom/train.jsonl line 2 it is [0, 0], which contains' in message


def test_a_list_is_not_a_class_and_id2label_must_match_the_vectors() -> None:
    files = {"train.jsonl": jsonl(rows(60, VECTORS))}
    assert "multi_label_classification" in load_error(files, problem_type="single_label_classification")
    message = load_error(files, id2label=["toxic", "rude"])
    assert "data.id2label" in message and "3 labels" in message
    assert "[0.2, 0.8]" in load_error({"train.jsonl": jsonl(rows(60, [[0.2, 0.8], [0.5, 0.5]]))})


@pytest.mark.parametrize("labels", [[["neg"], ["pos"], []], ["['neg']", "['pos']", "[]"]])
def test_lists_of_one_label_are_classes_if_problem_type_says_so(
    labels: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    files = {"train.jsonl": jsonl(rows(60, labels))}
    assert load_files(files).task.problem_type == SEVERAL
    assert '"label" has 2 labels, but only 2 distinct lists' in caplog.text
    single = {"problem_type": "single_label_classification"}
    assert "rows without a label: 20 of 60" in load_error(files, **single)
    corpus = load_files(files, **single, on_missing="drop")
    assert corpus.task.labels == ["neg", "pos"]
    assert labels_by_row(corpus)[:2] == [0, 1]
    caplog.clear()
    several = str(["neg", "pos"]) if isinstance(labels[0], str) else ["neg", "pos"]
    load_files({"train.jsonl": jsonl([*rows(60, labels), ("both", several)])})
    assert "distinct lists" not in caplog.text
    files = {"train.jsonl": jsonl([*rows(60, [["neg"], ["pos"]]), ("both", ["neg", "pos"])])}
    assert "jsonl line 61" in load_error(files, problem_type="single_label_classification")


HEADER = "text,toxic,insult"
CELLS = [(0, 1), (1, 1), (0, 0)]


def columns_csv(cells: list[tuple[Any, ...]], count: int = 60, seed: int = 0, header: str = HEADER) -> str:
    return csv([(text, *values) for text, values in rows(count, cells, seed)], header)


COLUMNS = {"label_column_name": ["toxic", "insult"]}


@pytest.mark.parametrize("values", [("0", "1"), ("0.0", "1.0"), ("False", "True"), ("false", "true")])
def test_each_of_several_columns_of_0_and_1_is_a_label(values: tuple[str, str]) -> None:
    corpus = load_files(
        {"train.csv": columns_csv([(values[toxic], values[insult]) for toxic, insult in CELLS])}, **COLUMNS
    )
    task = corpus.task
    assert (task.problem_type, task.labels) == (SEVERAL, ["toxic", "insult"])
    assert labels_by_row(corpus) == [list(cells) for cells in CELLS] * 20
    assert list(corpus.splits["train"]) == ["text", "label", "idx"]


@pytest.mark.parametrize("name", ["train.jsonl", "train.parquet"])
def test_each_of_several_columns_of_a_json_lines_or_parquet_file_is_a_label(name: str) -> None:
    examples = [{"text": text, "toxic": bool(toxic), "insult": insult} for text, (toxic, insult) in rows(60, CELLS)]
    files: dict[str, str | bytes] = {
        "train.jsonl": "".join(json.dumps(example) + "\n" for example in examples),
        "train.parquet": parquet_file(pa.Table.from_pylist(examples)),
    }
    corpus = load_files({name: files[name]}, **COLUMNS, id2label={"insult": "Insult", "toxic": "Toxic"})
    assert corpus.task.labels == ["Insult", "Toxic"]
    assert labels_by_row(corpus)[0] == [1, 0]


def test_a_row_with_an_empty_cell_is_unlabeled_and_a_test_file_may_have_no_labels() -> None:
    files = {"train.csv": columns_csv([*CELLS, ("", 1)])}
    assert "label: 15 of 60 (25.0%), idx 3, 7" in load_error(files, **COLUMNS)
    corpus = load_files(files, **COLUMNS, on_missing="drop")
    assert len(labels_by_row(corpus)) == 45
    corpus = load_files({"test.csv": csv([("x",), ("y",)], "text")}, **COLUMNS, on_missing="drop")
    assert corpus.task.unlabeled_splits == ["test"]
    corpus = load_files({"test.csv": columns_csv([(0, 0)], 5, 1)}, **COLUMNS, on_missing="drop")
    assert corpus.task.unlabeled_splits == [], "rows of zeros are labeled"


def test_a_column_that_is_only_1_or_empty_must_have_zeros() -> None:
    """A spreadsheet often has 1 for the labels that apply, and nothing for the others."""
    cells = [("", 1), (1, 1), ("", ""), (0, 1)]
    for on_missing in ("error", "drop"):
        message = load_error({"train.csv": columns_csv(cells)}, **COLUMNS, on_missing=on_missing)
        assert message.startswith('train: "insult" is 1 or empty in every row. If empty means 0, write 0.')
    assert "rows without a label" in load_error({"train.csv": columns_csv([*cells, (1, 0)])}, **COLUMNS)
    files = {"train.csv": columns_csv([(0, 1), (1, 0)]), "test.csv": columns_csv([("", ""), (1, 1)])}
    load_files(files, **COLUMNS, on_missing="drop")  # Only train must have each label.


@pytest.mark.parametrize(
    ("files", "changes", "words"),
    [
        ({"train.csv": columns_csv([*CELLS, (0, 2)])}, {}, ["train.csv line 5", '"insult" must be', "got '2'"]),
        ({"train.csv": columns_csv([*CELLS, ("yes", 0)])}, {}, ["train.csv line 5", '"toxic" must be', "got 'yes'"]),
        (
            {"train.csv": columns_csv(CELLS), "test.csv": csv([("x", 1)], "text,toxic")},
            {},
            ["test.csv", 'no column "insult"'],
        ),
        ({"train.csv": columns_csv(CELLS, header="text,toxic,rude")}, {}, ["train.csv", 'no column "insult"']),
        ({}, {"label_column_name": ["toxic"]}, ["data.label_column_name", "at least two"]),
        ({}, {"label_column_name": []}, ["data.label_column_name"]),
        ({}, {"label_column_name": ["toxic", "toxic"]}, ["twice", "toxic"]),
        ({}, {"problem_type": "regression"}, ["data.problem_type", "multi_label_classification"]),
        ({}, {"id2label": {"toxic": "a", "rude": "b"}}, ["data.id2label", "insult"]),
        ({}, {"id2label": ["a", "b", "c"]}, ["data.id2label", "insult"]),
    ],
)
def test_invalid_label_columns_are_reported(
    files: dict[str, str | bytes], changes: dict[str, Any], words: list[str]
) -> None:
    message = load_error(files, **{**COLUMNS, **changes})
    assert all(word in message for word in words), message


TEXT_LISTS = {
    "Python": ["['a', 'b']", "['b']", "[]"],
    "JSON": ['["a", "b"]', '["b"]', "[]"],
}


@pytest.mark.parametrize("form", TEXT_LISTS)
def test_lists_saved_as_text_are_read_as_lists(form: str) -> None:
    cells = ['"' + text.replace('"', '""') + '"' for text in TEXT_LISTS[form]]
    corpus = load_files({"train.csv": csv([*rows(60, cells), ("none", "")])})
    task = corpus.task
    assert (task.problem_type, task.labels) == (SEVERAL, ["a", "b"])
    assert labels_by_row(corpus) == [[1, 1], [0, 1], [0, 0]] * 20 + [[0, 0]]


def test_items_of_text_lists_keep_commas_separators_and_quotes() -> None:
    cells = ["['a,b', 'c|d']", '["it\'s"]', r"['caf\xe9', None]"]
    corpus = load_files({"train.jsonl": jsonl(rows(60, cells))})
    assert corpus.task.labels == ["a,b", "café", "c|d", "it's"]


def test_names_in_brackets_are_classes() -> None:
    for names in (["[NEG]", "[POS]"], ["(0, 18)", "[18, 65)"]):
        assert load_files({"train.jsonl": jsonl(rows(60, names))}).task.labels == names
    files = {"train.jsonl": jsonl(rows(60, ["['a', 'b']", "['b', 'c']"]))}
    assert load_files(files, problem_type="single_label_classification").task.labels == ["['a', 'b']", "['b', 'c']"]


@pytest.mark.parametrize(
    ("labels", "last"), [(["bad", "good"], "['bad']"), (["['a', 'b']", "['b']"], "a, b"), (["[1, 0]", "[0, 1]"], "0")]
)
def test_mixing_lists_saved_as_text_with_plain_labels_is_an_error(labels: list[str], last: str) -> None:
    message = load_error({"train.jsonl": jsonl([*rows(60, labels), ("x", last)])})
    assert "train.jsonl line 61" in message and "it is the list" in message


def test_a_list_with_labels_other_than_0_and_1_may_repeat_a_label() -> None:
    corpus = load_files({"train.jsonl": jsonl(rows(60, [[1, 1, 2], [0, 1, 2]]))})
    assert (corpus.task.problem_type, corpus.task.labels) == (SEVERAL, ["0", "1", "2"])


UNSUPPORTED_LISTS = [
    "['a' 'b']", "['a'\n 'b']", "[np.str_('a')]", "[a, b]", "['a', 'b'", "('a', 'b')", "{'b', 'a'}", "{a,b}", "[1 0 1]",
    "[1. 0. 1.]", "[True False True]", "[0 0 0 ... 0 0 1]", "1 0 1", "1,0,1", "(1, 0, 1)",
    "tensor([0., 1., 0.])", "array([0, 1, 0])", '{"choices": ["Sport", "Politics"]}',
]  # fmt: skip


@pytest.mark.parametrize("text", UNSUPPORTED_LISTS)
def test_a_list_in_another_form_is_rejected(text: str) -> None:
    """Label Studio writes several choices as an object, and a single choice as plain text."""
    files = {"train.jsonl": jsonl(rows(60, ["Sport", "Politics", text]))}
    for problem_type in (None, SEVERAL):
        message = load_error(files, problem_type=problem_type)
        form = "is a JSON object" if "choices" in text else "looks like a list"
        assert message.startswith(f'data/custom/train.jsonl line 3: "label" is {text!r}, which {form}')
        assert 'Write a JSON list, such as ["a", "b"]' in message and "data.problem_type=single" in message
    assert text in load_files(files, problem_type="single_label_classification").task.labels


@pytest.mark.parametrize("text", ["[0, 0, ..., 0, 1]", '[{"label": "a"}]', "[['a'], ['b']]", "[0.2, 0.8]"])
def test_the_items_of_a_list_saved_as_text_must_be_labels(text: str) -> None:
    assert f'train.jsonl line 2: "label" is {text!r}' in load_error({"train.jsonl": jsonl(rows(60, ["[1, 0]", text]))})


def write_datasets_parquet(path: str, examples: list[tuple[str, Any]], feature: Any) -> None:
    """Write a Parquet file with the package `datasets`, as many users do."""
    from datasets import Dataset

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    columns = {"text": [text for text, _ in examples], "label": [label for _, label in examples]}
    Dataset.from_dict(columns).cast_column("label", feature).to_parquet(path)


def names_by_text(corpus: Corpus) -> dict[str, str]:
    names = corpus.task.labels
    return {row["text"]: names[row["label"]] for split in corpus.splits for row in examples(corpus, split)}


def test_class_names_of_parquet_files_are_used_and_match_splits_by_name(caplog: pytest.LogCaptureFixture) -> None:
    from datasets import ClassLabel

    train, test = rows(60, ["no", "yes"]), rows(10, ["no", "yes"], 1)
    write_datasets_parquet("data/custom/train.parquet", train, ClassLabel(names=["yes", "no", "a|b"]))
    write_datasets_parquet("data/custom/test.parquet", test, ClassLabel(names=["no", "yes"]))
    corpus = load_files({})
    assert corpus.task.labels == ["yes", "no"], "in the order of train's schema"
    assert names_by_text(corpus) == dict(train + test)
    assert any("a|b" in message and "no row" in message for message in caplog.messages)
    corpus = load_files({"test.parquet": parquet(test, pa.string())}, id2label={"no": "No", "yes": "Yes"})
    assert names_by_text(corpus) == {text: label.title() for text, label in train + test}


@pytest.mark.parametrize(
    ("names", "labels", "warns"),
    [
        ("12345", [1, 2, 3, 4], True),
        ("12345", [0, 1, 2, 3, 4], True),
        ("12345", [1, 2, 3, 4, 5], False),  # 5 can only be a name.
        ("01234", [1, 2, 3, 4], False),  # The names are the class numbers.
        ("12345", [""], False),
    ],
)
def test_numbers_that_may_be_names_or_class_numbers_are_a_warning(names: str, labels: list[Any], warns: bool) -> None:
    from datasets import ClassLabel

    write_datasets_parquet("data/custom/train.parquet", rows(60, list(names)), ClassLabel(names=list(names)))
    files = {"test.csv": csv(rows(20, labels, 1))}
    ambiguous = [warning for warning in load_files(files).warnings if "class numbers" in warning]
    assert len(ambiguous) == warns
    assert all(f"test.csv line 2: \"label\" is '{labels[0]}'" in warning for warning in ambiguous)
    assert "class numbers" not in str(load_files(files, id2label={name: f"{name} stars" for name in "012345"}).warnings)


def test_the_split_and_the_slice_of_a_row_are_names_of_classes_too() -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    texts, labels = zip(*rows(60, ["no", "yes"]), strict=True)
    features = Features({
        "text": Value("string"),
        "label": Value("string"),
        "part": ClassLabel(names=["train", "validation", "test"]),
        "topic": ClassLabel(names=["sport", "news"]),
    })  # fmt: skip
    columns = {"text": texts, "label": labels, "part": [0, 0, 1, 2] * 15, "topic": [0, 0, 1, -1] * 15}
    Path("data/custom").mkdir(parents=True)
    Dataset.from_dict(columns, features=features).to_parquet("data/custom/train.parquet")
    corpus = load_files({}, split={"type": "fixed", "column": "part"}, slice_columns=["topic"])
    assert {split: len(part) for split, part in corpus.splits.items()} == {"train": 30, "validation": 15, "test": 15}
    assert set(corpus.splits["train"]["topic"]) == {"sport"}
    assert (set(corpus.splits["validation"]["topic"]), set(corpus.splits["test"]["topic"])) == ({"news"}, {""})


def test_minus_one_in_a_class_label_column_is_a_missing_label() -> None:
    from datasets import ClassLabel

    write_datasets_parquet("data/custom/train.parquet", rows(60, [0, 1, 2]), ClassLabel(names=["c", "b", "a"]))
    write_datasets_parquet("data/custom/test.parquet", rows(10, [-1], 1), ClassLabel(names=["c", "b", "a"]))
    task = load_files({}).task
    assert (task.labels, task.unlabeled_splits) == (["c", "b", "a"], ["test"])
    write_datasets_parquet("data/custom/test.parquet", rows(10, [1, -1], 1), ClassLabel(names=["c", "b", "a"]))
    assert "test has rows without a label: 5 of 10 (50.0%), idx 1, 3" in load_error({})


def test_many_numeric_class_names_are_classes_and_lists_of_classes_are_multi_label() -> None:
    from datasets import ClassLabel, Sequence

    names = [str(number) for number in range(30)]
    for spelling in ("{}", "{}.0"):
        spelled = [spelling.format(name) for name in names]
        write_datasets_parquet("data/custom/train.parquet", rows(90, spelled), ClassLabel(names=spelled))
        assert load_files({}).task.labels == names
    lists = Sequence(ClassLabel(names=["b; c", "a"]))
    write_datasets_parquet("data/custom/train.parquet", rows(60, [[0], [0, 1], [1]]), lists)
    corpus = load_files({})
    assert corpus.task.labels == ["b; c", "a"]
    assert labels_by_row(corpus)[:3] == [[1, 0], [1, 1], [0, 1]]


def test_a_class_number_without_a_name_is_reported() -> None:
    train = pa.table({"text": [text for text, _ in rows(60, [0])], "label": [0, 1, 2] * 20})
    features = {"text": {"dtype": "string", "_type": "Value"}, "label": {"names": ["a", "b"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    Path("data/custom").mkdir(parents=True)
    pq.write_table(train.replace_schema_metadata(metadata), "data/custom/train.parquet")
    message = load_error({})
    assert "train.parquet row 2" in message and '"label" is 2' in message
    for broken in ("not JSON", '{"info": null}', '{"info": {"features": {"label": {"_type": "ClassLabel"}}}}'):
        pq.write_table(train.replace_schema_metadata({"huggingface": broken}), "data/custom/train.parquet")
        assert "the names of its classes are unknown" in load_error({})


def test_the_output_of_download_is_read_as_the_same_rows() -> None:
    files = {"train.csv": csv(rows(60, ["b", "a", "c"])), "test.csv": csv(rows(9, ["c", "a", "b"], 1))}
    raw = download_custom(files, id2label={"b": "B", "c": "C", "a": "A"})
    corpus = load_files({}, directory=str(raw))
    assert corpus.task.labels == ["B", "C", "A"]
    for split in corpus.splits:
        written = [(row["text"], row["label"]) for row in read_split(raw, split)]
        assert [(row["text"], row["label"]) for row in examples(corpus, split)] == written


MINUS_ONES: dict[str, tuple[list[Any], list[Any]]] = {
    "whole numbers": ([0, 1], [-1]),
    "floats": ([0.0, 1.0], [-1.0]),
    "strings": (["0", "1"], ["-1"]),
    "words": (["bad", "good"], [-1]),
    "vectors": (VECTORS, [[-1, -1, -1]]),
    "-1 instead of a vector": (VECTORS, [-1]),
    "vectors saved as text": (["[1, 0, 1]", "[0, 0, 0]", "[0, 1, 0]"], ["[-1, -1, -1]"]),
    "a regression with larger numbers": ([0.5, 2.5], [-1]),
}


@pytest.mark.parametrize("case", MINUS_ONES)
def test_a_test_split_whose_labels_are_all_minus_one_has_no_labels(case: str, caplog: pytest.LogCaptureFixture) -> None:
    train, test = MINUS_ONES[case]
    corpus = load_files({"train.jsonl": jsonl(rows(60, train)), "test.jsonl": jsonl(rows(10, test, 1))})
    task = corpus.task
    assert (task.unlabeled_splits, task.verdict_split) == (["test"], "validation")
    assert "-1" not in task.labels and list(corpus.splits["test"]) == ["text", "idx"]
    assert sum("test.jsonl line 1: " in message and "data.id2label" in message for message in caplog.messages) == 1


@pytest.mark.parametrize(
    ("train", "test", "unlabeled"),
    [
        ([["a", "b"], ["a"], []], [[]], []),
        (["['a', 'b']", "['a']", "[]"], ["[]"], []),
        (["a|b", "a", ""], [""], ["test"]),
        ([["a", "b"], ["a"], []], [None], ["test"]),
    ],
)
def test_a_test_split_of_empty_lists_is_labeled_and_a_test_split_of_empty_fields_is_not(
    train: list[Any], test: list[Any], unlabeled: list[str]
) -> None:
    corpus = load_files({"train.jsonl": jsonl(rows(60, train)), "test.jsonl": jsonl(rows(10, test, 1))})
    assert corpus.task.unlabeled_splits == unlabeled
    if not unlabeled:
        assert corpus.splits["test"]["label"].tolist() == [[0, 0]] * 10


def test_whole_numbers_are_counted_by_value(caplog: pytest.LogCaptureFixture) -> None:
    labels = [label for number in range(11) for label in (f"{number}", f"{number}.0")]
    corpus = load_files({"train.csv": csv(rows(110, labels))})
    assert corpus.task.labels == [str(number) for number in range(11)]
    assert 'column "label" has 11 distinct whole numbers' in caplog.text


def test_a_test_split_whose_label_columns_are_all_minus_one_has_no_labels() -> None:
    files = {"train.csv": columns_csv(CELLS), "test.csv": columns_csv([(-1, -1)], 9, 1)}
    assert load_files(files, **COLUMNS).task.unlabeled_splits == ["test"]
    files["test.csv"] = columns_csv([(-1, -1), (0, 1)], 9, 1)
    assert "test has rows without a label: 5 of 9 (55.6%), idx 0, 2" in load_error(files, **COLUMNS)


@pytest.mark.parametrize(
    ("split", "labels"), [("test", [0, -1, 1, 0, 1]), ("dev", [0, "-1", 1, 0, 1]), ("dev", [" -1.0"])]
)
def test_some_labels_of_minus_one_are_missing_labels(
    split: str, labels: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    files = {"train.jsonl": jsonl(rows(60, [0, 1])), f"{split}.jsonl": jsonl(rows(20, labels, 1))}
    message = load_error(files, split={"type": "fixed"} if split == "dev" else {})
    first, count = (2, 4) if len(labels) > 1 else (1, 20)
    assert f"rows without a label: {count} of 20" in message and "data.on_missing" in message
    assert any(f"{split}.jsonl line {first}: " in text and "data.id2label" in text for text in caplog.messages)


@pytest.mark.parametrize(
    ("train", "test", "changes", "labels"),
    [
        ([-1, 1], [-1], {}, ["-1", "1"]),
        ([-1, 0, 1], [-1, 1], {}, ["-1", "0", "1"]),
        ([0, 1], [0, -1], {"id2label": {"-1": "none", "0": "no", "1": "yes"}}, ["none", "no", "yes"]),
        ([0, 1, 2, -1], [0, -1], {"id2label": {"-1": "x", "0": "a", "1": "b", "2": "c"}}, ["x", "a", "b", "c"]),
        ([-0.5, 1.5, -2.5], [-1], {}, []),
        ([0.5, -1.5], [-1, 2], {}, []),
    ],
)
def test_minus_one_can_be_a_class_or_a_number(
    train: list[Any], test: list[Any], changes: dict[str, Any], labels: list[str]
) -> None:
    corpus = load_files({"train.csv": csv(rows(60, train)), "test.csv": csv(rows(10, test, 1))}, **changes)
    task = corpus.task
    assert (task.labels, task.unlabeled_splits) == (labels, [])
    expected = labels.index(next(iter(changes.get("id2label", {"": "-1"}).values()))) if labels else -1
    assert expected in corpus.splits["test"]["label"].tolist()


def test_a_word_among_the_targets_is_reported_even_if_test_has_only_minus_ones() -> None:
    files = {"train.csv": csv(rows(60, ["0.5", "good"])), "test.csv": csv(rows(9, [-1], 1))}
    assert "train.csv line 3: \"label\" is 'good'" in load_error(files, problem_type="regression")
    corpus = load_files({"train.csv": csv(rows(60, [-1, "9" * 400])), "test.csv": csv(rows(9, [-1], 1))})
    assert corpus.task.labels == ["-1", "9" * 400]


def test_minus_one_among_the_class_numbers_of_train_is_reported() -> None:
    message = load_error({"train.csv": csv(rows(60, [0, 1, 2, -1]))})
    assert 'train.csv line 5: "label" is -1' in message and "data.id2label" in message
    corpus = load_files({"train.csv": csv(rows(60, [0, 1, -1]))})
    assert any('line 4: "label" is -1' in warning for warning in corpus.warnings)
    corpus = load_files({"train.csv": csv(rows(60, [-1, 1]))})
    assert not any("-1" in warning and "known" in warning for warning in corpus.warnings)


@pytest.mark.parametrize(
    ("labels", "quoted", "remedy"),
    [
        (["0,5", "1,25", "3"], "'0,5'", "point"),
        (["1.5", "2.5", "0,5"], "'0,5'", "point"),
        (["1.234,5", "2.345,6"], "'1.234,5'", "point"),
        (["1,234", "2,345", "17"], "'1,234'", "point"),
        (["1 234,5", "2\u00a0345,6"], "'1 234,5'", "point"),
        (["85%", "12%", "7%"], "'85%'", "percentage"),
        (["85,5 %", "12 %"], "'85,5 %'", "percentage"),
        (["0,5", "0,7", "0,9", "n/a"], "'0,5'", "point"),
    ],
)
def test_numbers_with_commas_and_percent_signs_are_not_classes(labels: list[str], quoted: str, remedy: str) -> None:
    files = {"train.jsonl": jsonl(rows(60, labels))}
    for changes in ({}, {"problem_type": "regression"}):
        message = load_error(files, **changes)
        assert f'line {labels.index(quoted.strip(chr(39))) + 1}: "label" is {quoted}' in message and remedy in message
    task = load_files(files, id2label={label: label for label in labels}).task
    assert task.labels == labels


def test_a_decimal_comma_in_another_split_is_reported() -> None:
    files = {"train.csv": csv(rows(60, ["0.5", "1.5"])), "dev.csv": csv([("a", "0.5"), ("b", '"0,7"')])}
    assert "dev.csv line 3: \"label\" is '0,7'" in load_error(files, split={"type": "fixed"})


def test_words_with_some_percentages_are_classes() -> None:
    labels = ["5%", "low", "high", "none"]
    assert load_files({"train.csv": csv(rows(60, labels))}).task.labels == sorted(labels)


def test_parquet_decimals_are_numbers() -> None:
    numbers = [Decimal("0.50"), Decimal("-2.25"), Decimal("0.00")]
    corpus = load_files({"train.parquet": parquet(rows(60, numbers), pa.decimal128(10, 2))})
    assert corpus.task.problem_type == "regression"
    assert labels_by_row(corpus)[:3] == [0.5, -2.25, 0.0]
    classes = [Decimal(1), Decimal(0), Decimal(10)]
    corpus = load_files({"train.parquet": parquet(rows(60, classes), pa.decimal256(50, 9))})
    assert corpus.task.labels == ["0", "1", "10"]


LOOK_ALIKES: dict[str, tuple[list[Any], list[str], int]] = {
    "case": (["Spam", "spam", "ham"], ["'Spam'", "'spam'"], 3),
    "booleans": ([True, False, "true", "no"], ["'True'", "'true'"], 4),
    "Unicode form": (["café", "cafe\u0301", "tea"], ["caf\\xe9", "cafe\\u0301"], 3),
    "full-width letters": (["\uff21", "A", "B"], ["\uff21", "'A'"], 3),
    "inner spaces": (["not  spam", "not spam"], ["'not  spam'", "'not spam'"], 2),
    "zero-width space": (["spam", "spam\u200b", "ham"], ["'spam\\u200b'", "'spam'"], 3),
    "byte order mark": (["\ufeffspam", "spam", "ham"], ["'\\ufeffspam'", "'spam'"], 3),
    "final period": (["positive.", "positive", "negative"], ["'positive'", "'positive.'"], 3),
    "hyphens and underscores": (["not-spam", "not_spam", "not spam"], ["'not spam'", "'not-spam'", "'not_spam'"], 3),
    "apostrophe": (["don't", "don\u2019t", "do"], ["don't", "don\\u2019t"], 3),
    "en dash": (["18-24", "18\u201324", "25-30"], ["18-24", "18\\u201324"], 3),
    "non-breaking hyphen": (["sci-fi", "sci\u2011fi", "crime"], ["sci-fi", "sci\\u2011fi"], 3),
    "emoji in color": (["\u2764", "\u2764\ufe0f", "sad"], ["\\u2764", "\\u2764\\ufe0f"], 3),
    "codes": (["1", "01", "2"], ["'01'", "'1'"], 3),
    "several labels": ([["a"], ["A", "b"]], ["'A'", "'a'"], 3),
}


@pytest.mark.parametrize("case", LOOK_ALIKES)
def test_labels_that_are_almost_the_same_get_one_warning(case: str) -> None:
    labels, words, classes = LOOK_ALIKES[case]
    corpus = load_files({"train.jsonl": jsonl(rows(60, labels))})
    assert len(corpus.task.labels) == classes
    [warning] = [warning for warning in corpus.warnings if "almost the same" in warning]
    assert all(word in warning for word in words), warning


def test_spellings_are_compared_across_splits_and_different_labels_get_no_warning() -> None:
    files = {"train.csv": csv(rows(60, ["yes", "no"])), "test.csv": csv(rows(9, ["Yes", "no"], 1))}
    corpus = load_files(files)
    assert any("'Yes' and 'yes'" in warning for warning in corpus.warnings)
    distinct = [["C", "C++", "C#"], ["A", "A-", "A+"], [":)", ":("], ["co-op", "coop"], ["?", "!"]]
    for labels in (*distinct, ["a", "b"], ["spam", " spam\u00a0", "ham"], [1, 10, 1.0], ["01", "02"], ["0.5", "0.50"]):
        corpus = load_files({"train.csv": csv(rows(60, labels)), "test.csv": csv(rows(9, labels, 1))})
        assert not any("almost the same" in warning for warning in corpus.warnings)


def test_numbers_that_are_written_differently_are_different_classes_unless_they_are_whole() -> None:
    """1.1 and 1.10 may be versions or sections."""
    settings = {"problem_type": "single_label_classification"}
    corpus = load_files({"train.csv": csv(rows(60, ["1.10", "1.1", "1.2"]))}, **settings)
    assert corpus.task.labels == ["1.1", "1.10", "1.2"]
    assert labels_by_row(corpus)[:3] == [1, 0, 2]
    assert any("different labels that are almost the same: '1.1' and '1.10'" in text for text in corpus.warnings)
    corpus = load_files({"train.csv": csv(rows(60, ["1", "1.0", "2"]))}, **settings)
    assert corpus.task.labels == ["1", "2"]


def test_a_label_that_is_not_in_id2label_is_rejected_even_if_its_value_is() -> None:
    message = load_error({"train.csv": csv(rows(60, ["1.10", "1.1", "1.2"]))}, id2label={"1.1": "a", "1.2": "b"})
    assert "1.10" in message and "data.id2label only has the labels" in message


@pytest.mark.parametrize("separator", [", ", "#", "/", " + ", " & ", "\u3001", "\n", " "])
def test_a_class_that_consists_of_other_classes_is_a_warning(separator: str) -> None:
    combination = f"Politics{separator}Sport"
    labels = ["Sport", "Politics", f'"{combination}"']
    [warning] = load_files({"train.csv": csv(rows(60, labels))}).warnings
    assert repr(combination) in warning and "consists of other labels" in warning
    assert "Otherwise, nothing needs to change." in warning
    assert not load_files({"train.csv": csv(rows(60, [*labels[:2], '"Sport, News"']))}).warnings


@pytest.mark.parametrize(
    ("labels", "label"),
    [
        (["price, quality", "price, service", "staff"], "price, quality"),
        (["negative", "positive", "negative#quality", "positive#quality"], "negative#quality"),
        (["a/b", "b/c", "a/c", "a", "a/d", "d/b"], "a/b"),
    ],
)
def test_a_class_that_shares_parts_with_other_classes_is_a_warning(labels: list[str], label: str) -> None:
    [warning] = load_files({"train.jsonl": jsonl(rows(60, labels))}).warnings
    assert f"\"label\" is '{label}', which shares parts with other labels." in warning


@pytest.mark.parametrize(
    "labels",
    [
        ["Sci-Fi & Fantasy", "Action & Adventure", "Action", "arts, crafts", "Food & Drink", "Food & Wine", "Sports"],
        ["very good", "good", "very bad", "bad", "neutral"],
        ["1/5", "2/5", "3/5", "4/5", "5/5"],
        ["A", "A+", "B", "B+", "C++"],
    ],
)
def test_ordinary_names_are_not_taken_for_joined_labels(labels: list[str]) -> None:
    assert not load_files({"train.jsonl": jsonl(rows(60, labels))}).warnings


@pytest.mark.parametrize("placeholder", ["NA", "N/A", "NULL", "\\N", "nan", "<NA>", "None", "#N/A", "-", "?"])
def test_a_class_that_may_be_a_missing_label_is_a_warning(placeholder: str) -> None:
    files = {"train.csv": csv(rows(60, ["good", "bad", placeholder]))}
    corpus = load_files(files)
    assert placeholder in corpus.task.labels
    [warning] = corpus.warnings
    assert f'"label" is {placeholder!r} in 20 of 60 rows (33.3%), first in data/custom/train.csv line 4.' in warning
    assert "leave these fields empty" in warning and "data.id2label" in warning
    assert not load_files(files, id2label={"good": "good", "bad": "bad", placeholder: "other"}).warnings


@pytest.mark.parametrize("placeholder", ["NULL", "\\N", "nan"])
def test_a_placeholder_among_numbers_is_an_error_that_says_how_to_write_a_missing_label(placeholder: str) -> None:
    message = load_error({"train.csv": csv(rows(60, [0, 1, placeholder]))})
    assert f'train.csv line 4: "label" is {placeholder!r}, a word among labels that are numbers.' in message
    assert "empty these fields and set data.on_missing=drop" in message
    assert "data.on_missing" not in load_error({"train.csv": csv(rows(60, [0, 1, "x"]))})


def test_common_classes_are_not_taken_for_missing_labels() -> None:
    assert not load_files({"train.csv": csv(rows(60, ["favor", "against", "none", "NONE OF THESE"]))}).warnings


def test_numbers_that_are_not_whole_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    load_files({"train.csv": csv([*rows(60, [1, 2, 3]), ("Average", 2.04)])})
    assert "numbers that are not whole in 1 of 61 rows (1.6%), first in data/custom/train.csv line 62." in caplog.text


def test_a_label_in_quotes_is_rejected() -> None:
    """A CSV reader only removes quotes at the start of a field, and here the field starts with a space."""
    message = load_error({"train.csv": csv(rows(60, [' "good"', ' "bad"']))})
    assert "Remove the quotes. In a CSV, also remove the space" in message


def test_points_that_may_separate_thousands_are_a_warning() -> None:
    numbers = [950, "1.250", "12.400", 310]
    [warning] = load_files({"train.csv": csv(rows(60, numbers))}).warnings
    assert "'1.250', which is read as 1.25." in warning and "write 1250" in warning
    for plain in (["1.250", "3.800"], [950, "1.25"], [950, "0.125"], ["950.0", "1.125"]):
        assert not load_files({"train.csv": csv(rows(60, plain))}).warnings


def test_rows_with_an_empty_list_of_labels_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    corpus = load_files({"train.jsonl": jsonl(rows(60, [["a"], ["a", "b"], []]))})
    assert labels_by_row(corpus)[2] == [0, 0]
    assert any("is empty in 20 of 60 rows (33.3%)" in message for message in caplog.messages)


def test_a_test_file_without_labels_does_not_count_as_empty_lists(caplog: pytest.LogCaptureFixture) -> None:
    files = {"train.csv": csv(rows(60, ["a", "a;b"])), "test.csv": csv(rows(9, [""], 1))}
    assert load_files(files).task.unlabeled_splits == ["test"]
    assert not any("is empty in" in message for message in caplog.messages)


def test_a_list_of_classes_that_are_not_known_is_a_missing_label() -> None:
    """The package `datasets` writes -1 for a class that is not known."""
    message = load_error({"train.jsonl": jsonl(rows(60, [["a"], ["a", "b"], [None]]))})
    assert "rows without a label" in message and "20 of 60" in message
