"""Custom files are read as they are, and every mistake in them is reported in one line."""

import json
import shutil
from pathlib import Path

import pytest
from custom_files import csv, download_custom, examples, jsonl, load_files, parquet, rows

from pipeline.core.messages import UserError
from pipeline.sources.fetch import file_sha256
from pipeline.tabular.reading import ColumnSelection, read_file

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

FEW = rows(40, ["good", "bad"])
CSV = csv(FEW)
FIXED = {"type": "fixed"}


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev", "eval"])
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
    Path("data/custom/train-00001-of-00003.parquet").unlink()
    with pytest.raises(UserError, match=r"data/custom must have exactly 3 .*: train-00001-of-00003\.parquet\.$"):
        load_files({})


@pytest.mark.parametrize(
    ("numbers", "total", "message"),
    [
        ([0, 7], 2, r"train-00001-of-00002\.parquet, train-00007-of-00002\.parquet\.$"),
        ([0, 1, 2], 2, r": train-00002-of-00002\.parquet\.$"),
        ([0], 0, r": train-00000-of-00000\.parquet\.$"),
    ],
)
def test_wrong_shard_numbers_are_an_error(numbers: list[int], total: int, message: str) -> None:
    shards = {f"train-{number:05}-of-{total:05}.parquet": parquet(FEW) for number in numbers}
    with pytest.raises(UserError, match=rf"data/custom must .*{message}"):
        load_files({**shards, "dev.csv": CSV}, split=FIXED)
    shutil.rmtree("data/custom")
    with pytest.raises(UserError, match=rf"data/custom/train must .*{message}"):
        load_files({**{f"train/{name}": content for name, content in shards.items()}, "dev.csv": CSV}, split=FIXED)


@pytest.mark.parametrize("directory", ["", "train/"])
def test_shards_of_different_totals_are_an_error(directory: str) -> None:
    names = ["train-00000-of-00002.csv", "train-00001-of-00003.csv"]
    with pytest.raises(UserError, match=r" must have exactly 2 .*: train-00001-of-00002\.csv, train-00001-of-00003"):
        load_files({f"{directory}{name}": CSV for name in names}, split=FIXED)
    shutil.rmtree("data/custom")
    complete = ["train-00000-of-00001.csv", "train-00000-of-00002.csv", "train-00001-of-00002.csv"]
    with pytest.raises(UserError, match=r" must have exactly 1 .*: train-00000-of-00002\.csv, train-00001-of-00002"):
        load_files({f"{directory}{name}": CSV for name in complete}, split=FIXED)


@pytest.mark.parametrize("name", ["train.csv", "train-00000-of-00001.csv", "Train.jsonl"])
def test_a_file_next_to_the_directory_of_a_split_is_an_error(name: str) -> None:
    with pytest.raises(UserError, match=r"^data/custom has several candidates for train: .*\. Keep only one\.$"):
        load_files({"train/part.csv": CSV, name: CSV, "dev.csv": CSV}, split=FIXED)


def test_a_directory_of_a_split_must_not_be_a_link_or_contain_directories() -> None:
    load_files({"train/part.csv": CSV, "dev.csv": CSV}, split=FIXED)
    Path("data/custom/train").rename("elsewhere")
    Path("data/custom/train").symlink_to(Path("elsewhere").absolute())
    with pytest.raises(UserError, match=r"^data/custom/train is a link to a directory"):
        load_files({}, split=FIXED)
    Path("data/custom/train").unlink()
    Path("elsewhere").rename("data/custom/train")
    Path("data/custom/train/sub").mkdir()
    with pytest.raises(
        UserError, match=r"^data/custom/train/sub is a directory\. If its name is a label, write a table"
    ):
        load_files({}, split=FIXED)


def test_spaces_around_the_names_of_columns_are_ignored() -> None:
    corpus = load_files({"train.csv": csv(FEW, "text , label"), "dev.csv": CSV}, split=FIXED)
    assert examples(corpus, "train") == examples(corpus, "validation")


@pytest.mark.parametrize(
    ("content", "texts"), [("text\none\n\ntwo\n\n", ["one", "", "two"]), ("text,n\none,1\n\ntwo,2\n", ["one", "two"])]
)
def test_a_blank_line_is_an_empty_text_only_if_the_file_has_a_single_column(content: str, texts: list[str]) -> None:
    Path("new.csv").write_text(content)
    batches = list(read_file(Path("new.csv"), ColumnSelection(["text"])))
    assert [text for batch in batches for text in batch.columns["text"]] == texts


BAD_FILES: dict[str, tuple[dict[str, str | bytes], str]] = {
    "a missing column": (
        {"train.csv": csv(FEW, "text,lable")},
        r'train\.csv has no column "label"\. .*: text, lable\. Did you mean "lable"\? Name ',
    ),
    "a label column with another name in test": (
        {"train.csv": CSV, "test.jsonl": jsonl(FEW).replace("label", "Label ")},
        r'test\.jsonl has no column "label"\. .*: text, Label \. Did you mean "Label "\? Use the .* names of train',
    ),
    "a second header": (
        {"train.csv": CSV + CSV},
        r"train\.csv line 42 repeats the header, .*Remove the line",
    ),
    "a duplicate column": (
        {"train.csv": csv([(*row, 1) for row in FEW], "text,label,label")},
        r'2 columns named "label"\. Rename',
    ),
    "two candidates": (
        {"train.csv": CSV, "train.tsv": CSV},
        r"data/custom has several candidates for train: train\.csv, train\.tsv\. Keep only one",
    ),
    "no train file": (
        {"my.csv": CSV},
        r"data\.directory: .* no train file\. It contains: my\.csv\. Call your file train\.csv",
    ),
    "a directory of save_to_disk": (
        {"data-00000-of-00001.arrow": b"", "state.json": "{}"},
        r"no train file\. It contains: data-00000.*\. Read its directory with datasets\.load_from_disk",
    ),
    "archives": ({"train.csv.zip": b"PK"}, r"no train file\. It contains: train\.csv\.zip\. Unpack it first\. "),
    "a directory for each label": (
        {"pos/1.txt": "Great", "neg/1.txt": "Awful"},
        r"It contains: neg, pos\. If the names of directories are labels, write a table train\.csv",
    ),
    "a missing directory": ({}, r"data\.directory: data/custom does not exist"),
    "an unsupported suffix": ({"train.xml": "x"}, r"train\.xml has an unsupported suffix\. Save .* \.csv"),
    "too few fields": ({"train.tsv": CSV.replace(",", "\t") + "a\n"}, r"train\.tsv line 42 .*, got 1\. .*quotes"),
    "an unclosed quote": ({"train.csv": CSV + '"a\nb,good\n'}, r"train\.csv line 42 cannot be read .*double quotes"),
    "a line that is not JSON": (
        {"train.jsonl": jsonl(FEW) + "{'a': 1}\n"},
        r"train\.jsonl line 41 cannot be read as JSON: .*\. Write",
    ),
    "a duplicate key": (
        {"train.jsonl": jsonl(FEW) + '{"text": "a", "label": "good", "text": "b"}\n'},
        r"train\.jsonl line 41 cannot be read as JSON: the key 'text' occurs more than once\. Write",
    ),
    "a line that is not an object": ({"train.jsonl": jsonl(FEW) + "[1]\n"}, r"jsonl line 41 .*object.*, got \[1\]\."),
    "an incomplete list": ({"train.json": "[{}, "}, r"train\.json cannot be read as JSON: .*\. Write a list"),
    "a truncated Parquet file": (
        {"train.parquet": parquet(FEW)[:300]},
        r"train\.parquet is not a complete Parquet.*\. Write",
    ),
    "Parquet that is not UTF-8": (
        {"train.parquet": parquet(FEW, compression="none", use_dictionary=False).replace(b"\0bad", b"\0b\xe9d")},
        r"train\.parquet contains text that is not UTF-8",
    ),
    "an empty file": ({"train.csv": ""}, r"train\.csv is empty\. Put rows"),
    "only a header": ({"train.csv": "text,label\n"}, r"train\.csv has no rows\. Add"),
    "an empty test file": ({"train.csv": CSV, "test.csv": "text\n"}, r"test\.csv has no rows\. Add some, or remove"),
    "a list as a text": (
        {"train.jsonl": '{"text": [1], "label": "a"}\n' + jsonl(FEW)},
        r'jsonl line 1 has \[1\] in column "text", which is not text\. Correct',
    ),
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_bad_file_is_reported_in_one_line(fault: str) -> None:
    files, message = BAD_FILES[fault]
    with pytest.raises(UserError, match=message):
        download_custom(files)
    assert not Path("data/raw").exists()


def test_a_broken_link_is_reported_in_one_line() -> None:
    Path("data/custom").mkdir(parents=True)
    Path("data/custom/train.csv").symlink_to("moved.csv")
    with pytest.raises(UserError, match=r"^data/custom/train\.csv cannot be read: No such file or directory\.$"):
        load_files({})


def test_the_line_number_in_an_error_counts_line_breaks_inside_fields() -> None:
    text = csv([('"one\ntwo\nthree"', "good")]) + "a,b,c\n"
    with pytest.raises(UserError, match=r"train\.csv line 5 .* got 3\."):
        load_files({"train.csv": text})


def test_a_file_that_changes_while_it_is_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def append_after_hashing(path: Path) -> str:
        sha256 = file_sha256(path)
        with path.open("a") as file:
            file.write("one more,good\n")
        return sha256

    monkeypatch.setattr("pipeline.sources.custom.file_sha256", append_after_hashing)
    with pytest.raises(UserError, match=r"^data/custom/train\.csv changed while it was being read\. Run"):
        load_files({"train.csv": CSV})


def test_a_column_may_be_missing_in_many_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.tabular.reading._ROWS", 10)
    lines = [
        json.dumps({"text": text, "label": label, **({"source": "web"} if number < 5 else {})})
        for number, (text, label) in enumerate(FEW)
    ]
    corpus = load_files(
        {"train.jsonl": "\n".join(lines), "dev.csv": csv([(*row, "book") for row in FEW], "text,label,source")},
        split=FIXED,
        slice_columns=["source"],
    )
    assert [row["source"] for row in examples(corpus, "train")] == ["web"] * 5 + [""] * 35


def test_a_file_with_an_unknown_name_is_reported_and_not_read(caplog: pytest.LogCaptureFixture) -> None:
    load_files({"train.csv": CSV, "my_test.csv": "x"})
    assert any("my_test.csv" in message for message in caplog.messages)


def test_a_file_that_is_only_in_the_users_repository_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "repository"))
    for name in ("train.csv", "dev.csv"):
        file = tmp_path / "repository/data/custom" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CSV)
    with pytest.raises(UserError, match=r"^data/custom/dev\.csv is missing in the copy"):
        load_files({"train.csv": CSV})
