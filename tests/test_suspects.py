"""Label errors: the ranking, suspects.csv and its page, and the correct labels that a person enters."""

import codecs
import csv
import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Project, TinyMaker, data_params
from custom_files import csv as csv_text
from custom_files import jsonl, rows, write_files
from demo_pairs import pairs
from kinds import TASKS

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluation.metrics import logits_to_predictions, logits_to_probabilities
from pipeline.evaluation.predictions import Predictions, format_label
from pipeline.experiments.label_errors import rank, render_page, write_suspects
from pipeline.sources.corpus import Corpus
from pipeline.sources.folds import labeled_rows
from pipeline.sources.loading import load_corpus

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

TASK = replace(TASKS["classes"], labels=["no", "yes"])
REGRESSION = replace(TASK, problem_type="regression", labels=[])
CORRECTIONS = Path("corrections.csv")


def rank_texts(task: Task, texts: list[str], labels: Any, logits: Any) -> pd.DataFrame:
    logits = np.asarray(logits, dtype=np.float64)
    predicted = logits_to_predictions(task.problem_type, logits)
    probability = logits_to_probabilities(task.problem_type, logits)
    predictions = Predictions(np.arange(len(logits)), np.asarray(labels), predicted, logits, probability)
    return rank(task, pd.DataFrame({task.text_columns[0]: texts}), predictions)


def test_the_least_believed_labels_come_first() -> None:
    labels = np.arange(600) % 2
    truth = labels.copy()
    wrong = [7, 100, 250]
    truth[wrong] = 1 - truth[wrong]
    logits = np.column_stack([1.0 - truth, 1.0 * truth])
    logits[wrong[1]] *= 3  # the most confident contradiction
    texts = [f"{'good' if answer else 'bad'} text {number}" for number, answer in enumerate(truth)]
    suspects = rank_texts(TASK, texts, labels, logits)
    assert len(suspects) == 60
    assert suspects["idx"][:3].tolist() == [100, 7, 250]
    first = suspects.iloc[0]
    assert (first["label"], first["prediction"], first["probability"]) == ("no", "yes", 0.0474)
    assert first["nearest_label"] == "yes"
    assert first["nearest_text"].startswith("good text"), "the most similar row with another label"
    assert suspects["loss"].is_monotonic_decreasing


def test_a_regression_is_ranked_by_its_residuals() -> None:
    labels = np.arange(100) / 10
    values = labels + 0.1
    values[42] += 5
    texts = [f"text {n}" for n in range(100)]
    texts[40] = texts[42]  # Its label, 4.0, is not another label.
    first = rank_texts(REGRESSION, texts, labels, values[:, None]).iloc[0]
    assert (first["idx"], first["label"], first["prediction"]) == (42, "4.2", "9.3")
    assert "probability" not in first
    assert abs(float(first["nearest_label"]) - 4.2) >= labels.std() / 2


def test_several_labels_are_ranked_by_their_mean_loss() -> None:
    task = replace(TASK, problem_type="multi_label_classification", labels=["a", "b", "c"])
    labels = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]] * 20)
    logits = 4.0 * labels - 2
    logits[4] = [3, -3, -3]
    logits[7, 0] = 5  # one label is more wrong, but the two others are right
    suspects = rank_texts(task, [f"text {n}" for n in range(60)], labels, logits)
    first = suspects.iloc[0]
    assert (first["idx"], first["label"], first["prediction"]) == (4, "b|c", "a")
    assert first["probability"] < 0.001
    assert "[]" in set(suspects["label"]), "a row without labels"


def test_the_page_escapes_texts_and_names_a_contradiction() -> None:
    logits = [[0, 0], [3, 0], [0, 3]]
    html = render_page("folds-1", TASK, rank_texts(TASK, ["<b>a</b>", "<b>a</b>", "other"], [1, 0, 1], logits))
    assert "&lt;b&gt;a&lt;/b&gt;" in html and "<b>" not in html
    assert html.count("The same text has the label") == 2
    assert html.count("The most similar text with another label") == 1, "that of the text that occurs once"
    suspects = rank_texts(REGRESSION, ["a text", "another text"], [0.5, 2.0], [[1.0], [2.0]])
    assert "labeled “0.5”" in render_page("folds-1", REGRESSION, suspects)


def test_a_text_column_with_the_name_of_a_column_of_suspects_is_rejected() -> None:
    with pytest.raises(UserError, match='"correct_label"'):
        rank_texts(replace(TASK, text_columns=["correct_label"]), ["a text", "another"], [0, 1], np.zeros((2, 2)))


def load(**settings: Any) -> Corpus:
    """Load the files in data/custom, or another corpus, with the corrections if there are any."""
    corrections = {"corrections": str(CORRECTIONS)} if CORRECTIONS.exists() else {}
    return load_corpus(data_params(**{"task": "custom", **corrections, **settings}))


def load_files(content: str, **settings: Any) -> Corpus:
    """Load the content of train.csv, or of train.jsonl if it starts with a brace."""
    write_files({"train.jsonl" if content.startswith("{") else "train.csv": content})
    return load(**settings)


def write_corrections(corpus: Corpus, corrections: dict[int, str], path: Path = CORRECTIONS) -> None:
    """Write suspects.csv as the command does, and the correct labels of rows, by their `idx`, as a user does."""
    write_suspects(path, labeled_rows(corpus)[["idx", *corpus.task.text_columns]])
    assert path.read_bytes().startswith(codecs.BOM_UTF8), "otherwise Excel reads another encoding"
    suspects = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    suspects.insert(0, "correct_label", [corrections.get(int(idx), "") for idx in suspects["idx"]])
    suspects.to_csv(path, index=False)


def labels(corpus: Corpus) -> dict[int, str]:
    """Return the label of each row of train and validation, by its `idx`, as a user enters it."""
    task, labeled = corpus.task, labeled_rows(corpus)
    is_regression = task.problem_type == "regression"
    names = [str(label) if is_regression else format_label(task, label, "|", "[]") for label in labeled["label"]]
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
    "a published corpus": ("", {"task": "demo"}, "equivalent"),
}


@pytest.mark.parametrize("name", CORPORA)
def test_a_correction_changes_one_label_and_each_row_stays_in_its_split(name: str) -> None:
    content, settings, correct_label = CORPORA[name]
    before = load_files(content, **settings)
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


def test_a_correction_in_a_validation_file_does_not_change_train() -> None:
    """Both files count their rows from 0, so suspects.csv counts those of validation from 60."""
    write_files({"validation.csv": csv_text(rows(9, ["no"], seed=1))})
    before = load_files(csv_text(rows(60, ["no", "yes"])), split={"type": "fixed"})
    write_corrections(before, {62: "yes"})
    after = load(split={"type": "fixed"})
    assert after.splits["train"].equals(before.splits["train"])
    assert after.splits["validation"]["label"].tolist() == [0, 0, 1, *[0] * 6]


def test_corrections_survive_a_spreadsheet() -> None:
    """Excel writes a byte order mark, semicolons in many countries, and its own line breaks in cells."""
    write_corrections(load_files(jsonl([*rows(60, ["no", "yes"]), ('a; "é"\r\nb', "no")])), {60: " yes "})
    suspects = pd.read_csv(CORRECTIONS, dtype=str, keep_default_na=False).replace("\r\n", "\n", regex=True)
    suspects.iloc[::-1].to_csv(CORRECTIONS, index=False, sep=";", encoding="utf-8-sig", lineterminator="\r\n")
    assert labels(load())[60] == "yes"


@pytest.mark.parametrize(
    ("values", "entry", "expected"),
    [
        (["false", "true"], "TRUE", "true"),
        ([1, 2], "2.0", "2"),
        ([["x"], ["y", "x"]], "Y | X", "x|y"),
        (["Yes", "YES", "no"], "YES", "YES"),
    ],
)
def test_a_label_that_another_program_changed_is_understood(values: list[Any], entry: str, expected: str) -> None:
    corpus = load_files(jsonl(rows(60, values)))
    idx = int(corpus.splits["train"]["idx"].iloc[0])
    write_corrections(corpus, {idx: entry})
    assert labels(load())[idx] == expected


@pytest.mark.parametrize(
    ("values", "entry", "message"),
    [
        (["no", "yes"], "yess", 'no, yes.*yess.*"yes"'),
        (["Yes", "YES", "no"], "yes", "'yes'"),  # It could be either.
        ([["x"], ["y", "x"]], "x|z", "'z'"),
        ([0.5, 1.5], "nan", "number.*nan"),
    ],
)
def test_a_correct_label_must_be_a_label(values: list[Any], entry: str, message: str) -> None:
    corpus = load_files(jsonl(rows(60, values)))
    write_corrections(corpus, {int(labeled_rows(corpus)["idx"].iloc[2]): entry})
    with pytest.raises(UserError, match=f"^corrections.csv line 4: .*{message}"):
        load()


def test_corrections_of_other_rows_are_rejected() -> None:
    """The number of a row is only valid as long as no row before it is added or removed. Test is not corrected."""
    examples = rows(60, ["no", "yes"])
    corpus = load_files(csv_text(examples))
    write_corrections(corpus, {int(corpus.splits["train"]["idx"].iloc[1]): "no"})
    with pytest.raises(UserError, match=r"corrections.csv line \d+: .*idx"):
        load_files(csv_text(examples[1:]))
    test = corpus.splits["test"].iloc[[0]].assign(correct_label="no")
    test[["correct_label", "idx", "text"]].to_csv(CORRECTIONS, index=False)
    with pytest.raises(UserError, match="train and validation"):
        load_files(csv_text(examples))


def test_a_second_round_is_appended_and_a_row_has_one_correction() -> None:
    first = load_files(csv_text(rows(60, ["no", "yes"])))
    odd, even = (next(idx for idx in first.splits["train"]["idx"] if idx % 2 == rest) for rest in (1, 0))
    write_corrections(first, {odd: "no"})
    write_corrections(load(), {even: "yes"}, Path("suspects.csv"))
    with CORRECTIONS.open("a") as file:
        file.write(Path("suspects.csv").read_text().partition("\n")[2])
    assert labels(load()) == labels(first) | {odd: "no", even: "yes"}
    CORRECTIONS.write_text(CORRECTIONS.read_text() + Path("suspects.csv").read_text().partition("\n")[2])
    with pytest.raises(UserError, match="Keep one"):
        load()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,idx\na,1\n", 'no column "correct_label"'),
        ("correct_label,idx\nno,1\n", 'no column "text"'),
        ("correct_label,idx,text\nno,1,é\n", "UTF-8"),  # Excel's "CSV"
    ],
)
def test_another_file_is_rejected(content: str, message: str) -> None:
    CORRECTIONS.write_text(content, encoding="cp1252")
    with pytest.raises(UserError, match=f"^corrections.csv.*{message}"):
        load_files(csv_text(rows(60, ["no", "yes"])))


@pytest.mark.slow  # a run and three folds with a tiny model, and a second run
def test_wrong_labels_are_found_corrected_and_the_gain_is_measured(tiny: TinyMaker, tmp_path: Path) -> None:
    """Flip 12 of 300 labels, and run the commands of docs/suspects.md."""
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", tiny(), tmp_path / "home")
    texts = [first for first, _, _ in pairs(400)]
    truth = ["court" if "court" in text else "other" for text in texts]
    flipped = set(range(4, 300, 25))
    for name, numbers in (("train", range(300)), ("test", range(300, 400))):
        swap = {"court": "other", "other": "court"}
        examples = [(texts[n], swap[truth[n]] if n in flipped else truth[n]) for n in numbers]
        path = project.root / "data" / "custom" / f"{name}.csv"
        pd.DataFrame(examples, columns=["text", "label"]).to_csv(path, index=False)
    for key, value in {
        "data.task": "custom", "data.text_column_names": "[text]", "train.lr": "1e-3", "train.epochs": "10",
        "train.max_train_samples": "null",
    }.items():  # fmt: skip
        project.set(key, value)
    project.commit("my data")
    project.repro()
    project.commit("the first result")
    printed = project.run(sys.executable, "-m", "pipeline.folds", "--k", "3")
    group = re.findall(r"pipeline\.compare (\S+) OTHER", printed)[0]
    find_suspects = sys.executable, "-m", "pipeline.suspects", group
    printed = project.run(*find_suspects)
    path = project.root / "folds" / group / "suspects.csv"
    assert "Suspicious labels" in path.with_suffix(".html").read_text()
    with path.open(newline="", encoding="utf-8-sig") as file:
        suspects = list(csv.DictReader(file))
    assert len(flipped & {int(row["idx"]) for row in suspects[:16]}) >= 11
    for row in suspects:
        row["correct_label"] = truth[int(row["idx"])] if int(row["idx"]) in flipped else ""
    pd.DataFrame(suspects).to_csv(path, index=False)
    copy, repro = re.findall(r"^  (.*)$", printed, re.M)
    assert "would be lost" in project.run(*find_suspects, ok=False), "the correct labels are never overwritten"
    project.run("bash", "-c", copy)
    path.unlink()
    assert f"  tail -n +2 folds/{group}/suspects.csv >> data/corrections.csv" in project.run(*find_suspects)
    project.run("bash", "-c", repro)
    raw = pd.concat([pd.read_parquet(project.root / f"data/raw/{split}.parquet") for split in ("train", "validation")])
    names = json.loads((project.root / "data/raw/task.json").read_text())["labels"]
    assert [names[label] for label in raw["label"]] == [truth[idx] for idx in raw["idx"]]
    comparison = project.run(sys.executable, "-m", "pipeline.compare", "main")
    before = json.loads(project.git("show", "main:metrics/evaluation.json"))["test"]["accuracy"]
    after = json.loads((project.root / "metrics" / "evaluation.json").read_text())["test"]["accuracy"]
    assert re.search(rf"^test accuracy +{100 * before:.2f} +{100 * after:.2f} ", comparison, re.M)
    assert after >= before
