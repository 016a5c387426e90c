"""`python -m pipeline.classify` scores new texts like the predict stage, and reads and writes every file format."""

import csv
import functools
import gc
import io
import json
import os
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import TinyMaker, read_logits, update_json
from custom_files import parquet_file
from kinds import TASKS, train_task

from pipeline.classify import classify, main
from pipeline.core.messages import UserError
from pipeline.core.paths import CLASSIFIER, METRICS_DIR, PREDICTIONS, SETTINGS, TOKENIZED
from pipeline.core.task import read_task
from pipeline.modeling import device
from pipeline.modeling.classifier import Classifier
from pipeline.params import Params, Precision
from pipeline.predict import predict
from pipeline.tabular.writing import writing_rows

Trained = Callable[..., Path]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, params: Params, tiny: TinyMaker) -> Trained:
    """Run the stages up to predict for a type of task, and return the output directory."""

    def make(task: str, precision: Precision = "fp32") -> Path:
        out = train_task(task, tmp_path_factory.mktemp(task), tiny(), params, lr=2e-3, precision=precision)
        predict(out / TOKENIZED, out / CLASSIFIER, out / PREDICTIONS, out / METRICS_DIR, params.predict, precision, 1)
        return out

    return functools.cache(make)


@pytest.mark.parametrize(("task", "precision"), [*((task, "fp32") for task in TASKS), ("classes", "bf16")])
def test_the_logits_match_the_predict_stage(task: str, precision: Precision, trained: Trained) -> None:
    out = trained(task, precision)
    columns = read_task(out / "raw", "download").text_columns
    raw = pq.read_table(out / "raw" / "test.parquet")
    model = out / CLASSIFIER
    classifier = Classifier(model, 64, precision)
    texts = [raw[name].to_pylist() for name in columns]
    scored, truncated = classifier.score(texts)
    noise = 1e-5 if precision == "fp32" else 0.02  # the padding depends on the other rows of a batch
    logits = read_logits(out / PREDICTIONS / "test.parquet")
    np.testing.assert_allclose(scored, logits, atol=noise)
    subset, _ = classifier.score([column[3:5] for column in texts])
    np.testing.assert_allclose(subset, logits[3:5], atol=noise)
    assert truncated > 0, "some of these texts are longer than 24 tokens"


@pytest.mark.parametrize("task", TASKS)
def test_the_predictions_have_the_exact_labels(task: str, trained: Trained) -> None:
    out = trained(task)
    labels, expected = (
        pq.read_table(out / directory / "validation.parquet")["label"] for directory in (PREDICTIONS, "raw")
    )
    assert labels.to_pylist() == expected.to_pylist()


def test_scored_rows_do_not_stay_in_memory(trained: Trained) -> None:
    classifier = Classifier(trained("classes") / CLASSIFIER, 64)
    examples = []
    score = classifier._trainer.predict

    def predict(rows: Any) -> Any:
        examples.append(weakref.ref(rows))
        return score(rows)

    classifier._trainer.predict = predict  # type: ignore[method-assign]
    for _ in range(2):
        classifier.score([["a text", "another text"]])
    gc.collect()
    assert examples[0]() is None, "the Trainer itself keeps the last ones"


ROWS: list[dict[str, Any]] = [
    {"id": number, "text": f'{city} sued "{number}" firms , it said .', "source": "web"}
    for number, city in enumerate(["Boston", "Denver", "Boston", "Chicago", "Denver"])
]


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    return pd.DataFrame(rows).to_csv(index=False, sep=delimiter).encode()  # type: ignore[no-any-return]


def as_json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.mark.parametrize(
    ("source", "content", "target"),
    [
        ("in.csv", as_csv(ROWS), "out.parquet"),
        ("in.tsv", as_csv(ROWS, "\t"), "out.csv"),
        ("in.jsonl", as_json_lines(ROWS), "out.tsv"),
        ("in.json", json.dumps(ROWS).encode(), "out.jsonl"),
    ],
)
def test_every_format_is_read_and_written(
    source: str, content: bytes, target: str, trained: Trained, tmp_path: Path
) -> None:
    (tmp_path / source).write_bytes(content)
    model = trained("classes") / CLASSIFIER
    classify(model, tmp_path / source, tmp_path / target, False, 64)
    labels = TASKS["classes"].labels
    rows = read(tmp_path / target)
    assert [list(row) for row in rows] == [
        ["id", "text", "source", "prediction", *(f"probability_{label}" for label in labels)]
    ] * len(ROWS), "the columns of the input in their order, then the answers"
    assert [(int(row["id"]), row["text"], row["source"]) for row in rows] == [tuple(row.values()) for row in ROWS]
    logits, _ = Classifier(model, 64).score([[row["text"] for row in ROWS]])
    probabilities = torch.tensor(logits).softmax(-1).numpy()
    for row, expected in zip(rows, probabilities, strict=True):
        assert np.allclose([float(row[f"probability_{label}"]) for label in labels], expected, atol=1e-6)
        assert row["prediction"] == labels[expected.argmax()]


def test_options_describe_the_format_of_the_file(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shutil.copytree(trained("classes") / CLASSIFIER, tmp_path / "model")
    update_json(model / SETTINGS, text_columns=["column_1"])
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("Früh, sagte er\t1\n", "cp1252")
    options = ["--encoding", "cp1252", "--no-header", "--delimiter", "tab"]
    monkeypatch.setattr(sys, "argv", ["classify", "--model", "model", "--file", "in.csv", "--out", "out.csv", *options])
    main()
    [row] = read(Path("out.csv"))
    assert list(row)[:3] == ["column_1", "column_2", "prediction"]
    assert (row["column_1"], row["column_2"]) == ("Früh, sagte er", "1")


def test_parquet_keeps_the_types_of_other_columns(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.tabular.reading._ROWS", 2)
    rows = pa.table(
        {
            "text": ["Boston"] * 3,
            "count": pa.array([None, None, 7], pa.int16()),
            "time": pa.array([1, None, 3], pa.timestamp("ns", "UTC")),
            "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
        }
    )
    pq.write_table(rows, tmp_path / "in.parquet")
    classify(trained("classes") / CLASSIFIER, tmp_path / "in.parquet", tmp_path / "out.parquet", False, 64)
    assert pq.read_table(tmp_path / "out.parquet").select(rows.column_names).equals(rows)


@pytest.mark.parametrize("value", [2**70, "\ud800"])
def test_a_value_that_parquet_cannot_store_is_reported(value: int | str, tmp_path: Path) -> None:
    message = r"out\.parquet: a column has values that Parquet cannot store .* \.jsonl file"
    with pytest.raises(UserError, match=message), writing_rows(tmp_path / "out.parquet") as write:
        write({"id": [value]}, {})


@contextmanager
def standard_input(file: Path) -> Iterator[None]:
    """Use a file as standard input within the block, like the shell's `<`."""
    original = os.dup(0)
    with file.open() as source:
        os.dup2(source.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(original, 0)
        os.close(original)


def test_texts_and_standard_input_are_answered_as_json_lines(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command also works in a directory without params.yaml and outside a repository."""
    model = trained("regression") / CLASSIFIER
    classify(model, ["It rained .", "On Monday it rained ."], None, False, 64)
    row = json.loads(capsys.readouterr().out)
    assert list(row) == ["one", "two", "prediction"]
    same_pair = {"two": "On Monday it rained .", "one": "It rained .", "more": None}
    lines = as_json_lines([same_pair, {"one": "a", "two": "b"}])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    monkeypatch.setattr(sys, "argv", ["classify", "--model", str(model), "--file", "-"])
    monkeypatch.setitem(sys.modules, "dvc", None)  # an import of DVC would fail
    monkeypatch.chdir(tmp_path)
    main()
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {**same_pair, "prediction": pytest.approx(row["prediction"], abs=1e-5)}
    assert list(second) == ["two", "one", "more", "prediction"]
    assert list(tmp_path.iterdir()) == [], "no file is written"


def test_several_labels_are_written_as_a_list(trained: Trained, tmp_path: Path) -> None:
    model, source = trained("multi_label") / CLASSIFIER, tmp_path / "in.parquet"
    source.write_bytes(parquet_file(pa.Table.from_pylist(ROWS)))
    for name in ("out.jsonl", "out.parquet", "out.csv"):
        classify(model, source, tmp_path / name, False, 64)
        for row in read(tmp_path / name):
            likely = [label for label in TASKS["multi_label"].labels if float(row[f"probability_{label}"]) > 0.5]
            assert row["prediction"] == ("|".join(likely) if name == "out.csv" else likely)


def test_the_first_rows_may_have_no_labels(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Parquet file gets the types of its columns from the first batch of rows."""
    model, source, out = trained("multi_label") / CLASSIFIER, tmp_path / "in.parquet", tmp_path / "out.parquet"
    source.write_bytes(parquet_file(pa.Table.from_pylist(ROWS)))
    monkeypatch.setattr("pipeline.tabular.reading._ROWS", 2)
    numbers = iter([0, 0, 1])  # of labels in the predictions of each batch
    monkeypatch.setattr(
        "pipeline.classify.logits_to_predictions",
        lambda _, logits: np.full(logits.shape, next(numbers)),
    )
    classify(model, source, out, False, 64)
    labels = TASKS["multi_label"].labels
    assert [row["prediction"] for row in read(out)] == [[], [], [], [], labels]


def test_truncated_texts_are_counted(trained: Trained, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(as_csv([*ROWS, {**ROWS[0], "text": "Boston " * 1000}]))
    classify(trained("classes") / CLASSIFIER, source, tmp_path / "out.csv", False, 64)
    assert "1 of 6 rows (16.7%) are longer than 24 tokens and were truncated" in caplog.messages


BAD_ROWS = {
    "an empty text": ("in.csv", b"id,text\n1,good\n2, \n3,fine\n", r'in\.csv line 3 has no text .*"text"\. Fill', 2),
    "a ragged row": ("in.csv", b"id,text\n1,good\n2\n3,fine\n", r"in\.csv line 3 .* got 1\. .*quotes", 2),
    "invalid JSON": ("in.jsonl", b'{"text": "good"\n{"text": "fine"}\n', r"in\.jsonl line 1 cannot be read as JSON", 1),
    "a lone surrogate": (
        "in.jsonl",
        b'{"text": "\\ud83d"}\n{"text": "fine"}\n',
        r"in\.jsonl line 1 has '.*' in column .text., which is not valid Unicode",
        1,
    ),
}


@pytest.mark.parametrize("fault", BAD_ROWS)
def test_a_bad_row_stops_the_command_or_is_skipped(
    fault: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name, content, message, kept = BAD_ROWS[fault]
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    model = trained("classes") / CLASSIFIER
    with pytest.raises(UserError, match=message) as stopped:
        classify(model, Path(name), Path("out.jsonl"), False, 64)
    assert [path.name for path in tmp_path.iterdir()] == [name], "no partial output is left"
    classify(model, Path(name), Path("out.jsonl"), True, 64)
    assert [row["text"] for row in read(Path("out.jsonl"))] == ["good", "fine"][-kept:]
    [row_error] = read(Path("out.errors.jsonl"))
    assert list(row_error) == ["where", "why", "row"]
    assert f"{row_error['where']} {row_error['why']}" == str(stopped.value)
    assert "1 row was skipped. See out.errors.jsonl." in caplog.messages


def test_texts_of_the_command_line_leave_no_file_of_errors(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained("classes") / CLASSIFIER
    monkeypatch.chdir(tmp_path)
    classify(model, ["good"], None, True, 64)
    assert '"prediction"' in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


UNREADABLE = {
    "a quote that is never closed": (
        "in.csv", b'id,text\n1,good\n2,"bad\n3,fine\n4,"x" y\n', r"in\.csv line 3 cannot be read .*double quotes",
    ),
    "not UTF-8": (
        "in.jsonl", b'{"text": "caf\xe9"}\n{"text": "fine"}\n', r"in\.jsonl line 1 .* not valid in utf-8\..* cp1252 ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_file_that_is_not_split_into_rows_safely_always_stops_the_command(
    fault: str, trained: Trained, tmp_path: Path
) -> None:
    name, content, message = UNREADABLE[fault]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        classify(trained("classes") / CLASSIFIER, tmp_path / name, tmp_path / "out.jsonl", True, 64)
    assert [path.name for path in tmp_path.iterdir()] == [name]


# The source (a file and its content, or texts), --out, and the error.
INVALID: dict[str, tuple[tuple[str, str] | list[str], str, str]] = {
    "a misspelled column": (
        ("in.csv", "txet\na\n"),
        "out.csv",
        r'"text"\. .* Did you mean "txet"\? .*[Rr]ename a column',
    ),
    "a column of answers": (("in.csv", "text,prediction\na,b\n"), "out.csv", 'has a column "prediction", .* Rename'),
    "an unknown output": (("in.csv", "text\na\n"), "out.xlsx", r"out\.xlsx has an unsupported suffix\. Use .* \.csv"),
    "a missing file": (("nwe.csv", ""), "out.csv", r"nwe\.csv cannot be read: "),
    "no rows": (("in.csv", "text\n"), "out.csv", r"The input has no usable rows\. Add"),
    "an empty text": ([" "], "out.csv", r'The text for "text" is empty\. Pass a text'),
    "two texts": (["a", "b"], "out.csv", r"needs one text \(text\), but you gave 2"),
}


@pytest.mark.parametrize("fault", INVALID)
def test_an_invalid_input_or_output_is_reported_in_one_line(fault: str, trained: Trained, tmp_path: Path) -> None:
    source, out, message = INVALID[fault]
    texts_or_file: list[str] | Path
    if isinstance(source, tuple):
        name, content = source
        texts_or_file = tmp_path / name
        if content:
            texts_or_file.write_text(content)
    else:
        texts_or_file = source
    before = list(tmp_path.iterdir())
    model = trained("classes") / CLASSIFIER
    with pytest.raises(UserError, match=message):
        classify(model, texts_or_file, tmp_path / out, False, 64)
    assert list(tmp_path.iterdir()) == before


def test_an_output_without_rows_is_not_written(trained: Trained, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text\n \ngood,\n")
    with pytest.raises(UserError, match=r"no usable rows\. Run without"):
        classify(trained("classes") / CLASSIFIER, source, tmp_path / "out.csv", True, 64)
    assert list(tmp_path.iterdir()) == [source]


def test_a_directory_is_never_replaced(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source, model = Path("in.csv"), trained("classes") / CLASSIFIER
    source.write_bytes(as_csv(ROWS))
    for directory in (Path("results.csv"), Path("answered.errors.jsonl")):
        directory.mkdir()
        (directory / "thesis").touch()
    for out in ("results.csv", "answered.jsonl"):
        with pytest.raises(UserError, match=r"(results.csv|errors.jsonl) is a directory\. Name a file"):
            classify(model, source, Path(out), out == "answered.jsonl", 64)
    with pytest.raises(UserError, match=r"^\. is a directory\. Name a file"):
        classify(model, source, Path(), True, 64)
    assert Path("results.csv/thesis").exists() and Path("answered.errors.jsonl/thesis").exists()
    assert not Path("answered.jsonl").exists()


@pytest.mark.parametrize(
    ("source", "out"),
    [("in.jsonl", "sub/../in.jsonl"), ("in.jsonl", "link.jsonl"), ("out.errors.jsonl", "out.csv")],
)
def test_no_output_replaces_the_input(
    source: str, out: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path(source).write_bytes(as_json_lines(ROWS))
    Path("link.jsonl").symlink_to(source)
    before = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"\.jsonl .*same file"):
        classify(trained("classes") / CLASSIFIER, Path(source), Path(out), True, 64)
    assert Path(source).read_bytes() == as_json_lines(ROWS)
    assert {path.name: path.lstat().st_ino for path in tmp_path.iterdir()} == before


def test_the_answers_do_not_overwrite_standard_input(trained: Trained, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(as_json_lines(ROWS))
    with standard_input(file), pytest.raises(UserError, match=r"in\.jsonl.*same file"):
        classify(trained("classes") / CLASSIFIER, Path("-"), file, False, 64)
    assert file.read_bytes() == as_json_lines(ROWS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--file", "in.csv", "--batch-size", "0"], "--batch-size must be at least 1, got 0."),
        (["a text" * 1000, __file__], f"{__file__} is a file. Use --file {__file__}."),
        (["--file", "-"], "--file must name a file if several processes share its rows, got - (standard input)."),
    ],
)
def test_an_invalid_argument_is_reported(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["classify", *arguments])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.endswith(f"error: {message}\n")


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.tsv"])
def test_the_values_of_other_columns_are_preserved(name: str, trained: Trained, tmp_path: Path) -> None:
    """In an unquoted field, a carriage return would end the row, and a lone surrogate is not valid UTF-8."""
    source = tmp_path / "in.jsonl"
    notes = ["a\rb", 'say "it"\r\nnow', "\ud83d"]
    source.write_text("".join(json.dumps({"text": "Boston", "note": note}) + "\n" for note in notes))
    classify(trained("classes") / CLASSIFIER, source, tmp_path / name, False, 64)
    written = [row["note"] for row in read(tmp_path / name)]
    assert written == [*notes[:2], notes[2] if name == "out.jsonl" else "\\ud83d"]


@pytest.mark.parametrize("precision", [None, "fp32", "bf16"])
def test_a_model_classifies_in_the_precision_of_its_scores_unless_another_is_set(
    precision: Precision | None,
    trained: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The model comes from a machine without fast bf16, and this machine has it."""
    model = trained("classes") / CLASSIFIER
    assert json.loads((model / SETTINGS).read_text())["precision"] == "fp32"
    monkeypatch.setattr(device, "bf16_instruction_sets", lambda: ["bf16"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.usable_device("auto").precision == "bf16"
    classify(model, ["Boston sued ."], tmp_path / "out.jsonl", False, 64, precision)
    assert f"precision {precision or 'fp32'}" in caplog.text
    logits, _ = Classifier(model, 64, precision or "fp32").score([["Boston sued ."]])
    [answer] = read(tmp_path / "out.jsonl")
    expected = torch.tensor(logits).softmax(-1).max().item()
    assert answer[f"probability_{answer['prediction']}"] == pytest.approx(expected, abs=1e-5)
