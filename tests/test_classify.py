"""`python -m pipeline.classify` scores new texts like the predict stage, and reads and writes every file format."""

import functools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import TinyMaker, read_history, read_logits, update_json
from kinds import TASKS, train_task
from scipy.special import expit, softmax

from pipeline.classify import classify, main
from pipeline.core.messages import UserError
from pipeline.core.paths import CLASSIFIER, PREDICTIONS, SETTINGS, TOKENIZED
from pipeline.modeling import device
from pipeline.modeling.outputs import loss
from pipeline.params import Params, Precision
from pipeline.predict import predict

CITIES = ["Boston", "Denver", "Boston", "Chicago", "Denver"]
ROWS = [{"id": number, "text": f'{city} sued "{number}" firms , it said .'} for number, city in enumerate(CITIES)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, params: Params, tiny: TinyMaker) -> Any:
    """Run the stages up to predict for a type of task, and return the output directory."""

    def make(task: str) -> Path:
        out, stride = tmp_path_factory.mktemp("a project"), 8 if task == "multi_label" else None
        train_task(task, out, tiny(), params, stride, lr=5e-3, epochs=6)
        predict(out / "raw", out / TOKENIZED, out / CLASSIFIER, out / PREDICTIONS, params.predict, "fp32", 1)
        return out

    return functools.cache(make)


@pytest.fixture
def model(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of the task `classes`. The working directory is empty."""
    directory: Path = trained("classes") / CLASSIFIER
    monkeypatch.chdir(tmp_path)
    return directory


@pytest.mark.parametrize("task", TASKS)
def test_a_file_gets_the_same_predictions_as_in_the_predict_stage(
    task: str, trained: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, labels = trained(task), TASKS[task].labels
    classify(out / CLASSIFIER, out / "raw" / "test.parquet", tmp_path / "out.parquet", 7)
    answers = pd.read_parquet(tmp_path / "out.parquet")
    predicted, probabilities = answers["prediction"].tolist(), answers.filter(like="probability_")
    logits = read_logits(out / PREDICTIONS / "test.parquet")
    if task == "classes":
        assert predicted == [labels[number] for number in logits.argmax(axis=1)]
        np.testing.assert_allclose(probabilities, softmax(logits, axis=1), atol=1e-5)
    elif task == "multi_label":
        likely = [[label for label, logit in zip(labels, row, strict=True) if logit > 0] for row in logits]
        assert [list(names) for names in predicted] == likely != [labels] * len(likely)
        np.testing.assert_allclose(probabilities, expit(logits), atol=1e-5)
    else:
        np.testing.assert_allclose(predicted, logits[:, 0], atol=1e-5)
    assert list(probabilities) == [f"probability_{label}" for label in labels]
    assert ("24 tokens and were truncated" in caplog.text) == (task != "multi_label"), "it is scored in windows"


@pytest.mark.parametrize(("name", "engine"), [("classes", "trainer"), ("classes", "loop"), ("regression", "trainer")])
def test_the_logits_of_a_long_text_are_the_mean_over_its_windows(
    name: str, engine: str, params: Params, tiny: TinyMaker, tmp_path: Path
) -> None:
    """The code of docs/use_the_model.md gives these logits, and the validation loss of the epoch is their loss."""
    from transformers import pipeline

    out = train_task(name, tmp_path, tiny(initializer_range=0.2), params, stride=8, engine=engine)
    for max_samples, size in ((30, 30), (None, 60)):
        settings = params.predict.model_copy(update={"max_samples": max_samples})
        predict(out / "raw", out / TOKENIZED, out / CLASSIFIER, out / PREDICTIONS, settings, "fp32", 1)
        rows = pd.read_parquet(out / PREDICTIONS / "validation.parquet")
        assert rows["idx"].tolist() == list(range(size))
    plain: Any = pipeline("text-classification", model=str(out / CLASSIFIER))
    options = {"max_length": 24, "stride": 8, "return_overflowing_tokens": True}
    logits = read_logits(out / PREDICTIONS / "validation.parquet")
    for texts, expected in zip(rows[TASKS[name].text_columns].to_numpy(), logits, strict=True):
        windows = plain.tokenizer(*texts, truncation=True, padding=True, return_tensors="pt", **options)
        del windows["overflow_to_sample_mapping"]
        np.testing.assert_allclose(plain.model(**windows).logits.mean(dim=0).tolist(), expected, atol=1e-5)
    epoch = read_history(out)[-1]
    assert float(epoch["loss"]) == pytest.approx(loss(TASKS[name].problem_type, logits, rows["label"].to_numpy()))


@pytest.mark.parametrize("task", ["classes", "multi_label"])
def test_uncertain_predictions_come_first_or_are_left_empty(task: str, trained: Any, tmp_path: Path) -> None:
    out = trained(task)
    source = out / "raw" / "test.parquet"
    classify(out / CLASSIFIER, source, tmp_path / "all.parquet", 7)
    everything = pd.read_parquet(tmp_path / "all.parquet")
    probabilities = everything.filter(like="probability_").to_numpy()
    certainty = probabilities.max(axis=1) if task == "classes" else np.abs(probabilities - 0.5).min(axis=1) + 0.5
    threshold = float(np.median(certainty))
    classify(out / CLASSIFIER, source, tmp_path / "some.parquet", 7, min_probability=threshold, sort="uncertain")
    some = pd.read_parquet(tmp_path / "some.parquet")
    assert some["idx"].tolist() == everything["idx"][np.argsort(certainty, kind="stable")].tolist()
    is_empty = some["prediction"].isna().to_numpy()
    assert is_empty.tolist() == sorted(certainty < threshold, reverse=True) and is_empty.any()
    kept = everything.set_index("idx")["prediction"][some["idx"]].to_numpy()
    assert list(map(str, some["prediction"][~is_empty])) == list(map(str, kept[~is_empty]))


def test_a_regression_has_no_uncertain_predictions(trained: Any) -> None:
    with pytest.raises(UserError, match="regression"):
        classify(trained("regression") / CLASSIFIER, ["It rained .", "It was wet ."], None, 64, sort="uncertain")


@pytest.mark.parametrize(
    ("target", "read"),
    [
        ("out.csv", pd.read_csv),
        ("out.tsv", pd.read_table),
        ("out.jsonl", functools.partial(pd.read_json, lines=True)),
        ("out.parquet", pd.read_parquet),
    ],
)
def test_the_answers_are_written_next_to_all_columns_of_the_file(target: str, read: Any, model: Path) -> None:
    pd.DataFrame(ROWS).to_parquet("in.parquet")
    classify(model, Path("in.parquet"), Path(target), 64)
    answers = read(Path(target))
    assert answers[["id", "text"]].to_dict("records") == ROWS
    probabilities = answers.filter(like="probability_")
    assert list(answers) == ["id", "text", "prediction", *probabilities]
    assert answers["prediction"].tolist() == [name.partition("_")[2] for name in probabilities.idxmax(axis=1)]


def test_options_describe_the_format_of_the_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update_json(shutil.copytree(model, Path("model")) / SETTINGS, text_columns=["column_1"])
    Path("in.csv").write_text("Früh, sagte er\t1\n", "cp1252")
    options = ["--encoding", "cp1252", "--no-header", "--delimiter", "tab"]
    monkeypatch.setattr(sys, "argv", ["", "--model", "model", "--file", "in.csv", "--out", "out.csv", *options])
    main()
    assert pd.read_csv("out.csv").iloc[0, :2].tolist() == ["Früh, sagte er", 1]


# The file, its content, --out, and parts of the message.
INVALID = {
    "an empty text": ("in.csv", "id,text\n1,good\n2, \n3,fine\n", "out.csv", ["in.csv line 3", "text"]),
    "a misspelled column": ("in.csv", "txet\na\n", "out.csv", ["in.csv", '"text"', '"txet"']),
    "an answer's column": ("in.csv", "text,prediction\na,b\n", "out.csv", ["in.csv", '"prediction"']),
    "a large number": ("in.jsonl", f'{{"text": "a", "id": {2**70}}}', "out.parquet", ["out.parquet"]),
    "an unknown output": ("in.csv", "text\na\n", "out.xlsx", ["out.xlsx", ".csv"]),
    "a directory": ("in.csv", "text\na\n", "sub", ["sub", "directory"]),
    "the input as output": ("in.csv", "text\na\n", "sub/../in.csv", ["in.csv", "same file"]),
    "no rows": ("in.csv", "text\n", "out.csv", ["in.csv", "no rows"]),
}


@pytest.mark.parametrize("fault", INVALID)
def test_an_error_is_reported_before_the_model_is_loaded_and_nothing_is_written(
    fault: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, content, out, parts = INVALID[fault]
    Path("sub").mkdir()
    Path(source).write_text(content)
    before = {path: path.stat().st_mtime_ns for path in Path().iterdir()}
    if fault not in ("an answer's column", "a large number"):
        monkeypatch.setattr("pipeline.classify.Classifier", None)
    with pytest.raises(UserError) as error:
        classify(model, Path(source), Path(out), 64)
    assert [part for part in parts if part in str(error.value)] == parts, error.value
    assert {path: path.stat().st_mtime_ns for path in Path().iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["a", "--batch-size", "0"], "--batch-size"), ([__file__], "--file"),
        (["a", "--min-probability", "80"], "--min-probability"), ([" "], "no text"), (["a", "b"], "2"),
    ],
)  # fmt: skip
def test_an_invalid_argument_is_reported(
    arguments: list[str], part: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["", "--model", str(model), *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert part in capsys.readouterr().err.rpartition("error: ")[2] + str(ended.value)


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_the_answer_for_a_pair_is_printed_and_computed_in_the_precision_of_the_scores_unless_another_is_set(
    precision: Precision | None, trained: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, capsys: Any
) -> None:
    """The model comes from a machine without fast bf16, and this machine has it."""
    monkeypatch.setattr(device, "bf16_instruction_sets", lambda: ["bf16"])
    assert device.usable_device("auto").precision == "bf16"
    classify(trained("regression") / CLASSIFIER, ["It rained .", "It was wet ."], None, 64, precision=precision)
    assert caplog.messages[-1].endswith(f"precision: {precision or 'fp32'}")
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"one": "It rained .", "two": "It was wet .", "prediction": answer["prediction"]}
