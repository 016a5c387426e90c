"""The findings of the report are true: each one that judges is tested on simulated inputs for which it is false."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import replace_columns
from report_inputs import SIZES, TASKS, evaluate_inputs, history, load, make_report, write, write_inputs

from pipeline.core.paths import BASELINES, PREDICTIONS
from pipeline.core.task import LEAKAGE, Task
from pipeline.evaluation.predictions import Predictions
from pipeline.reporting import findings
from pipeline.reporting.mistakes import pieces, worst_mistakes
from pipeline.reporting.results import Results
from pipeline.reporting.slices import TOO_FEW, score_slices

TEST = SIZES["test"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root = tmp_path_factory.mktemp("pairs")
    write_inputs(root)
    return load(root)


def test_the_headline_does_not_boast_of_a_model_that_simple_models_equal(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    labels, numbers = load(tmp_path).predictions["test"].labels, np.arange(TEST)
    six_of_ten, four_of_five = (np.where(numbers % 5 > wrong, labels, 1 - labels) for wrong in (1, 0))
    four_others = np.where(numbers % 5 == 1, 1 - labels, labels)
    for predicted, linear, frozen, part in [
        (labels, four_of_five, six_of_ten, "better than a linear model: the difference in accuracy is +20.0 points"),
        (np.ones_like(labels), six_of_ten, six_of_ten, "the same prediction for all 120 pairs"),
        (six_of_ten, labels, six_of_ten, "not clearly better than always predicting “equivalent”"),
        (1 - labels, labels, six_of_ten, "clearly worse than always predicting"),
        (four_of_five, labels, six_of_ten, "clearly worse than a linear model"),
        (four_of_five, four_others, six_of_ten, "not clearly better than a linear model"),
        (four_of_five, four_of_five, six_of_ten, "too few pairs to say which one is better"),
        (four_of_five, 1 - labels, labels, "clearly worse than the base model without fine-tuning"),
        (four_of_five, 1 - labels, four_others, "not clearly better than the base model without fine-tuning"),
    ]:
        replace_columns(tmp_path / PREDICTIONS / "test.parquet", prediction=predicted.tolist())
        for model, simpler in {"linear": linear, "frozen": frozen}.items():
            replace_columns(tmp_path / BASELINES / model / "test.parquet", prediction=simpler.tolist())
        evaluate_inputs(tmp_path)
        sentence, is_better = findings.comparison(load(tmp_path))
        assert part in sentence and ("fine-tuning" in sentence) == ("fine-tuning" in part)
        assert is_better == (predicted is labels)
    sample = {"parameters": {"max_train_samples": 20}}
    sentence, _ = findings.comparison(replace(load(tmp_path), provenance=sample))
    assert "not compared" in sentence, "the simple models learn from all rows"


def test_a_report_on_a_split_without_any_label_says_so(tmp_path: Path) -> None:
    write_inputs(tmp_path, "multi_label")
    replace_columns(tmp_path / PREDICTIONS / "validation.parquet", label=[[0, 0, 0]] * SIZES["validation"])
    evaluate_inputs(tmp_path)
    assert "No example has a label" in make_report(tmp_path)


@pytest.mark.parametrize(
    ("loss", "score", "training", "facts"),
    [
        ((0.6, 0.5, 0.4), (0.80, 0.85, 0.90), {"kept_epoch": 3}, "90.0%, after epoch 3 of 3.*more epochs may help"),
        ((0.6, 0.5, 0.6), (0.80, 0.85, 0.90), {"kept_epoch": 3}, "epoch 3 of 3. Epoch 3 was kept"),
        ((0.6, 0.5, 0.4), (0.80, 0.89, 0.895), {"kept_epoch": 3}, "epoch 3 of 3. Epoch 3 was kept"),
        ((0.6, 0.5, 0.4), (0.80, 0.90, 0.85), {"kept_epoch": 2}, "epoch 2 of 3. Epoch 2 was kept"),
        ((0.6, 0.5, 0.4), (0.90, 0.80, 0.90), {"kept_epoch": 3}, "90.0%, after epoch 1 and epoch 3.*Epoch 3 was kept"),
        ((0.6, 0.5, 0.4), (0.90, 0.80, 0.85), {"kept_epoch": 3}, "90.0%, after epoch 1 of 3.*Epoch 3 was kept"),
        ((0.6, 0.5, 0.4), (0.80, 0.85, 0.90), {"kept_epoch": 3, "epochs": 9}, "stopped early, after 3 of 9"),
        ((0.6, 0.5, 0.4), (0.80, 0.85, 0.90), {"kept_epoch": 3, "degenerate": True}, "predicts the same for all"),
        ((0.6,), (0.80,), {"kept_epoch": 1, "epochs": 1}, "epoch 1 of 1"),
        ((0.6, 0.5, 0.4), (2.0, 1.5, 1.0), {"kept_epoch": 3, "metric_for_best_model": "loss"}, "more epochs may help"),
    ],
)
def test_the_learning_section_says_which_epoch_was_kept(
    loss: Any, score: Any, training: dict[str, Any], facts: str, results: Results, tmp_path: Path
) -> None:
    """The advice to train for longer is only given if the last epoch is the best one by score and by loss."""
    write(tmp_path / "history.csv", history(results.task, loss, score))
    changed = replace(results, history=pd.read_csv(tmp_path / "history.csv"), training=results.training | training)
    finding = findings.learning(changed)
    assert re.search(facts, finding)
    assert ("more epochs may help" in finding) == ("more epochs may help" in facts)
    assert not re.search("overfit|fewer epochs", finding)


@pytest.mark.parametrize(
    ("low", "high", "error", "verdict"),
    [
        (0.0, 0.1, 0.0, "Underconfident"), (0.98, 1.0, 0.0, "Overconfident"),
        (0.0, 1.0, 0.06, "not sure enough"), (0.0, 1.0, 0.04, "No sign"),
    ],
)  # fmt: skip
def test_confidence_is_judged_against_chance(
    low: float, high: float, error: float, verdict: str, results: Results
) -> None:
    expected = {"accuracy_low": low, "accuracy_high": high, "calibration_error_high": 0.05}
    details = results.diagnostics["test"] | {"if_calibrated": expected, "calibration_error": error}
    finding = findings.calibration(replace(results, diagnostics={"test": details}))
    verdicts = ("Underconfident", "Overconfident", "not sure enough", "No sign")
    assert [text for text in verdicts if text in finding] == [verdict]


def test_the_worst_class_and_the_classes_that_are_never_predicted_are_named(results: Results) -> None:
    def finding(**scores: list[Any]) -> str:
        classes = pd.DataFrame({"n": [40, 80], "recall": 0.5} | scores).to_dict("records")
        return findings.classes(replace(results, diagnostics={"test": {"classes": classes}}))

    assert "“equivalent” is predicted worst: its precision is 50.0%" in finding(precision=[0.5, 0.5], f1=[0.8, 0.7])
    assert "Never predicted on test: “equivalent” (0 of 80)" in finding(precision=[0.5, None], f1=[0.8, 0.0])
    assert "“not_equivalent”" in finding(precision=[0.5, None], f1=[0.8, None], n=[40, 0]), "no example has the other"
    assert "All predictions are right" in finding(precision=[1, 1], f1=[1, 1])


def predictions_for(task: Task, labels: Any, predicted: Any, probability: Any = None, **columns: Any) -> Predictions:
    """Return predictions for rows with the texts "a b c", unless they are in `columns`."""
    n = len(labels)
    rows = pd.DataFrame({**dict.fromkeys(task.text_columns, ["a b c"] * n), LEAKAGE: 0, **columns})
    probabilities = None if probability is None else np.array(probability)
    return Predictions(np.arange(n), np.array(labels), np.array(predicted), np.zeros((n, 1)), probabilities, rows)


def test_every_row_is_in_one_slice_of_each_criterion() -> None:
    task, random_numbers = replace(TASKS["pairs"], slice_columns=["site"]), np.random.default_rng(0)
    first = [" ".join(["word"] * (1 + number % 9)) for number in range(540)]
    sites = [f"site {min(number % 45, number % 23)}" if number % 3 else None for number in range(540)]
    labels, predicted = random_numbers.integers(0, 2, (2, 540))
    columns = {"sentence1": first, "sentence2": ["word"] * 540, "site": sites, LEAKAGE: np.arange(540) % 3}
    slices = score_slices(task, predictions_for(task, labels, predicted, **columns))
    assert slices.groupby("criterion")["n"].sum().to_dict() == dict.fromkeys(slices["criterion"], 540)
    rows = slices.set_index("slice")
    assert rows.loc[["up to 4 words", "5 to 7 words", "over 7 words"], "n"].tolist() == [180] * 3
    assert rows.loc["the whole pair in train", "value"] == np.mean((labels == predicted)[2::3])
    assert rows.loc["over 60% shared", "n"] == 540
    assert rows.loc["site: (none)", "n"] == 180
    values = slices[slices["criterion"] == "column site"]
    assert len(values) == 21 and values["slice"].iloc[-1] == "site: (other values)"


@pytest.mark.parametrize("metrics", [["pearson", "spearmanr", "rmse"], ["pearson"]])
def test_the_slice_of_a_regression_with_the_smallest_errors_is_better(metrics: list[str]) -> None:
    """Its labels hardly differ from each other, so its correlation is the lowest."""
    task, rng = replace(TASKS["regression"], metrics=metrics), np.random.default_rng(0)
    is_narrow = np.arange(400) % 2 == 0
    labels = np.where(is_narrow, rng.normal(4, 0.1, 400), rng.uniform(0, 5, 400))
    predicted = labels + rng.normal(scale=np.where(is_narrow, 0.2, 0.5))
    slices = score_slices(task, predictions_for(task, labels, predicted, source=["narrow", "wide"] * 200))
    verdicts = slices.set_index("slice")["verdict"]
    assert verdicts[["source: narrow", "source: wide"]].tolist() == ["better", "worse"]


@pytest.mark.parametrize(
    ("wrong", "n", "finding"),
    [
        (slice(0, 30), 200, "Clearly worse than all pairs: a text in train \\(40.0%\\)"),
        (slice(0, 0), 200, "No slice has a clearly worse accuracy"), (slice(0, 9), 15, "none is judged"),
    ],
)  # fmt: skip
def test_only_a_clearly_worse_slice_is_named(wrong: slice, n: int, finding: str, results: Results) -> None:
    labels = np.ones(n, dtype=int)
    predicted = labels.copy()
    predicted[wrong] = 0
    leakage = np.where(np.arange(n) < n // 4, 1, 0)
    slices = score_slices(TASKS["pairs"], predictions_for(TASKS["pairs"], labels, predicted, **{LEAKAGE: leakage}))
    assert re.search(finding, findings.slices(results, slices))
    assert (slices["verdict"] == TOO_FEW).all() == slices["value"].isna().all() == (n == 15)


def test_the_worst_mistakes_come_first() -> None:
    tasks = TASKS["mismatched"], TASKS["multi_label"], TASKS["regression"]
    probabilities = [[0.9, 0, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]
    assert worst_mistakes(tasks[0], predictions_for(tasks[0], [0, 1, 2], [0, 2, 1], probabilities)) == [2, 1]
    labels, predicted = [[1, 0, 0], [0, 0, 0], [1, 1, 1]], [[1, 0, 1], [0, 0, 0], [0, 1, 1]]
    probabilities = [[0.9, 0.1, 0.6], [0.1, 0.1, 0.1], [0.2, 0.9, 0.9]]
    assert worst_mistakes(tasks[1], predictions_for(tasks[1], labels, predicted, probabilities)) == [2, 0]
    assert worst_mistakes(tasks[2], predictions_for(tasks[2], [1.0, 2.0, 3.0], [1.5, 0.25, 3.0])) == [1, 0]


def test_the_words_in_which_similar_texts_differ_are_marked() -> None:
    first, second = pieces(["Shares fell 4 percent .", "shares rose 4 percent on Monday ."])
    assert first == [("Shares", False), ("fell", True), ("4 percent", False), (".", False)]
    assert [words for words, differs in second if differs] == ["rose", "on Monday"]
    dissimilar = ["Shares fell 4 percent on Monday .", "The bank sued an airline ."]
    assert pieces(dissimilar) == [[(text, False)] for text in dissimilar]
    [[(shortened, differs)]] = pieces(["word " * 10_000])
    assert len(shortened) < 3_000 and not differs
