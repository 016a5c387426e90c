"""Label errors: the ranking, suspects.csv and its page, and the correct labels that a person enters."""

import codecs
import re
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Project, data_params
from custom_files import csv as csv_text
from custom_files import jsonl, rows, write_files
from kinds import TASKS
from toy import experiment, restore

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluation.predictions import Predictions
from pipeline.experiments.label_errors import rank
from pipeline.modeling.outputs import logits_to_predictions, logits_to_probabilities
from pipeline.reporting.suspects_page import render_page
from pipeline.sources.corpus import Corpus
from pipeline.sources.corrections import read_corrections, write_suspects
from pipeline.sources.folds import labeled_rows
from pipeline.sources.loading import load_corpus
from pipeline.suspects import find_suspects

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

TASK = replace(TASKS["classes"], labels=["no", "yes"])
CORRECTIONS = Path("corrections.csv")


def rank_texts(task: Task, texts: list[str], labels: Any, logits: Any) -> pd.DataFrame:
    logits = np.asarray(logits, dtype=np.float64)
    predicted = logits_to_predictions(task.problem_type, logits)
    probability = logits_to_probabilities(task.problem_type, logits)
    frame = pd.DataFrame({task.text_columns[0]: texts})
    return rank(task, Predictions(np.arange(len(logits)), np.asarray(labels), predicted, logits, probability, frame))


def test_the_least_believed_labels_come_first() -> None:
    truth = np.arange(600) % 2
    labels, wrong = truth.copy(), [7, 100, 250]
    labels[wrong] = 1 - truth[wrong]
    logits = np.column_stack([1.0 - truth, 1.0 * truth])
    logits[100] *= 3  # the most confident contradiction
    suspects = rank_texts(TASK, [f"{['bad', 'good'][n % 2]} text {n}" for n in range(600)], labels, logits)
    assert len(suspects) == 60 and suspects["loss"].is_monotonic_decreasing
    assert suspects["idx"][:3].tolist() == [100, 7, 250]
    first = suspects.iloc[0]
    assert (first["label"], first["prediction"], first["probability"]) == ("yes", "no", 0.0474)
    assert first["nearest_label"] == "no" and first["nearest_text"].startswith("bad text")


def test_a_regression_is_ranked_by_its_residuals_and_several_labels_by_their_mean_loss() -> None:
    numbers = np.arange(100) / 10
    values = numbers + 0.1
    values[42] += 5
    texts = [f"text {n}" for n in range(100)]
    texts[40] = texts[42]  # Its label, 4.0, is not another label.
    first = rank_texts(replace(TASK, problem_type="regression", labels=[]), texts, numbers, values[:, None]).iloc[0]
    assert (first["idx"], first["label"], first["prediction"]) == (42, "4.2", "9.3")
    assert "probability" not in first and abs(float(first["nearest_label"]) - 4.2) >= numbers.std() / 2
    task = replace(TASK, problem_type="multi_label_classification", labels=["a", "b", "c"])
    labels = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]] * 20)
    logits = 4.0 * labels - 2
    logits[4] = [3, -3, -3]
    logits[7, 0] = 5  # one label is more wrong, but the two others are right
    suspects = rank_texts(task, texts[:60], labels, logits)
    first = suspects.iloc[0]
    assert (first["idx"], first["label"], first["prediction"]) == (4, "b|c", "a")
    assert first["probability"] < 0.001 and "[]" in set(suspects["label"]), "a row without labels"


def test_the_page_escapes_texts_and_names_a_contradiction() -> None:
    logits = [[0, 0], [3, 0], [0, 3]]
    html = render_page("folds-1", TASK, rank_texts(TASK, ["<b>a</b>", "<b>a</b>", "other"], [1, 0, 1], logits))
    assert "&lt;b&gt;a&lt;/b&gt;" in html and "<b>" not in html
    assert html.count("The same text has the label") == 2
    assert html.count("The most similar text with another label") == 1, "that of the text that occurs once"


def load(content: str | None = None, **settings: Any) -> Corpus:
    """Load the content of train.csv (train.jsonl if it starts with a brace) with the corrections if there are any."""
    if content is not None:
        write_files({"train.jsonl" if content.startswith("{") else "train.csv": content})
    corrections = {"corrections": str(CORRECTIONS)} if CORRECTIONS.exists() else {}
    return load_corpus(data_params(**{"task": "custom", **corrections, **settings}))


def write_corrections(corpus: Corpus, corrections: dict[int, str]) -> None:
    """Write suspects.csv as the command does, and the correct labels of rows, by their `idx`, as a user does."""
    write_suspects(CORRECTIONS, labeled_rows(corpus)[["idx", *corpus.task.text_columns]])
    assert CORRECTIONS.read_bytes().startswith(codecs.BOM_UTF8), "otherwise Excel reads another encoding"
    suspects = pd.read_csv(CORRECTIONS, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    suspects.insert(0, "correct_label", [corrections.get(int(idx), "") for idx in suspects["idx"]])
    suspects.to_csv(CORRECTIONS, index=False)


def labels(corpus: Corpus) -> dict[int, str]:
    """Return the label of each row of train and validation, by its `idx`, as a user enters it."""
    task, labeled = corpus.task, labeled_rows(corpus)
    names = [str(label) if task.is_regression else task.format_label(label, "|", "[]") for label in labeled["label"]]
    return dict(zip(labeled["idx"], names, strict=True))


BITS = [(text, *bits) for text, bits in rows(90, [[1, 0], [0, 1], [1, 1], [0, 0]])]
LISTS = jsonl(rows(90, [["a"], ["b", "a"], [], ["b"]]))
CORPORA: dict[str, tuple[str, dict[str, Any], str]] = {
    "names of numbers": (csv_text(rows(90, [2, 1])), {"id2label": {"2": "bad", "1": "good"}}, "good"),
    "several labels": (LISTS, {}, "a|b"),
    "none of several labels": (LISTS, {}, "[]"),
    "a column for each label": (csv_text(BITS, "text,a,b"), {"label_column_name": ["a", "b"]}, "a|b"),
    "a regression": (csv_text(rows(90, [1234567.0, 0.123456789, -3.0])), {}, "7654321.125"),
    "odd characters": (jsonl([(f'{text}\0\r\n"', label) for text, label in rows(90, ["x", "y"])]), {}, "y"),
    "dropped rows": (csv_text([("a", ""), ("", "x"), *rows(60, ["x", "y"])]), {"on_missing": "drop"}, "y"),
}


@pytest.mark.parametrize("name", CORPORA)
def test_a_correction_changes_one_label_and_each_row_stays_in_its_split(name: str) -> None:
    content, settings, correct_label = CORPORA[name]
    before = load(content, **settings)
    old = labels(before)
    idx = next(idx for idx in before.splits["validation"]["idx"] if old[idx] != correct_label)
    write_corrections(before, {idx: correct_label})
    after = load(**settings)
    assert labels(after) == old | {idx: correct_label}
    assert asdict(after.task) == asdict(before.task)
    for split, rows_before in before.splits.items():
        columns = rows_before.columns.drop("label" if split != "test" else [])
        assert after.splits[split][columns].equals(rows_before[columns])
    assert after.origin != before.origin, "otherwise a comparison would not say that the labels differ"


def test_the_demo_ignores_corrections_of_other_data() -> None:
    CORRECTIONS.write_text("correct_label,idx,text\nno,3,a\n")
    assert load_corpus(data_params(task="demo", corrections=str(CORRECTIONS))).splits


def test_a_correction_in_a_validation_file_does_not_change_train() -> None:
    """Both files count their rows from 0, so suspects.csv counts those of validation from 60."""
    write_files({"validation.csv": csv_text(rows(9, ["no"], seed=1))})
    before = load(csv_text(rows(60, ["no", "yes"])), split={"type": "fixed"})
    write_corrections(before, {62: "yes"})
    after = load(split={"type": "fixed"})
    assert after.splits["train"].equals(before.splits["train"])
    assert after.splits["validation"]["label"].tolist() == [0, 0, 1, *[0] * 6]


def test_corrections_survive_a_spreadsheet() -> None:
    """Excel writes a byte order mark, semicolons in many countries, and its own line breaks in cells."""
    write_corrections(load(jsonl([*rows(60, ["no", "yes"]), ('a; "é"\r\nb', "no")])), {60: " yes "})
    suspects = pd.read_csv(CORRECTIONS, dtype=str, keep_default_na=False).replace("\r\n", "\n", regex=True)
    suspects.iloc[::-1].to_csv(CORRECTIONS, index=False, sep=";", encoding="utf-8-sig", lineterminator="\r\n")
    assert labels(load())[60] == "yes"


@pytest.mark.parametrize(
    ("values", "entry", "expected", "message"),
    [
        (["false", "true"], "TRUE", "true", ""), ([1, 2], "2.0", "2", ""), ([["x"], ["y", "x"]], "Y | X", "x|y", ""),
        (["Yes", "YES", "no"], "YES", "YES", ""), (["no", "yes"], "yess", None, 'no, yes.*yess.*"yes"'),
        (["Yes", "YES", "no"], "yes", None, "'yes'"),  # It could be either.
        ([["x"], ["y", "x"]], "x|z", None, "'z'"),
        ([0.5, 1.5], "nan", None, "number.*nan"),
    ],
)  # fmt: skip
def test_a_correct_label_must_be_a_label_but_programs_may_change_it(
    values: list[Any], entry: str, expected: str | None, message: str
) -> None:
    corpus = load(jsonl(rows(60, values)))
    idx = int(labeled_rows(corpus)["idx"].iloc[2])
    write_corrections(corpus, {idx: entry})
    if expected:
        assert labels(load())[idx] == expected
    else:
        with pytest.raises(UserError, match=f"^corrections.csv line 4: .*{message}"):
            load()


def test_corrections_of_other_rows_are_rejected() -> None:
    """The number of a row is only valid as long as no row before it is added or removed. Test is not corrected."""
    examples = rows(60, ["no", "yes"])
    corpus = load(csv_text(examples))
    write_corrections(corpus, {int(corpus.splits["train"]["idx"].iloc[1]): "no"})
    with pytest.raises(UserError, match=r"corrections.csv line \d+: .*idx"):
        load(csv_text(examples[1:]))
    test = corpus.splits["test"].iloc[[0]].assign(correct_label="no")
    test[["correct_label", "idx", "text"]].to_csv(CORRECTIONS, index=False)
    with pytest.raises(UserError, match="train and validation"):
        load(csv_text(examples))


def test_a_second_round_is_appended_and_a_row_has_one_correction() -> None:
    first = load(csv_text(rows(60, ["no", "yes"])))
    odd, even = (next(idx for idx in first.splits["train"]["idx"] if idx % 2 == rest) for rest in (1, 0))
    write_corrections(first, {even: "yes"})
    second_round = CORRECTIONS.read_text().partition("\n")[2]
    write_corrections(first, {odd: "no"})
    CORRECTIONS.write_text(CORRECTIONS.read_text() + second_round)
    assert labels(load()) == labels(first) | {odd: "no", even: "yes"}
    CORRECTIONS.write_text(CORRECTIONS.read_text() + second_round)
    with pytest.raises(UserError, match="Keep one"):
        load()


def test_another_file_is_rejected() -> None:
    for content, message in {
        "text,idx\na,1\n": 'no column "correct_label"',
        "correct_label,idx\nno,1\n": 'no column "text"',
        "correct_label,idx,text\nno,1,é\n": "UTF-8",  # Excel's "CSV"
    }.items():
        CORRECTIONS.write_text(content, encoding="cp1252")
        with pytest.raises(UserError, match=f"^corrections.csv.*{message}"):
            load(csv_text(rows(60, ["no", "yes"])))


def test_the_command_says_what_to_do_and_never_overwrites_correct_labels(
    toy: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in "123":
        experiment(toy, f"folds3-base-{number}", data__split__fold=f"{number}/3")
    restore(toy)
    find_suspects("folds3-base")
    copy, repro = re.findall(r"^  (.*)$", capsys.readouterr().out, re.M)
    file = Path("folds/folds3-base/suspects.csv")
    suspects = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    assert len(suspects) == 50 and (suspects["label"] != suspects["prediction"]).all(), "mistakes come first"
    assert "test pair" in file.with_suffix(".html").read_text()
    suspects.loc[0, "correct_label"] = suspects.loc[0, "prediction"]
    suspects.to_csv(file, index=False)
    with pytest.raises(UserError, match="would be lost"):
        find_suspects("folds3-base")
    subprocess.run(copy, shell=True, check=True)
    assert len(read_corrections(Path("data/corrections.csv"), [])) == 1 and repro == "dvc repro"
    file.unlink()
    find_suspects("folds3-base")
    assert f"  tail -n +2 {file} >> data/corrections.csv" in capsys.readouterr().out
    with pytest.raises(UserError, match="main is not a fold group"):
        find_suspects("main")
