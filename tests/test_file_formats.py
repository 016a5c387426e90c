"""Files of other programs give the same rows, and a file in an unclear format is reported in one line."""

import csv
import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from custom_files import jsonl, load_files, rows
from datasets import ClassLabel, Dataset, Features, Value

from pipeline.core.messages import UserError
from pipeline.onboarding.header import guess_header
from pipeline.sources.files import find_files
from pipeline.tabular.file_format import FileFormat, detect_delimiter, read_head
from pipeline.tabular.reading import ColumnSelection, read_file

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

TEXTS = [
    "Good; very good, really",
    'He said "no" | and left',
    "Früh am Abend, 5 €",
    "two\nlines",
    "NA",
    "It's 5 o'clock",
]
LABELS = ["good", "bad", "007", "bad", "good", "good"]
FRAME = pd.DataFrame({"text": TEXTS, "label": LABELS})
NO_HEADER = FileFormat(header=False)
Write = Callable[[Path], Any]


def read(path: Path, file_format: FileFormat = FileFormat(), **selection: Any) -> list[dict[str, Any]]:  # noqa: B008
    columns = ColumnSelection(**{"wanted": ["text", "label"], **selection})
    batches = list(read_file(path, columns, file_format=file_format))
    return [
        dict(zip(batch.columns, row, strict=True))
        for batch in batches
        for row in zip(*batch.columns.values(), strict=True)
    ]


def excel(**options: Any) -> Write:
    """Return a function that writes a file in the dialect of Excel."""

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding=options.get("encoding", "utf-8-sig")) as file:
            file.write(options.get("first_line", ""))
            delimiter = options.get("delimiter", ",")
            writer = csv.writer(file, dialect="excel", delimiter=delimiter, quoting=options.get("quoting", 0))
            writer.writerows([["text", "label"], *zip(TEXTS, LABELS, strict=True)])

    return write


def add_separators(path: Path) -> None:
    """Write what a spreadsheet program writes if cells to the right were in use."""
    FRAME.assign(empty=None, empty_too=None).to_csv(path, index=False, header=["text", "label", "", ""], sep=";")


def write_like_r(path: Path) -> None:
    """Write what R's `write.csv2` writes: quoted texts, and the names of the rows in a column with an empty name."""
    quoted = ['"' + text.replace('"', '""') + '"' for text in TEXTS]
    lines = [f'"{number}";{text};"{label}"' for number, (text, label) in enumerate(zip(quoted, LABELS, strict=True), 1)]
    path.write_text('"";"text";"label"\n' + "\n".join(lines) + "\n")


PROGRAMS: dict[str, tuple[str, Write]] = {
    "pandas": ("a.csv", lambda path: FRAME.to_csv(path, index=False)),
    "pandas with an index": ("a.csv", lambda path: FRAME.to_csv(path)),
    "pandas with semicolons": ("a.csv", lambda path: FRAME.to_csv(path, index=False, sep=";")),
    "pandas with tabs in a .csv": ("a.csv", lambda path: FRAME.to_csv(path, index=False, sep="\t")),
    "pandas with bars": ("a.csv", lambda path: FRAME.to_csv(path, index=False, sep="|")),
    "pandas with commas in a .tsv": ("a.tsv", lambda path: FRAME.to_csv(path, index=False)),
    "pandas, every field quoted": ("A.CSV", lambda path: FRAME.to_csv(path, index=False, quoting=csv.QUOTE_ALL)),
    "pandas, compressed": ("a.CSV.GZ", lambda path: FRAME.to_csv(path, index=False, sep=";", compression="gzip")),
    "pandas, JSON lines": ("a.ndjson", lambda path: FRAME.to_json(path, orient="records", lines=True)),
    "pandas, compressed JSON lines": ("a.json.gz", lambda path: FRAME.to_json(path, orient="records", lines=True)),
    "pandas, a JSON list": ("a.json", lambda path: FRAME.to_json(path, orient="records")),
    "pandas, a compressed and indented list": (
        "a.Json.gz",
        lambda path: FRAME.to_json(path, orient="records", indent=2, compression="gzip"),
    ),
    "pandas, Parquet with an index": ("a.PARQUET", lambda path: FRAME.set_axis(list("abcdef")).to_parquet(path)),
    "Excel": ("a.csv", excel()),
    "Excel in Germany": ("a.csv", excel(delimiter=";")),
    "Excel with its own first line": ("a.csv", excel(delimiter=";", first_line="sep=;\r\n")),
    "trailing separators": ("a.csv", add_separators),
    "R": ("a.csv", write_like_r),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_files_of_other_programs_give_the_same_rows(program: str, caplog: pytest.LogCaptureFixture) -> None:
    name, write = PROGRAMS[program]
    write(Path(name))
    expected = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    assert read(Path(name)) == expected
    assert read(Path(name), keep_rest=True) == expected, "columns without a name are left out"
    if ".csv" in name.lower() or ".tsv" in name.lower():
        assert guess_header(read_head(Path(name), FileFormat()).rows())
    assert not caplog.messages


@pytest.mark.parametrize(
    ("encoding", "write"),
    [
        ("cp1252", excel(encoding="cp1252", delimiter=";")),
        ("latin-1", excel(encoding="cp1252")),
        ("windows-1252", lambda path: path.write_text(FRAME.to_json(orient="records", force_ascii=False), "cp1252")),
        ("utf-16", excel(encoding="utf-16", delimiter="\t")),
        ("utf-16-be", excel(encoding="utf-16-be")),
        ("UTF-8-SIG", excel(encoding="utf-8-sig")),
        ("UTF-16", lambda path: path.write_text(FRAME.to_json(orient="records", force_ascii=False), "utf-16")),
    ],
)
def test_other_encodings_are_read_if_they_are_set(encoding: str, write: Write) -> None:
    path = Path("a.csv")
    write(path)
    path = path.rename("a.json") if "{" in path.read_text(encoding) else path
    assert [row["text"] for row in read(path, FileFormat(encoding=encoding))] == TEXTS
    if encoding == "UTF-8-SIG":
        return
    western = r" \(in a command, --encoding\) to its encoding, such as cp1252 \(Western European\), mac_roman "
    remedy = rf"data\.encoding(=utf-16 \(in a command, --enc| to utf-16-le .* \(in a command, --encoding\)|{western})"
    with pytest.raises(UserError, match=rf"^a\.\S+ .*{remedy}"):
        read(path)


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        ("text,label\nFrüh,good\n".encode(), "cp1252", r"a\.csv is UTF-8 text, not cp1252\. Set data\.encoding=utf-8 "),
        (b"\xef\xbb\xbftext,label\na,good\n", "cp1252", r"UTF-8 text, not cp1252"),
        (b"text,label\na,good\n", "utf-16", r"UTF-8 text, not utf-16"),
        (b"text,label\n\x81,good\n", "cp1252", r"a\.csv line 2 contains the byte 0x81, .* not valid in cp1252\."),
        (b"text,label\n\x81,good\n", "latin-1", r"a\.csv line 2 contains the byte 0x81, .* not valid in latin-1\."),
        ("text,label\na,good\n".encode("utf-16")[:-1], "utf-16", r"a\.csv cannot be read as utf-16"),
        ("\ufefftext,label\na,good\n".encode("utf-16-le"), "utf-16-le", r"UTF-16 text, not utf-16-le\. Set .*=utf-16 "),
        (b"text,label\n", "base64", '"base64" is not a text encoding'),
        (b"\x00\x01\x00\x00\x02\x00" * 50, "utf-8", r"null bytes"),
    ],
)
def test_a_wrong_encoding_is_reported_in_one_line(content: bytes, encoding: str, message: str) -> None:
    Path("a.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(Path("a.csv"), FileFormat(encoding=encoding))


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("text,label\na;b,c\n", ","),
        ("text;label\na, b;c\nd, e;f\n", ";"),
        ('text;label\n"a;b";c\n"several\nlines;\n', ";"),
        ("text\tlabel\na, b\tc;d\n", "\t"),
        ("a|b|c\n1|2|3\n", "|"),
        ("text\na; b\nc; d\n", ","),
        ('text\n"a, b"\n"c, d, e"\n', ","),
        ("a;b,c\nd;e,f\n", ","),
        ("text,label\na,b,good\nc,d,e,good\nf,good\n", ","),
        ("text;label\na;b;c\nd;e\nf;g\n", ";"),
        ("Good film;0,5\nBad film;1,5\n", ";"),
        ("A; B,0\nC; D,1\n", ","),
        ('text\n"Costs 3,50 today"\nGood; bad\nFine\n', ","),
        ("", ","),
    ],
)
def test_the_delimiter_is_the_one_that_splits_all_rows_alike(text: str, delimiter: str) -> None:
    assert detect_delimiter(text.splitlines(keepends=True), ",") == delimiter


def test_the_users_delimiter_is_used() -> None:
    Path("a.csv").write_text("sep=,\na,x;good\nb,y;bad\n")
    assert read(Path("a.csv"), FileFormat(";", header=False), wanted=["column_1"]) == [
        {"column_1": "a,x"}, {"column_1": "b,y"},
    ]  # fmt: skip
    with pytest.raises(UserError, match=r'no column "text"\. Its columns are: text,label\.'):
        Path("b.csv").write_text("text,label\na,good\n")
        read(Path("b.csv"), FileFormat(";"))


def test_an_error_after_excels_line_names_the_line_of_the_file() -> None:
    Path("a.csv").write_text("sep=;\ntext;label\na;good\nb\n")
    with pytest.raises(UserError, match=r"^a\.csv line 4 .* got 1\. .*semicolon"):
        read(Path("a.csv"))


@pytest.mark.parametrize(
    ("content", "has_header"),
    [
        ("text,label\nGreat,good\nAwful,bad\n", True),
        ("Great,good\nAwful,bad\nFine,good\n", False),
        (
            "I have rarely seen a film that was this good.\n"
            + "The actors are bad; the music is even worse, really.\n" * 3,
            False,
        ),
        ("What did you like the most about the course?\nAll\nNothing\n", True),
        ("Great,5\nAwful,1\n", False),
        ("id,Text,spam\n1,Great,ham\n2,Awful,spam\n", True),
        ("text,0,1\nGreat,0,1\n", True),
        ("0,1\nGreat,good\n", True),
        (",text,label\n0,Great,good\n", True),
        (",\nGreat,good\n", False),
        ("text,label,,\nGreat,good,,\n", True),
        ("text\n", True),
        ("mail,kind\nGreat,good\nmail,kind\nAwful,bad\n", True),  # joined files
        ("What did you like about the course, in your own words?\tStars\n" + f"{'So good. ' * 9}\t5\n" * 3, True),
    ],
)
def test_the_first_row_is_data_if_its_names_look_like_values(content: str, has_header: bool) -> None:
    path = Path("a.tsv" if content.startswith(("I ", "What")) else "a.csv")
    path.write_text(content)
    assert guess_header(read_head(path, FileFormat()).rows()) == has_header


def test_columns_without_names_are_numbered() -> None:
    FRAME.to_csv("a.csv", index=False, header=False, sep=";")
    records = read(Path("a.csv"), NO_HEADER, wanted=["column_2", "column_1"])
    assert [(row["column_1"], row["column_2"]) for row in records] == list(zip(TEXTS, LABELS, strict=True))


@pytest.mark.parametrize("length", [200_000, 10_000_001])
def test_a_field_has_at_most_ten_million_characters(length: int) -> None:
    Path("a.csv").write_text(f"text,label\n{'x' * length},good\n")
    if length == 200_000:
        assert read(Path("a.csv")) == [{"text": "x" * length, "label": "good"}]
    else:
        with pytest.raises(UserError, match=r"^a\.csv line 2 cannot be read \(field larger than field limit"):
            read(Path("a.csv"))


def test_a_space_before_each_quote_is_skipped_if_the_header_has_one_too() -> None:
    Path("a.csv").write_text('label, text\ngood, "Great, really"\nbad, plain\n')
    assert read(Path("a.csv")) == [{"label": "good", "text": "Great, really"}, {"label": "bad", "text": "plain"}]
    Path("a.csv").write_text('label,text\ngood, "Great"\nbad,plain\n')
    assert read(Path("a.csv"))[0]["text"] == ' "Great"'
    Path("a.csv").write_text("label, text\ngood, plain\n")
    assert read(Path("a.csv"))[0]["text"] == " plain"


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ('text\tlabel\n"Good" film\tgood\n', {"sep": "\t", "quoting": 3}),
        ('text,label\n"\\"Good\\" film",good\n', {"escapechar": "\\"}),
    ],
)
def test_a_file_with_other_quotes_can_be_converted_as_the_page_says(content: str, options: dict[str, Any]) -> None:
    Path("raw.tsv").write_text(content)
    with pytest.raises(UserError, match=r'line 2 cannot be read .*see "Files" in docs/data_files\.md\.$'):
        read(Path("raw.tsv"))
    pd.read_csv("raw.tsv", **options, dtype=str, keep_default_na=False).to_csv("train.csv", index=False)
    assert read(Path("train.csv")) == [{"text": '"Good" film', "label": "good"}]


@pytest.mark.parametrize(("name", "delimiter"), [("a.tsv", "\t"), ("a.csv", "|")])
def test_rows_that_quotes_join_are_reported_once(name: str, delimiter: str, caplog: pytest.LogCaptureFixture) -> None:
    joined = '"Great movie, I said\tpos\nsecond\tneg\nlast word was bad"\tpos\n'
    Path(name).write_text(f"text\tlabel\nfirst\tpos\n{joined}{joined}".replace("\t", delimiter))
    assert len(read(Path(name))) == 3
    first, count = caplog.messages
    assert first.startswith(f"{name} lines 3 to 5 are read as one row")
    assert count == f"{name}: double quotes join several lines in 2 rows, first in line 3"


@pytest.mark.parametrize(
    ("content", "warns"),
    [
        ('text,label\nfirst,pos\n"Great, I said,neg\nthe last word,pos\nwas bad",pos\nsecond,neg\n', True),
        ('label,text\npos,first\npos,"Great, I said\nneg,the last word was bad"\nneg,second\n', True),
        ('text,label\nfirst,pos\n"Great, I said,\nbut, in the end, it\nwas bad",pos\nsecond,neg\n', False),
        ('text,label,\nfirst,pos,\n"Great,\nI said",pos,\nsecond,neg,\n', False),
        ('text,label\nfirst,pos\n"Great\n\npos\n",pos\nsecond,neg\n', False),
    ],
)
def test_rows_that_quotes_join_in_a_file_with_commas_are_recognized_by_their_values(
    content: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    Path("a.csv").write_text(content)
    assert len(read(Path("a.csv"))) == 3
    assert ("are read as one row" in caplog.text) == warns


@pytest.mark.parametrize("header", ["v1,v2,,,", "v1,v2,Unnamed: 2,Unnamed: 3,Unnamed: 4"])
def test_data_in_columns_without_a_name_is_reported_once(header: str, caplog: pytest.LogCaptureFixture) -> None:
    """Some programs end every row with the same number of commas, but do not quote texts. pandas names the columns."""
    lines = [header, "ham,Fine,,,", "ham,Hello, how are you, my dear,", "spam,Win,,, ", "ham,Yes, I am,,"]
    Path("a.csv").write_text("\n".join(lines))
    assert [row["v2"] for row in read(Path("a.csv"), wanted=["v1", "v2"])] == ["Fine", "Hello", "Win", "Yes"]
    [message] = caplog.messages
    assert message.startswith("a.csv has data in columns without a name in 2 rows, first in line 3.")
    assert "enclose it in double quotes" in message
    assert list(read(Path("a.csv"), wanted=["v1"], keep_rest=True)[0]) == ["v1", "v2"]


def test_texts_in_a_first_column_without_a_name_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    FRAME.assign(text=FRAME["text"] + " and some more words").set_index("text").to_csv("a.csv", index_label="")
    read(Path("a.csv"), wanted=["label"])
    [message] = caplog.messages
    assert message.startswith("a.csv has data in columns without a name in ")
    assert "name or remove the columns" in message


def test_files_with_byte_order_marks_can_be_joined() -> None:
    rows = "text,label\nGreat,good\n".encode("utf-8-sig")
    Path("a.csv").write_bytes(rows + rows)
    with pytest.raises(UserError, match=r"^a\.csv line 3 repeats the header"):
        read(Path("a.csv"))
    rows = '{"text": "Great"}\n'.encode("utf-8-sig")
    Path("a.jsonl").write_bytes(rows + rows)
    assert read(Path("a.jsonl"), wanted=["text"]) == [{"text": "Great"}, {"text": "Great"}]


def test_an_index_that_pandas_has_named_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    Path("a.csv").write_text("Unnamed: 0.1,Unnamed: 0,text,label\n0,0,Fine,good\n")
    assert read(Path("a.csv"), keep_rest=True) == [{"text": "Fine", "label": "good"}]
    assert not caplog.messages


def test_an_unnamed_column_can_be_selected() -> None:
    FRAME.to_csv("a.csv")
    assert [row[""] for row in read(Path("a.csv"), wanted=[""])] == list("012345")


NESTED = [{"id": 1, "review": {"text": "a", "by": {"name": "x"}}}, {"id": 2, "review": None}, {"id": 3}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet"])
def test_a_dotted_name_selects_a_nested_field(name: str) -> None:
    path = Path(name)
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(NESTED), path)
    elif name == "a.json":
        path.write_text(json.dumps(NESTED))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in NESTED))
    assert read(path, wanted=["review.text", "review.by.name", "id"]) == [
        {"review.text": "a", "review.by.name": "x", "id": 1},
        {"review.text": None, "review.by.name": None, "id": 2},
        {"review.text": None, "review.by.name": None, "id": 3},
    ]  # in another order of columns
    kept = read(path, wanted=["review.text"], keep_rest=True)[0]
    assert (kept["id"], kept["review"]["by"]["name"], kept["review.text"]) == (1, "x", "a")
    with pytest.raises(
        UserError, match=r"Its columns are: id, review, review\.text, review\.by.* mean \"review\.text\""
    ):
        read(path, wanted=["review.txet"])


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_column_with_a_dot_in_its_name_comes_before_a_nested_field(name: str) -> None:
    row = {"a.b": "outer", "a": {"b": "inner"}}
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist([row]), name)
    else:
        Path(name).write_text(json.dumps(row))
    assert read(Path(name), wanted=["a.b"]) == [{"a.b": "outer"}]


def test_nested_class_labels_have_their_names() -> None:
    features = Features({"text": Value("string"), "answer": {"label": ClassLabel(names=["no", "yes"])}})
    Dataset.from_list([{"text": "a", "answer": {"label": 1}}], features=features).to_parquet("a.parquet")
    [batch] = read_file(Path("a.parquet"), ColumnSelection(["answer.label"]))
    assert batch.columns == {"answer.label": [1]}
    assert batch.class_names["answer.label"] == ["no", "yes"]
    assert batch.class_names is batch.class_names, "the schema is parsed once"


def test_a_single_object_is_a_row_unless_it_contains_whole_columns() -> None:
    Path("a.json").write_text('\n{"text": "a", "label": "b", "tags": ["c"]}')
    assert read(Path("a.json")) == [{"text": "a", "label": "b"}]
    Path("a.jsonl").write_text('{"review": {"text": "a"}}\n' * 2)
    assert len(read(Path("a.jsonl"), wanted=["review.text"])) == 2


def truncated_gzip() -> bytes:
    return gzip.compress(FRAME.to_csv(index=False).encode() * 100)[:-20]


BAD_FILES: dict[str, tuple[str, bytes | str, str]] = {
    "gzip without .gz": ("a.csv", truncated_gzip(), r"^a\.csv contains null bytes, .* correct its suffix \(\.gz, "),
    ".gz without gzip": ("a.csv.gz", "text,label\n", r"^a\.csv\.gz is not a complete gzip file \(Not a gzipped file"),
    "truncated gzip": ("a.csv.gz", truncated_gzip(), r"^a\.csv\.gz is not a complete gzip file .*again\.$"),
    "damaged gzip": ("a.json.gz", b"\x1f\x8b\x08\x00" + b"x" * 50, r"^a\.json\.gz is not a complete gzip file .*again"),
    "an empty file in gzip": ("a.csv.gz", gzip.compress(b""), r"a\.csv\.gz is empty"),
    "compressed Parquet": ("a.parquet.gz", gzip.compress(b"PAR1"), r"a\.parquet\.gz has an unsupported suffix"),
    "Excel": ("a.xlsx", b"PK\x03\x04", r"a\.xlsx is a spreadsheet\. .*CSV UTF-8.*read_excel"),
    "a table in a text file": (
        "a.txt",
        "text\tlabel\n",
        r"a\.txt has an unsupported .* table, rename it to \.csv or \.tsv\.$",
    ),
    "a ZIP archive": ("a.csv.zip", b"PK\x03\x04", r"a\.csv\.zip has an unsupported suffix\. Unpack it first\.$"),
    "save_to_disk": ("a.arrow", b"\xff", r"a\.arrow has an unsupported .*load_from_disk, .*to_parquet\.$"),
    "a list of lists": (
        "a.json",
        FRAME.to_json(orient="values"),
        r"a\.json row 0 must be a JSON object .*, got \['Good",
    ),
    "pandas, columns": (
        "a.json",
        FRAME.to_json(),
        r"^a\.json contains a single object, .* Write a list of objects, or",
    ),
    "pandas, rows by an index": ("a.json", FRAME.to_json(orient="index"), r"a\.json contains a single object"),
    "pandas, lists of values": ("a.json", FRAME.to_json(orient="split"), r"a\.json contains a single object"),
    "pandas, a table": ("a.json", FRAME.to_json(orient="table"), r"a\.json contains a single object"),
    "pandas, indented columns": (
        "a.json",
        FRAME.to_json(indent=1),
        r"^a\.json line 1 cannot be read .* Write a list of objects, or one object per line",
    ),
    "the answer of a web service": (
        "a.json",
        json.dumps({"data": FRAME.to_dict("records"), "next": None}),
        r'a\.json has no column "text"\. Its columns are: data, next\.',
    ),
    "a key twice": ("a.json", '[{"text": "a", "text": "b", "label": "x"}]', r"the key 'text' occurs more than once"),
    "R, row names without a column name": (
        "a.tsv",
        '"text"\t"label"\n"1"\t"a"\t"good"\n"2"\t"b"\t"bad"\n',
        r"a\.tsv line 2 must .* the header \(2\), got 3\. .*row\.names=FALSE",
    ),
    "a comma in a single row": (
        "a.csv",
        "text,label\na,good\nb,c,good\n",
        r"line 3 must .* got 3\. .* double quotes\.$",
    ),
    "an ambiguous delimiter": (
        "a.csv",
        "text;label\na;b;c;good\nd;e;f;g;bad\n",
        r'"text"\. Its columns are: text;label\.',
    ),
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_file_in_an_unclear_format_is_reported_in_one_line(fault: str) -> None:
    name, content, message = BAD_FILES[fault]
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        read(Path(name))


def test_lines_above_the_column_names_are_an_error_that_says_what_to_do() -> None:
    Path("a.csv").write_text("# exported today\ntext,label\na,good\n")
    remedy = r"Remove any lines above the column names\. .* \(in a command, --delimiter\)\.$"
    with pytest.raises(UserError, match=rf"^a\.csv line 2 must .* the header \(1\), got 2\. .*{remedy}"):
        read(Path("a.csv"), wanted=[], keep_rest=True)


def test_the_settings_of_params_yaml_reach_every_file() -> None:
    few = rows(40, ["good", "bad"])
    content = "".join(f"{text} é;{label}\n" for text, label in few).encode("cp1252")
    shards = {f"Train-{number:05}-of-00002.CSV.gz": gzip.compress(content) for number in range(2)}
    changes = {
        "encoding": "cp1252",
        "header": False,
        "text_column_names": ["column_1"],
        "label_column_name": "column_2",
    }
    corpus = load_files({**shards, "dev/1.csv": content}, **changes, split={"type": "fixed"})
    assert {split: len(table) for split, table in corpus.splits.items()} == {"train": 80, "validation": 40}
    assert corpus.splits["train"]["column_1"].tolist() == [f"{text} é" for text, _ in few] * 2


DROPPINGS = [
    ".DS_Store", "Thumbs.db", "desktop.ini", ".~lock.train.csv#", "~$train.csv", "train.csv~", ".train.csv.swp",
    "train.csv.swp", ".ipynb_checkpoints/train-checkpoint.csv",
]  # fmt: skip


@pytest.mark.parametrize("directory", ["data/custom", "data/custom/train"])
def test_droppings_of_systems_and_editors_are_not_data(directory: str, caplog: pytest.LogCaptureFixture) -> None:
    data = jsonl(rows(40, ["good", "bad"]))
    load_files({"train/a.jsonl": data, **{f"../../{directory}/{name}": "\0" for name in DROPPINGS}})
    assert find_files(Path("data/custom")) == {"train": [Path("data/custom/train/a.jsonl")]}
    assert not any("ignored" in message for message in caplog.messages)


def test_droppings_do_not_mark_a_stage_as_outdated(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".dvcignore", tmp_path)
    subprocess.run(["dvc", "init", "--quiet", "--no-scm"], check=True)
    droppings = [f"{directory}/{name}" for directory in ("data/custom", "data/custom/train") for name in DROPPINGS]
    command = ["dvc", "check-ignore", *droppings, "data/custom/train/a.csv"]
    assert subprocess.check_output(command, text=True).splitlines() == droppings
