"""How pairs are assigned to slices, and how a slice is scored."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_inputs import TASKS

from pipeline.core.data_card import LEAKAGE
from pipeline.core.output import rounded
from pipeline.core.task import Task
from pipeline.evaluation.metrics import is_defined, scores
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.uncertainty import score_intervals
from pipeline.reporting.slices import assign_by_column, assign_by_length, assign_by_overlap, score_slices, slice_metrics
from pipeline.reporting.templates import better_or_worse

PAIRS = TASKS["pairs"]
MRPC = PAIRS.metrics


def make_rows(task: Task, *texts: list[str], leakage: list[int] | None = None, **columns: list[str]) -> pd.DataFrame:
    rows = pd.DataFrame(dict(zip(task.text_columns, texts, strict=True)) | columns)
    return rows.assign(**{LEAKAGE: leakage or 0})


def predictions_for(labels: np.ndarray, predicted: np.ndarray) -> Predictions:
    return Predictions(np.arange(len(labels)), labels, predicted, np.zeros((len(labels), 1)), None)


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("a b c d", "A , B ; C . D !", "over 60% shared"),
        ("a b c", "a b d e", "up to 40% shared"),  # 2 of 5
        ("a b c d", "a b c e", "40% to 60% shared"),  # 3 of 5
        ("a b", "c d", "up to 40% shared"),
        ("...", "!", "up to 40% shared"),
    ],
)
def test_slices_by_word_overlap(first: str, second: str, name: str) -> None:
    names, indices = assign_by_overlap([first], [second])
    assert names[indices[0]] == name


def test_length_slices_are_thirds_named_by_their_bounds() -> None:
    first = [" ".join(["word"] * number) for number in range(1, 10)]
    names, indices = assign_by_length([first, ["and"] * 9])
    assert names == ("up to 4 words", "5 to 7 words", "over 7 words")
    assert indices.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_every_pair_is_in_one_slice_of_each_criterion_and_scored_there() -> None:
    rng = np.random.default_rng(0)
    words = ["he", "did", "not", "pay", "12", "dollars", "never", "3"]
    first, second = ([" ".join(rng.choice(words, 6)) for _ in range(200)] for _ in range(2))
    labels, predictions = rng.integers(0, 2, (2, 200))
    leakage = rng.integers(0, 3, 200)
    rows = make_rows(PAIRS, first, second, leakage=leakage.tolist())
    sliced = score_slices(PAIRS, rows, predictions_for(labels, predictions))
    for criterion in ("Length", "Word overlap", "Leakage"):
        assert sum(part.n for part in sliced if part.criterion == criterion) == 200
    leaked = next(part for part in sliced if part.name == "the whole pair in train")
    members = leakage == 2
    assert leaked.n == sum(members)
    assert leaked.positive == labels[members].mean()
    assert leaked.scores == scores(MRPC, labels[members], predictions[members])
    expected = score_intervals(MRPC, labels[members], predictions[members])
    assert leaked.intervals == {name: interval._asdict() for name, interval in expected.items()}


def test_slices_without_pairs_are_left_out() -> None:
    sliced = score_slices(
        PAIRS, make_rows(PAIRS, ["It fell ."], ["It fell ."]), predictions_for(np.array([1]), np.array([1]))
    )
    assert [(part.criterion, part.name) for part in sliced] == [
        ("Length", "up to 4 words"),
        ("Word overlap", "over 60% shared"),
        ("Leakage", "no text in train"),
    ]


@pytest.mark.parametrize("prediction", [0, 1])
def test_a_slice_without_positives_has_an_accuracy_but_no_f1(prediction: int) -> None:
    rows = make_rows(PAIRS, ["It fell ."] * 2, ["It fell ."] * 2, leakage=[0, 2])
    sliced = score_slices(PAIRS, rows, predictions_for(np.array([1, 0]), np.array([1, prediction])))
    not_leaked, leaked = (part for part in sliced if part.criterion == "Leakage")
    assert not_leaked.scores == {"accuracy": 1, "f1": 1}
    assert leaked.scores == {"accuracy": 1 - prediction}
    assert [list(part.intervals) for part in (not_leaked, leaked)] == [["accuracy", "f1"], ["accuracy"]]


@pytest.mark.parametrize(
    ("case", "name", "labels", "defined"),
    [
        ("pairs", "average_precision", [0, 0], False),
        ("mismatched", "average_precision", [0, 2], True),  # no example of class 1
        ("multi_label", "roc_auc", [[1, 0, 0], [1, 0, 0]], False),  # every label is constant
        ("multi_label", "roc_auc", [[1, 0, 0], [0, 0, 0]], True),
        ("multi_label", "f1_micro", [[1, 0, 0]], True),
        ("multi_label", "f1_micro", [[0, 0, 0]], False),
        ("multi_label", "f1_macro", [[0, 0, 0]], False),
    ],
)
def test_a_score_is_undefined_if_perfect_predictions_do_not_get_a_perfect_score(
    case: str, name: str, labels: list[Any], defined: bool
) -> None:
    assert is_defined(name, TASKS[case], np.array(labels)) == defined


def test_single_texts_have_leakage_slices_but_no_overlap_slices() -> None:
    rows = make_rows(TASKS["text"], ["It did not fall .", "3 fell ."], leakage=[2, 0])
    sliced = score_slices(TASKS["text"], rows, predictions_for(np.array([1, 0]), np.array([1, 1])))
    assert [(part.criterion, part.name) for part in sliced][-2:] == [
        ("Leakage", "no text in train"),
        ("Leakage", "the whole text in train"),
    ]
    assert "Word overlap" not in {part.criterion for part in sliced}
    assert all(part.scores == {} for part in sliced[-2:]), (
        "the Matthews correlation is undefined if all labels are equal"
    )


def test_a_column_has_a_slice_for_each_frequent_value_and_one_for_the_rest() -> None:
    values = [f"site {number}" for number in range(30) for _ in range(40 - number)] + [""] * 50
    names, indices = assign_by_column("source", values)
    assert len(names) == 21
    assert names[0] == "source: (none)"
    assert names[1:3] == ["source: site 0", "source: site 1"]
    assert names[-1] == "source: (other values)"
    assert sum(indices == 20) == sum(40 - rare for rare in range(19, 30))


@pytest.mark.parametrize("metrics", [["pearson", "spearmanr", "rmse"], ["pearson"]])
def test_the_slice_of_a_regression_with_the_smallest_errors_is_better(metrics: list[str]) -> None:
    """Its labels hardly differ from each other, so its correlation is the lowest."""
    task = replace(TASKS["regression"], metrics=metrics)
    rng = np.random.default_rng(0)
    is_narrow = np.arange(400) % 2 == 0
    labels = np.where(is_narrow, rng.normal(4, 0.1, 400), rng.uniform(0, 5, 400))
    predicted = labels + rng.normal(scale=np.where(is_narrow, 0.2, 0.5))
    rows = make_rows(task, ["It fell ."] * 400, ["It rose ."] * 400, source=["narrow", "wide"] * 200)
    sliced = {part.name: part for part in score_slices(task, rows, predictions_for(labels, predicted))}
    narrow, wide = sliced["source: narrow"], sliced["source: wide"]
    correlations = [np.corrcoef(labels[part], predicted[part])[0, 1] for part in (is_narrow, ~is_narrow)]
    assert correlations[0] < 0.6 < 0.9 < correlations[1]
    name = slice_metrics(task)[0]
    overall = scores([name], labels, predicted)[name]
    assert [better_or_worse(part.intervals[name], overall, name) for part in (narrow, wide)] == ["better", "worse"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_regression_slices_have_intervals(n: int) -> None:
    task = TASKS["regression"]
    rng = np.random.default_rng(0)
    for _ in range(30):
        labels, predictions = rng.normal(size=(2, n))
        rows = make_rows(task, ["a"] * n, ["b"] * n, source=["c"] * n)
        for part in score_slices(task, rows, predictions_for(labels, predictions)):
            for name, interval in part.intervals.items():
                assert interval["low"] - 1e-9 <= part.scores[name] <= interval["high"] + 1e-9


def test_a_slice_with_the_score_of_all_rows_is_neither_better_nor_worse() -> None:
    """A constant prediction has the same balanced accuracy in each slice. Scores in files have six digits."""
    for value in (1 / 3, 1 / 6):
        assert better_or_worse({"low": value, "high": value}, rounded(value), "balanced_accuracy") == ""
    assert better_or_worse({"low": 0.2, "high": 0.3}, 0.4, "balanced_accuracy") == "worse"
