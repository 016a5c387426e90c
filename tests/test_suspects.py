"""Label errors: the ranking, the estimated number, the verdicts, and the corrected files."""

import codecs
import csv
import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from conftest import Project, TinyMaker, data_params, params_file
from custom_files import csv as csv_text
from custom_files import jsonl, rows, write_files
from demo_pairs import pairs
from kinds import TASKS

from pipeline.cleaning.corrections import Corrections, correct, require_custom_data
from pipeline.cleaning.error_count import describe_agreement, estimate_label_errors
from pipeline.cleaning.ranking import label_name, rank
from pipeline.cleaning.report import page, read_verdicts, require_writable, write_suspects
from pipeline.cleaning.source_rows import load_source_rows
from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluation.metrics import logits_to_predictions, logits_to_probabilities
from pipeline.evaluation.predictions import Predictions
from pipeline.experiments.revisions import Run
from pipeline.experiments.sides import OUT_OF_FOLD
from pipeline.sources.params_file import edit_values
from pipeline.params import PARAMS, DataParams, load_params
from pipeline.sources.custom import load_custom
from pipeline.suspects import _matches, main

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

TASK = replace(TASKS["classes"], labels=["no", "yes"])
REGRESSION = replace(TASK, problem_type="regression", labels=[])


@pytest.fixture
def two_class_params() -> DataParams:
    """Write 60 rows with two classes, and return their parameters."""
    write_files({"train.csv": csv_text(rows(60, ["no", "yes"]))})
    return data_params(task="custom")


def predictions(task: Task, labels: Any, logits: Any) -> Predictions:
    logits = np.asarray(logits, dtype=np.float64)
    return Predictions(
        idx=np.arange(len(logits)),
        labels=np.asarray(labels),
        predicted=logits_to_predictions(task.problem_type, logits),
        logits=logits,
        probability=logits_to_probabilities(task.problem_type, logits),
    )


def labeled_rows(texts: list[str], labels: list[Any]) -> pd.DataFrame:
    places = [f"data/custom/train.csv line {number + 2}" for number in range(len(texts))]
    return pd.DataFrame({"text": texts, "label": labels, "idx": range(len(texts)), "place": places})


def test_the_least_believed_labels_come_first() -> None:
    labels = np.arange(600) % 2
    truth = labels.copy()
    wrong = [7, 100, 250]
    truth[wrong] = 1 - truth[wrong]
    logits = np.column_stack([1.0 - truth, 1.0 * truth])
    logits[wrong[1]] *= 3  # the most confident contradiction
    texts = [f"{'good' if answer else 'bad'} text {number}" for number, answer in enumerate(truth)]
    suspects = rank(TASK, labeled_rows(texts, list(labels)), predictions(TASK, labels, logits))
    assert len(suspects) == 60
    assert suspects["idx"][:3].tolist() == [100, 7, 250]
    first = suspects.iloc[0]
    assert (first["label"], first["prediction"], first["probability"]) == ("no", "yes", 0.0474)
    assert first["place"] == "data/custom/train.csv line 102"
    assert first["nearest_label"] == "yes", "the most similar row with another label"
    assert first["nearest_text"].startswith("good text")
    assert suspects["loss"].is_monotonic_decreasing


def test_rows_with_the_same_text_and_another_label_are_named() -> None:
    texts = ["A text.", "a text", "another text", "Another  text!"]
    labels = [0, 1, 1, 1]
    suspects = rank(TASK, labeled_rows(texts, labels), predictions(TASK, labels, np.zeros((4, 2)))).set_index("idx")
    assert suspects["contradicts"].to_dict() == {
        0: "data/custom/train.csv line 3",
        1: "data/custom/train.csv line 2",
        2: "",
        3: "",
    }


def test_a_regression_is_ranked_by_its_residuals() -> None:
    labels = np.arange(100) / 10
    values = labels + 0.1
    values[42] += 5
    suspects = rank(
        REGRESSION,
        labeled_rows([f"text {n}" for n in range(100)], list(labels)),
        predictions(REGRESSION, labels, values[:, None]),
    )
    first = suspects.iloc[0]
    assert (first["idx"], first["label"], first["prediction"]) == (42, "4.2", "9.3")
    assert "probability" not in suspects
    assert abs(float(first["nearest_label"]) - 4.2) > 1
    assert estimate_label_errors(REGRESSION, predictions(REGRESSION, labels, values[:, None])).empty


def test_several_labels_are_ranked_by_their_mean_loss() -> None:
    task = replace(TASK, problem_type="multi_label_classification", labels=["a", "b", "c"])
    labels = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]] * 20)
    logits = 4.0 * labels - 2
    logits[4] = [3, -3, -3]
    suspects = rank(
        task, labeled_rows([f"text {n}" for n in range(60)], list(labels)), predictions(task, labels, logits)
    )
    first = suspects.iloc[0]
    assert (first["idx"], first["label"], first["prediction"]) == (4, "b|c", "a")
    assert first["probability"] < 0.001
    assert "[]" in set(suspects["label"]), "a row without labels"


@pytest.mark.parametrize("flipped", [0.0, 0.1])
def test_the_interval_holds_the_number_of_wrong_labels(flipped: float) -> None:
    """With the probabilities of a nearly perfect model, the estimate is close to the number of flipped labels."""
    task = replace(TASK, labels=["a", "b", "c"])
    random = np.random.default_rng(0)
    truth = random.integers(3, size=3000)
    labels = truth.copy()
    wrong = random.random(3000) < flipped
    labels[wrong] = (labels[wrong] + 1) % 3
    logits = 6 * np.eye(3)[truth] + random.normal(size=(3000, 3))
    total, *by_class = estimate_label_errors(task, predictions(task, labels, logits)).itertuples()
    assert total.name == "all"
    assert total.low <= wrong.sum() <= total.high
    assert total.wrong == pytest.approx(wrong.sum(), abs=15)
    assert [count.rows for count in by_class] == np.bincount(labels).tolist()
    assert sum(count.wrong for count in by_class) == pytest.approx(total.wrong)


def test_a_class_without_rows_has_no_errors() -> None:
    task = replace(TASK, labels=["a", "unused", "b"])
    labels = np.array([0, 2] * 50)
    counts = estimate_label_errors(task, predictions(task, labels, 4 * np.eye(3)[labels]))
    assert [(count.name, count.wrong) for count in counts.itertuples()] == [
        ("all", 0),
        ("a", 0),
        ("unused", 0),
        ("b", 0),
    ]


def suspects_file(rows: pd.DataFrame, verdicts: dict[int, str]) -> Path:
    """Write suspects.csv as the command does, and the verdicts as a user does."""
    path = Path("suspects.csv")
    write_suspects(path, rows)
    assert path.read_bytes().startswith(codecs.BOM_UTF8), "otherwise Excel reads another encoding"
    table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    table["verdict"] = [verdicts.get(int(idx), "") for idx in table["idx"]]
    table.to_csv(path, index=False)
    return path


def test_verdicts_survive_a_spreadsheet() -> None:
    """Excel writes a byte order mark, semicolons in many countries, and line feeds in cells."""
    table = labeled_rows(["a; b", 'say "é"\nd'], ["no", "yes"])
    path = suspects_file(table, {1: " no "})
    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    rows.to_csv(path, index=False, sep=";", encoding="utf-8-sig", lineterminator="\r\n")
    verdicts = read_verdicts(path, ["text"])
    assert verdicts[["idx", "verdict", "text"]].values.tolist() == [[1, "no", 'say "é"\nd']]


def test_verdicts_are_never_overwritten() -> None:
    table = labeled_rows(["a", "b"], ["no", "yes"])
    path = suspects_file(table, {})
    require_writable(path, TASK)
    suspects_file(table, {1: "no"})
    with pytest.raises(UserError, match="has verdicts, which would be lost"):
        require_writable(path, TASK)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("verdict,text\nno,a\n", 'no column "idx"'),
        ("verdict,idx\nno,1\n", 'no column "text"'),
        ("verdict,idx,text\nno,1.5,a\n", 'the idx "1.5" is not a whole number'),
        ("verdict,idx,text\nno,1,é\n", 'save it as "CSV UTF-8"'),  # Excel's "CSV"
    ],
)
def test_another_file_is_rejected(content: str, message: str) -> None:
    Path("suspects.csv").write_text(content, encoding="cp1252")
    with pytest.raises(UserError, match=message):
        read_verdicts(Path("suspects.csv"), ["text"])


def test_a_label_with_the_separator_of_labels_is_rejected() -> None:
    labels = ["a|b", "c"]
    require_writable(Path("missing.csv"), replace(TASK, labels=labels))
    with pytest.raises(UserError, match=r'the label "a\|b" contains "\|"'):
        require_writable(Path("missing.csv"), replace(TASK, problem_type="multi_label_classification", labels=labels))


def test_a_text_column_with_the_name_of_a_column_of_the_file_is_rejected() -> None:
    require_writable(Path("missing.csv"), replace(TASK, text_columns=["sentence1", "sentence2"]))
    with pytest.raises(UserError, match='a column "verdict" of its own'):
        require_writable(Path("missing.csv"), replace(TASK, text_columns=["text", "verdict"]))


@pytest.mark.parametrize("change", [{"id2label": {"no": "bad", "yes": "good"}}, {"text_column_names": ["note"]}])
def test_a_fold_group_with_other_class_names_or_columns_is_not_ranked(change: dict[str, Any]) -> None:
    """The ids and the encoded labels are the same."""
    write_files(
        {"train.csv": csv_text([(text, text, label) for text, label in rows(60, ["no", "yes"])], "text,note,label")}
    )
    source, changed = (load_source_rows(data_params(task="custom", **settings)) for settings in ({}, change))
    task, labeled = source.corpus.task, source.labeled
    out_of_fold = replace(
        predictions(task, labeled["label"], np.zeros((len(labeled), 2))), idx=labeled["idx"].to_numpy()
    )
    texts = [(text,) for text in labeled["text"]]
    run = SimpleNamespace(task=task, predictions={OUT_OF_FOLD: out_of_fold}, texts={OUT_OF_FOLD: texts})
    assert _matches(task, labeled, cast("Run", run))
    assert not _matches(changed.corpus.task, changed.labeled, cast("Run", run))


def apply_verdicts(params: DataParams, verdicts: dict[int, str]) -> Corrections:
    """Correct the labels of rows, keyed by `idx`, as the command does."""
    path = suspects_file(load_source_rows(params).labeled.drop(columns="label"), verdicts)
    return correct(params, read_verdicts(path, params.text_column_names), Path("data/corrected"))


def corrected_params(settings: dict[str, Any], corrections: Corrections) -> DataParams:
    """Edit params.yaml as the command does, and load it."""
    changes = {f"data.{key}": value for key, value in settings.items() if key != "split"}
    changes |= {f"data.split.{key}": value for key, value in settings.get("split", {}).items()}
    params_file(Path(), {"data.task": "custom", **changes})
    edited = {f"data.{name}": value for name, value in corrections.settings.items()}
    PARAMS.write_text(edit_values(PARAMS.read_text(), edited))
    return load_params().data


def columns_of_labels(examples: list[tuple[str, list[int]]]) -> str:
    return "text,a,b\n" + "".join(f"{text},{','.join(map(str, bits))}\n" for text, bits in examples)


NUMBERS = rows(90, [1234567.0, 0.123456789, -3.0])
USERS = [(*row, f"user {number % 9}") for number, row in enumerate(rows(90, ["x", "y"]))]
# Two of the three rows with the label "z" have to be in train.
RARE = [(*row, f"user {number % 9}") for number, row in enumerate(rows(87, ["x", "y"]) + rows(3, ["z"], seed=1))]
PARTS = [(*row, ["train", "dev", "test"][number % 3]) for number, row in enumerate(rows(60, ["x", "y"]))]
CORPORA: dict[str, tuple[dict[str, str | bytes], dict[str, Any], str]] = {
    "words": ({"train.csv": csv_text(rows(90, ["no", "yes"]))}, {}, "no"),
    "numbers for classes": (
        {"train.tsv": csv_text(rows(90, [2, 1])).replace(",", "\t")},
        {"id2label": {"2": "bad", "1": "good"}},
        "good",
    ),
    "its own validation file": (
        {"train.csv": csv_text(rows(60, ["a", "b", "c"])), "validation.csv": csv_text(rows(30, ["c", "a"], seed=1))},
        {},
        "b",
    ),
    "lists of labels": ({"train.jsonl": jsonl(rows(90, [["a|b"], ["c", "a|b"], [], ["c"]]))}, {}, "[]"),
    "a column for each label": (
        {"train.csv": columns_of_labels(rows(90, [[1, 0], [0, 1], [1, 1], [0, 0]]))},
        {"label_column_name": ["a", "b"]},
        "b|a",
    ),
    "a regression": ({"train.csv": csv_text(NUMBERS)}, {}, "7654321.125"),
    "another encoding and no header": (
        {"train.csv": "".join(f"{text} é;{label}\n" for text, label in rows(60, ["no", "yes"])).encode("cp1252")},
        {
            "encoding": "cp1252",
            "header": False,
            "delimiter": ";",
            "text_column_names": ["column_1"],
            "label_column_name": "column_2",
        },
        "yes",
    ),
    "a column for the splits": (
        {"train.csv": csv_text(PARTS, "text,label,split")},
        {"split": {"type": "fixed", "column": "split"}},
        "y",
    ),
    "a column to stratify by": (
        {"train.csv": csv_text(RARE, "text,label,user")},
        {"split": {"type": "stratify", "column": "user", "seed": 0, "fractions": [0.4, 0.3, 0.3]}},
        "y",
    ),
    "names with signs": ({"train.csv": csv_text(rows(90, ['a="1"', "b\\x$", "tab\there"]))}, {}, "b\\x$"),
    "characters that a CSV file cannot have": (
        {
            "train.jsonl": jsonl([(f"{text}\0", label) for text, label in rows(90, ["x", "y"])]).replace(
                "text", " text ", 90
            )
        },
        {"text_column_names": [" text "]},
        "y",
    ),
    "groups": (
        {"train.csv": csv_text(USERS, "text,label,user")},
        {"split": {"type": "group", "column": "user"}, "slice_columns": ["user"]},
        "y",
    ),
}


@pytest.mark.parametrize("corpus", CORPORA)
def test_corrected_files_change_only_the_labels_with_a_verdict(corpus: str) -> None:
    files, settings, verdict = CORPORA[corpus]
    write_files(files)
    params = data_params(task="custom", **settings)
    before, labeled = load_custom(params), load_source_rows(params).labeled
    task = before.task

    def labels(rows: pd.DataFrame) -> list[Any]:
        return [list(label) if isinstance(label, (list, np.ndarray)) else label for label in rows["label"]]

    names = [{"a|b": "b|a"}.get(label_name(task, label), label_name(task, label)) for label in labeled["label"]]
    idx = int(labeled["idx"][[name != verdict for name in names]].iloc[-1])
    corrections = apply_verdicts(params, {idx: verdict})
    assert sum(corrections.counts.values()) == 1
    new_params = corrected_params(settings, corrections)
    after = load_custom(new_params)
    assert asdict(after.task) == asdict(task)
    changes = 0
    for split, rows_before in before.splits.items():
        kept = [name for name in rows_before if name != "label"]
        assert after.splits[split][kept].values.tolist() == rows_before[kept].values.tolist()
        changes += sum(a != b for a, b in zip(labels(rows_before), labels(after.splits[split]), strict=True))
    assert changes == 1
    changed = load_source_rows(new_params).labeled
    [label] = changed["label"][changed["idx"] == idx]
    assert label_name(task, label) == {"b|a": "a|b"}.get(verdict, verdict)


@pytest.mark.parametrize("on_missing", ["error", "drop"])
def test_copies_that_a_run_would_read_differently_are_not_written(on_missing: str) -> None:
    """Without another negative label, -1 means a missing label."""
    write_files({
        "train.csv": csv_text([*rows(60, [0.5, 1.5]), ("negative", -3.0)]),
        "validation.csv": csv_text(rows(30, [0.5, -1.0], seed=1)),
    })  # fmt: skip
    with pytest.raises(UserError, match="--apply has written nothing, because "):
        apply_verdicts(data_params(task="custom", on_missing=on_missing, split={"type": "fixed"}), {60: "3"})
    assert not Path("data/corrected").exists()


DROPPED: dict[str, tuple[str, str, str]] = {
    "words": ("train.csv", csv_text([("no label", ""), ("", "no"), *rows(60, ["no", "yes"])]), "no"),
    "lists of labels": ("train.jsonl", jsonl([("no label", None), ("", ["a"]), *rows(60, [["a"], ["b"], []])]), "a"),
    "a regression": ("train.csv", csv_text([("no label", ""), ("", 1.5), *rows(60, [0.5, -1.0])]), "3"),
}


@pytest.mark.parametrize("corpus", DROPPED)
def test_rows_without_a_text_or_a_label_are_dropped_again(corpus: str) -> None:
    name, content, verdict = DROPPED[corpus]
    settings = {"on_missing": "drop"}
    write_files({name: content})
    params = data_params(task="custom", **settings)
    idx = int(load_source_rows(params).labeled["idx"].iloc[1])
    corrections = apply_verdicts(params, {idx: verdict})
    before, after = load_custom(params), load_custom(corrected_params(settings, corrections))
    for split, rows_before in before.splits.items():
        assert after.splits[split]["idx"].tolist() == rows_before["idx"].tolist()


def test_a_verdict_must_be_a_label(two_class_params: DataParams) -> None:
    message = r'idx 3: the verdict "yess" is not a label\. The labels are: no, yes\. Did you mean "yes"\?'
    with pytest.raises(UserError, match=message):
        apply_verdicts(two_class_params, {3: "yess"})
    assert not Path("data/corrected").exists()


@pytest.mark.parametrize(
    ("labels", "verdict", "expected"),
    [
        (["false", "true"], "TRUE", "true"),
        ([1, 2], "2.0", "2"),
        (["1.0b", "2.0b"], "2.0B", "2.0b"),
        ([["x"], ["y", "x"]], "Y|X", ["x", "y"]),
    ],
)
def test_a_verdict_that_a_spreadsheet_has_changed_is_understood(
    labels: list[Any], verdict: str, expected: str | list[str]
) -> None:
    write_files({"train.jsonl": jsonl(rows(60, labels))})
    apply_verdicts(data_params(task="custom"), {0: verdict})
    first_row = Path("data/corrected/train.jsonl").read_text().splitlines()[0]
    assert json.loads(first_row)["label"] == expected


def test_a_verdict_that_could_mean_several_labels_is_rejected() -> None:
    write_files({"train.csv": csv_text(rows(60, ["Yes", "YES", "no"]))})
    with pytest.raises(UserError, match='the verdict "yes" is not a label'):
        apply_verdicts(data_params(task="custom"), {2: "yes"})


def test_verdicts_about_other_rows_are_rejected(two_class_params: DataParams) -> None:
    """The number of a row is only valid as long as no row is added or removed."""
    path = suspects_file(load_source_rows(two_class_params).labeled.drop(columns="label"), {3: "no"})
    write_files({"train.csv": csv_text(rows(60, ["no", "yes"])[1:])})
    with pytest.raises(UserError, match="idx 3: the text next to the verdict is not the text in your data"):
        correct(two_class_params, read_verdicts(path, ["text"]), Path("data/corrected"))


@pytest.mark.parametrize("answers", [["no", "no"], ["yes", "no"], ["no", "yes"]])
def test_a_row_with_two_verdicts_is_rejected(answers: list[str], two_class_params: DataParams) -> None:
    labeled = load_source_rows(two_class_params).labeled.drop(columns="label")
    twice = labeled.iloc[[1, 1]].assign(verdict=answers)
    with pytest.raises(UserError, match="idx 1 has two verdicts"):
        correct(two_class_params, twice, Path("data/corrected"))


@pytest.mark.parametrize(
    "changes", [{"text_column_names": ["split"]}, {"text_column_names": ["text"], "slice_columns": ["split"]}]
)
def test_a_column_with_the_name_of_a_column_of_the_copies_is_rejected(changes: dict[str, Any]) -> None:
    examples = [(text, text, label) for text, label in rows(60, ["a", "b"])]
    write_files({"train.csv": csv_text(examples, "text,split,label")})
    with pytest.raises(UserError, match='If one of your columns is called "label" or "split", rename it'):
        apply_verdicts(data_params(task="custom", **changes), {1: "a", 2: "b"})
    assert not Path("data/corrected").exists()


def test_the_labels_can_be_the_column_that_splits_are_stratified_by() -> None:
    write_files({"train.csv": csv_text(rows(60, ["a", "b"]))})
    params = data_params(task="custom", split={"type": "stratify", "column": "label"})
    assert sum(apply_verdicts(params, {1: "a", 2: "b"}).counts.values()) == 2


def test_verdicts_that_are_the_labels_of_their_rows_change_nothing(two_class_params: DataParams) -> None:
    labels = load_source_rows(two_class_params).labeled.set_index("idx")["label"]
    with pytest.raises(UserError, match="there is nothing to correct"):
        apply_verdicts(two_class_params, {3: ["no", "yes"][labels[3]]})
    assert not Path("data/corrected").exists()


def test_the_copies_need_files_of_the_user_and_a_new_directory(two_class_params: DataParams) -> None:
    require_custom_data(two_class_params, Path("data/corrected"))
    apply_verdicts(two_class_params, {3: "no"})
    with pytest.raises(UserError, match=r"data/corrected exists\. Choose another directory with --out"):
        require_custom_data(two_class_params, Path("data/corrected"))
    with pytest.raises(UserError, match=r"--apply needs your own files, but data\.task is mrpc"):
        require_custom_data(two_class_params.model_copy(update={"task": "mrpc"}), Path("data/other"))


def test_a_directory_for_the_copies_needs_verdicts_to_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["suspects", "folds-12345678-5", "--out", "elsewhere"])
    with pytest.raises(SystemExit) as error:
        main()
    assert error.value.code == 2


def test_the_page_escapes_texts_and_shows_each_kind_of_task() -> None:
    for task, labels, logits in (
        (TASK, [0, 1], np.zeros((2, 2))),
        (REGRESSION, np.array([0.5, 2.0]), np.array([[1.0], [2.0]])),
    ):
        table = labeled_rows(["<b>bold</b>", "plain"], list(labels))
        results = predictions(task, labels, logits)
        suspects, errors = rank(task, table, results), estimate_label_errors(task, results)
        html = page("folds-12345678-5", task, suspects, errors, describe_agreement(results))
        assert "&lt;b&gt;bold&lt;/b&gt;" in html
        assert "data/custom/train.csv line 2" in html
        assert "<b>" not in html


@pytest.mark.slow  # five runs with a tiny model
def test_wrong_labels_are_found_corrected_and_the_gain_is_measured(tiny: TinyMaker, tmp_path: Path) -> None:
    """Flip 12 of 300 labels, and run the commands of docs/suspects.md."""
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", tiny(), tmp_path / "home")
    texts = [first for first, _, _ in pairs(400)]
    labels = ["court" if "court" in text else "other" for text in texts]
    flipped = set(range(4, 300, 25))
    for name, numbers in (("train", range(300)), ("test", range(300, 400))):
        with (project.root / "data" / "custom" / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            swap = {"court": "other", "other": "court"}
            writer.writerows([texts[n], swap[labels[n]] if n in flipped else labels[n]] for n in numbers)
    for key, value in {
        "data.task": "custom",
        "data.text_column_names": "[text]",
        "train.lr": "1e-3",
        "train.epochs": "10",
        "train.max_train_samples": "null",
    }.items():
        project.set(key, value)
    project.commit("my data")
    python = sys.executable
    project.repro()
    project.commit("the first result")
    group = re.findall(r"pipeline\.compare (\S+) OTHER", project.run(python, "-m", "pipeline.folds", "--k", "3"))[0]
    printed = project.run(python, "-m", "pipeline.suspects", group)
    assert re.search(r"^all +300 ", printed, re.M)
    path = project.root / "folds" / group / "suspects.csv"
    assert "data/custom/train.csv line" in path.with_suffix(".html").read_text()
    with path.open(newline="", encoding="utf-8-sig") as file:
        suspects = list(csv.DictReader(file))
    assert len(flipped & {int(row["idx"]) for row in suspects[:16]}) >= 11
    for row in suspects:
        row["verdict"] = labels[int(row["idx"])] if int(row["idx"]) in flipped else ""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, suspects[0])
        table.writeheader()
        table.writerows(suspects)
    printed = project.run(python, "-m", "pipeline.suspects", "--apply", str(path.relative_to(project.root)))
    changes = re.search(r"^Changed labels: (.*)\.", printed, re.M)
    assert changes
    assert sum(map(int, re.findall(r"\d+", changes[1]))) == 12
    for command in re.findall(r"^  (.*)$", printed, re.M):
        project.run("bash", "-c", command)
    corrected = (project.root / "data" / "corrected" / "train.jsonl").read_text()
    assert not re.search('court.*"other"', corrected)
    comparison = project.run(python, "-m", "pipeline.compare", "main")
    before = json.loads(project.git("show", "main:metrics/evaluation.json"))["test"]["accuracy"]
    after = json.loads((project.root / "metrics" / "evaluation.json").read_text())["test"]["accuracy"]
    assert re.search(rf"^test accuracy +{100 * before:.2f} +{100 * after:.2f} ", comparison, re.M)
    assert after >= before
