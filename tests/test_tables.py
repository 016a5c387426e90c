"""One strict reader: every format gives the same rows, and what does not fit is one line with the file and the line."""

import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from pipeline.core.messages import UserError
from pipeline.sources.file_format import DELIMITERS, FileFormat
from pipeline.sources.tables import Table, read_bytes, read_table, write_rows

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

TEXTS = [
    "Good; very good, really", 'He said "no" | and left', "Früh am Abend, 5 €", "two\nlines", "NA", "007", " a\tb ",
]  # fmt: skip
FRAME = pd.DataFrame({"text": TEXTS, "label": list("abcdefg")})
Write = Callable[[str], Any]


def read(name: str, content: str | bytes | None = None, **file_format: Any) -> Table:
    """Write a file if there is content, and read it."""
    if content is not None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(Path(name), read_bytes(Path(name)), FileFormat(**file_format))


def write_excel(name: str) -> None:
    with Path(name).open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, "excel").writerows([["text", "label"], *FRAME.to_numpy()])


FORMATS: dict[str, tuple[str, Write]] = {
    "commas": ("a.csv", lambda name: FRAME.to_csv(name, index=False)),
    "tabs": ("a.tsv", lambda name: FRAME.to_csv(name, index=False, sep="\t")),
    "an index": ("a.csv", lambda name: FRAME.to_csv(name)),
    "a byte order mark and Windows line ends": ("a.csv", write_excel),
    "compressed": ("a.CSV.GZ", lambda name: FRAME.to_csv(name, index=False, compression="gzip")),
    "JSON Lines": ("a.ndjson", lambda name: FRAME.to_json(name, orient="records", lines=True)),
    "JSON Lines in .json": ("a.json", lambda name: FRAME.to_json(name, orient="records", lines=True)),
    "a JSON list": ("a.json", lambda name: FRAME.to_json(name, orient="records", indent=2)),
    "Parquet": ("a.PARQUET", lambda name: FRAME.set_axis(list("hijklmn")).to_parquet(name)),
    "write_rows, CSV": ("a.csv", lambda name: write_rows(FRAME, Path(name))),
    "write_rows, JSON Lines": ("a.jsonl", lambda name: write_rows(FRAME, Path(name))),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_texts(form: str) -> None:
    name, write = FORMATS[form]
    write(name)
    table = read(name)
    assert table.texts("text").tolist() == TEXTS
    assert table.texts("label").tolist() == list("abcdefg")


PIECES = [*"\",;|\t\n' a", "\r\n", "\\", "é", "😍", "\u2028", "\x00", "=1+1", "0.0", "NULL"]


@pytest.mark.parametrize("seed", range(8))
def test_random_texts_come_back_unchanged_with_the_lines_on_which_they_start(seed: int) -> None:
    rng = random.Random(seed)
    values = [["".join(rng.choices(PIECES, k=rng.randrange(9))) for _ in range(3)] for _ in range(40)]
    buffer = io.StringIO(newline="")
    options: Any = {
        "lineterminator": rng.choice(["\n", "\r\n"]),
        "quoting": rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    }
    writer = csv.writer(buffer, delimiter=DELIMITERS[seed % 4], **options)
    writer.writerow("abc")
    places = []
    for row in values:
        places.append(f"a.csv line {buffer.getvalue().count(chr(10)) + 1}")
        writer.writerow(row)
    encoding = rng.choice(["utf-8", "utf-16"])
    table = read("a.csv", buffer.getvalue().encode(encoding), encoding=encoding)
    assert table.rows.to_numpy().tolist() == values
    assert table.rows.index.tolist() == places
    lines = "\n".join(json.dumps(dict(zip("abc", row, strict=True)), ensure_ascii=seed % 2 == 0) for row in values)
    assert read("a.jsonl", lines).rows.to_numpy().tolist() == values


QUOTED = 'text,label\n"two\nlines",a\n'
BAD: dict[str, tuple[str, str | bytes, str]] = {
    "too few fields after a line break": ("a.csv", QUOTED + "b\n", r"^a\.csv line 4\b.*\b1 fields.*\b2 columns"),
    "too many fields": ("a.csv", QUOTED + "b,c,d\n", r"^a\.csv line 4\b.*\b3 fields.*\b2 columns"),
    "an open quote": ("a.csv", QUOTED + '"b\nc,d\n', r"^a\.csv line 4 is not valid CSV"),
    "an unescaped quote": ("a.csv", QUOTED + '"Good" film,a\n', r"^a\.csv line 4 is not valid CSV"),
    "a column twice": ("a.csv", "text,label,label\na,b,c\n", r'^a\.csv .*"label"'),
    "a byte that is not UTF-8": ("a.csv", QUOTED.encode() + b"fr\xfch,a\n", r"^a\.csv line 4 .*0xfc.*data\.encoding"),
    "UTF-16": ("a.csv", QUOTED.encode("utf-16"), r"^a\.csv line 1 .*0xff.*data\.encoding"),
    "half a gzip file": ("a.csv.gz", gzip.compress(QUOTED.encode())[:-9], r"^a\.csv\.gz .*gzip"),
    "a gzip file with other bytes": ("a.csv.gz", gzip.compress(b"")[:10] + b"\xff" * 9, r"^a\.csv\.gz .*gzip"),
    "a broken line": ("a.jsonl", "{}\n\n{'a': 1}\n", r"^a\.jsonl line 3 is not valid JSON"),
    "a line without an object": ("a.jsonl", '{"a": 1}\n1\n', r"^a\.jsonl line 2: .*object.*got 1\."),
    "half a list": ("a.json", '[{"a": 1}, ', r"^a\.json is not valid JSON"),
    "half a Parquet file": ("a.parquet", b"PAR1\x00\x01PAR1", r"^a\.parquet .*Parquet"),
    "a spreadsheet": ("a.xlsx", b"PK", r"^a\.xlsx: .*\.csv, \.tsv"),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_does_not_fit_is_one_line_with_the_file_and_the_line(fault: str) -> None:
    name, content, message = BAD[fault]
    with pytest.raises(UserError, match=message) as error:
        read(name, content)
    assert "\n" not in str(error.value)


def test_the_first_line_decides_the_delimiter_unless_the_user_sets_it() -> None:
    assert read("a.csv", "text;label,x\na;b\n", delimiter=";").rows.columns.tolist() == ["text", "label,x"]
    assert read("a.csv", "text,label\na;b;c;d,e\n").texts("text").tolist() == ["a;b;c;d"]
    assert read("a.tsv", "text\tx,y,z\na,b\tc\n").texts("text").tolist() == ["a,b"]
    with pytest.raises(UserError, match=r'no column "text".*: text,label\.'):
        read("a.csv", "text,label\na,b\n", delimiter=";").require(["text"])


def test_without_a_header_and_without_names_columns_are_numbered() -> None:
    table = read("a.csv", "a,b,c\nd,e,f\n", header=False)
    assert table.rows.to_dict("list") == {"column_1": ["a", "d"], "column_2": ["b", "e"], "column_3": ["c", "f"]}
    assert table.rows.index.tolist() == ["a.csv line 1", "a.csv line 2"]
    table = read("a.csv", ", text ,\n0,a,x\n\n1,b,\n")  # The blank line is not a row.
    assert table.rows.to_dict("list") == {"column_1": ["0", "1"], "text": ["a", "b"], "column_3": ["x", ""]}
    assert table.rows.index.tolist() == ["a.csv line 2", "a.csv line 4"]
    for empty in ("", "text,label\n"):
        assert read("a.csv", empty).rows.empty


NESTED = [{"id": 1, "review": {"text": "a", "by": {"name": "x"}}}, {"id": None, "review": None}, {"id": 3}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet"])
def test_a_field_of_an_object_is_a_column_and_missing_values_are_empty_texts(name: str) -> None:
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(NESTED), name)
    else:
        Path(name).write_text(json.dumps(NESTED) if name == "a.json" else "\n".join(map(json.dumps, NESTED)))
    table = read(name)
    assert table.texts("review.text").tolist() == ["a", "", ""]
    assert table.texts("review.by.name").tolist() == ["x", "", ""]
    assert table.texts("id").tolist() == ["1", "", "3"], "a missing value does not turn the others into floats"
    with pytest.raises(UserError, match=r'^a\..*Did you mean "review\.text"'):
        table.require(["review.txt"])


def test_numbers_and_booleans_are_texts_as_they_are_written_and_lists_are_not_texts() -> None:
    row = {"a": -1, "b": 1.0, "c": True, "d": float("nan"), "e": 2**60 + 1, "f": [1], "g": "\ud83d"}
    table = read("a.jsonl", json.dumps(row))
    assert [table.texts(name).item() for name in "abcde"] == ["-1", "1.0", "True", "", str(2**60 + 1)]
    for name, value in (("f", r"\[1\]"), ("g", r"'\\ud83d'")):
        with pytest.raises(UserError, match=rf'^a\.jsonl line 1: "{name}" is {value}'):
            table.texts(name)


def test_parquet_files_of_datasets_have_the_names_of_classes_and_no_images() -> None:
    names = ClassLabel(names=["no", "yes"])
    features = {"label": names, "tags": List(names), "answer": {"verdict": names}, "image": Value("binary")}
    rows = [
        {"label": 1, "tags": [0, 1], "answer": {"verdict": 0}, "image": b"\x00"},
        {"label": -1, "tags": [], "answer": {"verdict": None}, "image": None},
    ]
    Dataset.from_list(rows, Features(features)).to_parquet("a.parquet")
    table = read("a.parquet")
    assert table.rows.to_dict("list") == {
        "label": ["yes", None], "tags": [["no", "yes"], []], "answer.verdict": ["no", None],
    }  # fmt: skip
    assert table.classes == {name: ["no", "yes"] for name in ("label", "tags", "answer.verdict")}
    assert table.rows.index.tolist() == ["a.parquet row 0", "a.parquet row 1"]
