"""The metrics match scikit-learn, and the evaluate stage writes scores, intervals and diagnostics."""

import csv
import dataclasses
import json
import math
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import replace_columns
from scipy import stats
from sklearn import metrics as sklearn

from pipeline.core.messages import UserError
from pipeline.core.output import parse_details
from pipeline.core.paths import PROVENANCE
from pipeline.core.task import ProblemType, Task
from pipeline.evaluate import evaluate
from pipeline.evaluation.calibration import reliability, simulate_calibrated_model
from pipeline.evaluation.diagnostics import best_threshold
from pipeline.evaluation.metrics import (
    METRICS,
    applicable_metrics,
    logits_to_predictions,
    logits_to_probabilities,
    loss,
    scores,
)
from pipeline.evaluation.prediction_files import write_predictions
from pipeline.evaluation.uncertainty import score_intervals
from pipeline.sources.glue import glue_task

MRPC = ("accuracy", "f1")


def random_case(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, and logits that are rounded to tenths to get ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n), np.round(rng.normal(size=(n, 2)), 1)


def probability(logits: np.ndarray) -> np.ndarray:
    return np.round(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), 6)  # like the stage


# The same metrics in scikit-learn, computed from labels, predictions, and the probability of each class or label.
BINARY = {
    "accuracy": lambda labels, predictions, _: sklearn.accuracy_score(labels, predictions),
    "average_precision": lambda labels, _, probabilities: sklearn.average_precision_score(labels, probabilities[:, 1]),
    "balanced_accuracy": lambda labels, predictions, _: sklearn.balanced_accuracy_score(labels, predictions),
    "f1": lambda labels, predictions, _: sklearn.f1_score(labels, predictions),
    "f1_macro": lambda labels, predictions, _: sklearn.f1_score(labels, predictions, average="macro"),
    "matthews_correlation": lambda labels, predictions, _: sklearn.matthews_corrcoef(labels, predictions),
    "roc_auc": lambda labels, _, probabilities: sklearn.roc_auc_score(labels, probabilities[:, 1]),
}
MULTI_CLASS = {name: BINARY[name] for name in ("accuracy", "balanced_accuracy", "f1_macro", "matthews_correlation")} | {
    "average_precision": lambda labels, _, probabilities: sklearn.average_precision_score(labels, probabilities),
    "roc_auc": lambda labels, _, probabilities: sklearn.roc_auc_score(labels, probabilities, multi_class="ovr"),
}
MULTI_LABEL = {name: BINARY[name] for name in ("accuracy", "f1_macro")} | {
    "average_precision": lambda labels, _, probabilities: sklearn.average_precision_score(labels, probabilities),
    "f1_micro": lambda labels, predictions, _: sklearn.f1_score(labels, predictions, average="micro"),
    "roc_auc": lambda labels, _, probabilities: sklearn.roc_auc_score(labels, probabilities),
}
REGRESSION = {
    "pearson": lambda labels, predictions, _: stats.pearsonr(labels, predictions).statistic,
    "rmse": lambda labels, predictions, _: sklearn.root_mean_squared_error(labels, predictions),
    "spearmanr": lambda labels, predictions, _: stats.spearmanr(labels, predictions).statistic,
}


@pytest.mark.parametrize("digits", [1, 9])  # with and without ties
@pytest.mark.parametrize(
    ("problem_type", "outputs", "expected"),
    [
        ("single_label_classification", 2, BINARY),
        ("single_label_classification", 5, MULTI_CLASS),
        ("multi_label_classification", 5, MULTI_LABEL),
        ("regression", 1, REGRESSION),
    ],
)
def test_every_metric_matches_scikit_learn(
    problem_type: ProblemType, outputs: int, expected: dict[str, Callable[..., float]], digits: int
) -> None:
    """Also checks that the test covers every applicable metric."""
    names = [f"label {number}" for number in range(outputs)] if problem_type != "regression" else []
    task = dataclasses.replace(glue_task("mrpc"), problem_type=problem_type, labels=names)
    assert set(applicable_metrics(task)) == expected.keys()
    random = np.random.default_rng(outputs)
    logits = np.round(random.normal(size=(300, outputs)), digits)
    labels: np.ndarray = random.integers(outputs, size=300)
    if problem_type == "multi_label_classification":
        labels = (random.random((300, outputs)) < 0.3).astype(int)
    elif problem_type == "regression":
        labels = np.round(logits[:, 0] + random.normal(size=300), digits)
    predictions = logits_to_predictions(problem_type, logits)
    probabilities = logits_to_probabilities(problem_type, logits)
    if digits == 1 and probabilities is not None and labels.ndim == 1:
        probabilities = np.round(probabilities, 1) / np.round(probabilities, 1).sum(axis=1, keepdims=True)
    result = scores(expected, labels, predictions, probabilities)
    assert result == {
        name: pytest.approx(score(labels, predictions, probabilities), rel=1e-9) for name, score in expected.items()
    }


def test_the_loss_matches_scikit_learn() -> None:
    labels, logits = random_case(0)
    assert loss("single_label_classification", logits, labels) == pytest.approx(
        sklearn.log_loss(labels, probability(logits)), abs=1e-6
    )


def test_memory_does_not_grow_with_the_product_of_rows_and_classes() -> None:
    random = np.random.default_rng(0)
    labels, predictions = random.integers(1000, size=(2, 10_000))
    tracemalloc.start()
    try:
        score_intervals(["accuracy", "balanced_accuracy", "f1_macro", "matthews_correlation"], labels, predictions)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000 * 1000 / 10, f"{peak / 1e6:.0f} MB"


@pytest.mark.parametrize("labels", [np.zeros(3, dtype=int), np.ones(3, dtype=int), np.zeros((3, 2), dtype=int)])
def test_curve_metrics_have_their_baseline_value_if_the_labels_have_only_one_class(labels: np.ndarray) -> None:
    probabilities = np.array([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]])
    result = scores(["roc_auc", "average_precision"], labels, (probabilities > 0.5).astype(int), probabilities)
    assert result == {"roc_auc": 0.5, "average_precision": float(labels.any())}


@pytest.mark.parametrize(
    ("labels", "predictions", "f1"),
    [([0, 0], [0, 0], 0.0), ([1, 1], [0, 0], 0.0), ([1, 0], [1, 1], 2 / 3), ([1], [1], 1.0)],
)
def test_f1_edge_cases(labels: list[int], predictions: list[int], f1: float) -> None:
    assert scores(MRPC, np.array(labels), np.array(predictions))["f1"] == f1


def test_loss_of_extreme_logits_is_finite() -> None:
    assert loss("single_label_classification", np.array([[1000.0, -1000.0]]), np.array([1])) == 2000
    assert loss("single_label_classification", np.array([[1000.0, -1000.0]]), np.array([0])) == 0
    assert (
        loss("single_label_classification", np.array([[1000.0, 0.0], [-1000.0, -2000.0]]), np.array([1, 1])) == 1000
    ), "each row is computed separately"


RECORDED = {
    "checkpoint": {"checkpoint": "me/mine", "revision": "0123456789abcdef"},
    "code": "fedcba9876543210",
    "data": {"sha256": {"test": "0f"}},
    "parameters": {"seed": 7},
}


def write_inputs(root: Path, task: Task, train_labels: Any, scored: dict[str, tuple[np.ndarray, np.ndarray]]) -> Path:
    """Write the labels of train to `raw` and predictions to `predictions`, and return the latter.

    Args:
        scored: The labels and the logits of each split.
    """
    raw, out = root / "raw", root / "predictions"
    for directory in (raw, out):
        directory.mkdir()
    pq.write_table(pa.table({"label": train_labels}), raw / "train.parquet")
    task.write(out)
    (out / PROVENANCE).write_text(json.dumps(RECORDED))
    for split, (labels, logits) in scored.items():
        write_predictions(out, split, task, np.arange(len(labels), dtype=np.int32), labels, logits)
    return out


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    scored = {"validation": random_case(0), "test": random_case(1)}
    return write_inputs(tmp_path, glue_task("mrpc"), [1, 1, 0], scored)


def test_the_stage_writes_scores_and_a_confusion_matrix(predictions: Path, tmp_path: Path) -> None:
    evaluate(tmp_path / "raw", predictions, predictions, tmp_path / "metrics")
    report = json.loads((tmp_path / "metrics" / "evaluation.json").read_text())
    for seed, split in enumerate(("validation", "test")):
        labels, logits = random_case(seed)
        assert report[split]["n"] == 200
        assert report[split]["accuracy"] == round(float(np.mean(logits.argmax(-1) == labels)), 6)
        assert math.isfinite(report[split]["loss"])
        with (tmp_path / "metrics" / "plots" / "confusion.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["split"] == split]
        cells = {(row["actual"], row["predicted"]): int(row["n"]) for row in rows}
        names = ("not_equivalent", "equivalent")
        counts = [[cells[actual, predicted] for predicted in names] for actual in names]
        assert counts == sklearn.confusion_matrix(labels, logits.argmax(-1)).tolist()
    for curve in ("roc", "precision_recall", "reliability", "residuals"):
        assert (tmp_path / "metrics" / "plots" / f"{curve}.csv").read_text().startswith("split,")


@pytest.mark.parametrize(
    ("problem_type", "train_labels", "labels", "prediction"),
    [
        ("single_label_classification", [0, 1, 0, 2, 2, 2], [0, 0, 0, 1], 2),
        ("single_label_classification", [1, 1, 0, 0], [0, 0, 0, 1], 1),  # a tie
        ("multi_label_classification", [[1, 0, 1], [1, 0, 0], [0, 0, 1]], [[0, 0, 0]] * 4, [1, 0, 1]),
        ("regression", [3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 6.0], 4.0),
    ],
)
def test_the_constant_baseline_learns_from_train(
    problem_type: ProblemType, train_labels: list[Any], labels: list[Any], prediction: Any, tmp_path: Path
) -> None:
    """Its prediction would be another one if it came from the scored split."""
    names = [] if problem_type == "regression" else ["a", "b", "c"]
    metric = "rmse" if problem_type == "regression" else "accuracy"
    task = dataclasses.replace(
        glue_task("mrpc"), problem_type=problem_type, labels=names, metrics=[metric], predicted_splits=["validation"]
    )
    logits = np.zeros((4, task.outputs))
    predictions = write_inputs(tmp_path, task, train_labels, {"validation": (np.array(labels), logits)})
    evaluate(tmp_path / "raw", predictions, predictions, tmp_path / "metrics")
    entry = json.loads((tmp_path / "metrics" / "evaluation.json").read_text())["validation"]
    constant = np.array([prediction] * 4)
    assert entry[f"{task.constant_baseline}_{metric}"] == round(scores([metric], np.array(labels), constant)[metric], 6)
    diagnostics = parse_details((tmp_path / "metrics" / "diagnostics.json").read_text())
    assert diagnostics["constant_prediction"] == prediction


def test_the_json_of_a_single_example_has_no_infinity(tmp_path: Path) -> None:
    """One error has no upper bound. Browsers and jq cannot read the Infinity that Python would write."""
    task = dataclasses.replace(
        glue_task("mrpc"), problem_type="regression", labels=[], metrics=["rmse", "pearson"], predicted_splits=["test"]
    )
    predictions = write_inputs(tmp_path, task, [1.0, 2.0], {"test": (np.array([1.0]), np.array([[1.5]]))})
    evaluate(tmp_path / "raw", predictions, predictions, tmp_path / "metrics")
    text = (tmp_path / "metrics" / "diagnostics.json").read_text()
    assert not re.search("Infinity|NaN", text)
    intervals = {"rmse": {"low": 0, "high": None}, "pearson": {"low": -1, "high": 1}}
    assert parse_details(text)["test"]["intervals"] == intervals


def test_the_stage_writes_intervals_and_calibration_diagnostics(predictions: Path, tmp_path: Path) -> None:
    evaluate(tmp_path / "raw", predictions, predictions, tmp_path / "metrics")
    scores = json.loads((tmp_path / "metrics" / "evaluation.json").read_text())
    diagnostics = parse_details((tmp_path / "metrics" / "diagnostics.json").read_text())
    for seed, split in enumerate(("validation", "test")):
        labels, logits = random_case(seed)
        for name in ("accuracy", "f1"):
            interval = diagnostics[split]["intervals"][name]
            assert interval["low"] < scores[split][name] < interval["high"]
        above = probability(logits) >= diagnostics["threshold"] - 1e-6
        positive_class = diagnostics[split]["classes"][1]
        at_threshold = diagnostics[split]["at_threshold"]
        for entries, predicted in ((positive_class, logits.argmax(-1)), (at_threshold, above)):
            for name in ("f1", "precision", "recall"):
                expected_score = getattr(sklearn, f"{name}_score")(labels, predicted)
                assert entries[name] == pytest.approx(expected_score, abs=1e-6)
        roc_auc = sklearn.roc_auc_score(labels, probability(logits))
        assert diagnostics[split]["scores"]["roc_auc"] == pytest.approx(roc_auc, abs=1e-6)
        confidence = np.maximum(probability(logits), 1 - probability(logits))
        assert diagnostics[split]["confidence"] == pytest.approx(confidence.mean(), abs=1e-6)
        expected = diagnostics[split]["if_calibrated"]
        bins = reliability(confidence, logits.argmax(-1) == labels)
        assert expected == pytest.approx(simulate_calibrated_model(bins), abs=1e-6)
        assert scores[split]["accuracy"] < expected["accuracy_low"], "random predictions are overconfident"
    labels, logits = random_case(0)
    assert diagnostics["threshold"] == pytest.approx(best_threshold(labels, probability(logits)), abs=1e-6), (
        "the threshold is chosen on validation, not on test"
    )
    validation = diagnostics["validation"]
    assert validation["at_threshold"]["f1"] >= validation["classes"][1]["f1"]


def test_the_chosen_metrics_are_scored_with_intervals_and_a_baseline(predictions: Path, tmp_path: Path) -> None:
    evaluate(tmp_path / "raw", predictions, predictions, tmp_path / "metrics", ["roc_auc", "average_precision"])
    test = json.loads((tmp_path / "metrics" / "evaluation.json").read_text())["test"]
    diagnostics = parse_details((tmp_path / "metrics" / "diagnostics.json").read_text())
    labels, logits = random_case(1)
    assert test["roc_auc"] == pytest.approx(sklearn.roc_auc_score(labels, probability(logits)), abs=1e-6)
    assert (test["majority_roc_auc"], test["majority_average_precision"]) == (0.5, labels.mean())
    assert "accuracy" not in test
    intervals = diagnostics["test"]["intervals"]
    assert intervals.keys() == {"roc_auc", "average_precision"}
    assert intervals["roc_auc"]["low"] < test["roc_auc"] < intervals["roc_auc"]["high"]
    assert diagnostics["metrics"] == ["roc_auc", "average_precision"]
    assert diagnostics["signature"]["metrics"] == "roc_auc+average_precision"
    assert diagnostics["test"]["scores"].keys() == BINARY.keys()


def test_a_metric_that_does_not_apply_is_rejected(predictions: Path, tmp_path: Path) -> None:
    message = r'^params\.yaml: evaluate\.metrics must be one of accuracy, .*, got "rmse"\.$'
    with pytest.raises(UserError, match=message):
        evaluate(tmp_path / "raw", predictions, predictions, tmp_path / "metrics", ["f1", "rmse"])
    assert not (tmp_path / "metrics").exists()


def test_the_score_signature_identifies_the_data_seed_checkpoint_and_code(
    predictions: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def evaluate_and_read_signature() -> dict[str, str]:
        evaluate(tmp_path / "raw", predictions, predictions, tmp_path / "metrics")
        result: dict[str, str] = parse_details((tmp_path / "metrics" / "diagnostics.json").read_text())["signature"]
        return result

    first = evaluate_and_read_signature()
    rows = {split: re.fullmatch("200@[0-9a-f]{8}", first.pop(split)) for split in ("validation", "test")}
    assert all(rows.values()) and rows["validation"][0] != rows["test"][0]
    assert first == {
        "task": "mrpc", "metrics": "accuracy+f1", "seed": "7", "checkpoint": "me/mine@01234567", "code": "fedcba98"
    }  # fmt: skip
    line = f"task:mrpc|metrics:accuracy+f1|test:{rows['test'][0]}|validation:{rows['validation'][0]}|seed:7"
    assert f"{line}|checkpoint:me/mine@01234567|code:fedcba98" in caplog.text
    test_file = predictions / "test.parquet"
    original = test_file.read_bytes()
    for name in ("idx", "label"):
        first_value, *values = pq.read_table(test_file)[name].to_pylist()
        replace_columns(test_file, **{name: [1 - first_value, *values]})
        assert evaluate_and_read_signature()["test"] != rows["test"][0], name
        test_file.write_bytes(original)
    (predictions / PROVENANCE).write_text(json.dumps(RECORDED | {"data": {"sha256": {"test": "1f"}}}))
    assert evaluate_and_read_signature()["validation"] != rows["validation"][0], "the corpus has changed"


@pytest.mark.parametrize(
    ("value", "formatted", "difference"),
    [(1.23456, "1.235", "+1.235"), (0.000123456, "0.000123", "+0.000123"), (0.0, "0.000", "+0.000")],
)
def test_tiny_errors_are_not_shown_as_zero(value: float, formatted: str, difference: str) -> None:
    assert METRICS["rmse"].format(value) == formatted
    assert METRICS["rmse"].format_difference(value) == difference
