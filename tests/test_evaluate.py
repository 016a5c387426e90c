"""The metrics match scikit-learn, and the evaluate stage writes scores, intervals and diagnostics."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from sklearn import metrics as sklearn

from pipeline.core.messages import UserError
from pipeline.core.task import ProblemType, Task
from pipeline.evaluate import evaluate
from pipeline.evaluation.diagnostics import best_threshold, calibration
from pipeline.evaluation.intervals import difference, jackknife
from pipeline.evaluation.metrics import METRICS, applicable_metrics, scores
from pipeline.evaluation.predictions import load_predictions, write_predictions
from pipeline.modeling.outputs import logits_to_predictions, logits_to_probabilities, loss
from pipeline.sources.glue import glue_task

MRPC = glue_task("mrpc")

# The same metrics in scikit-learn and SciPy, computed from labels, predictions, and probabilities.
EXPECTED: dict[str, Callable[..., float]] = {
    "accuracy": lambda labels, predicted, _: sklearn.accuracy_score(labels, predicted),
    "balanced_accuracy": lambda labels, predicted, _: sklearn.balanced_accuracy_score(labels, predicted),
    "f1": lambda labels, predicted, _: sklearn.f1_score(labels, predicted, zero_division=0),
    "f1_macro": lambda labels, predicted, _: sklearn.f1_score(labels, predicted, average="macro", zero_division=np.nan),
    "f1_micro": lambda labels, predicted, _: sklearn.f1_score(labels, predicted, average="micro", zero_division=0),
    "matthews_correlation": lambda labels, predicted, _: sklearn.matthews_corrcoef(labels, predicted),
    "pearson": lambda labels, predicted, _: stats.pearsonr(labels, predicted).statistic,
    "rmse": lambda labels, predicted, _: sklearn.root_mean_squared_error(labels, predicted),
    "roc_auc": lambda labels, _, scores: sklearn.roc_auc_score(labels, scores, multi_class="ovr"),
    "spearmanr": lambda labels, predicted, _: stats.spearmanr(labels, predicted).statistic,
}


@pytest.mark.parametrize("digits", [1, 9])  # with and without ties
@pytest.mark.parametrize(
    ("problem_type", "outputs"),
    [
        ("single_label_classification", 2),
        ("single_label_classification", 5),
        ("multi_label_classification", 5),
        ("regression", 1),
    ],
)
def test_every_metric_matches_scikit_learn(problem_type: ProblemType, outputs: int, digits: int) -> None:
    names = [f"label {number}" for number in range(outputs)] if problem_type != "regression" else []
    random = np.random.default_rng(outputs)
    logits = np.round(random.normal(size=(300, outputs)), digits)
    labels: Any = random.integers(outputs, size=300)
    if problem_type == "multi_label_classification":
        labels = (random.random((300, outputs)) < 0.3).astype(int)
    elif problem_type == "regression":
        labels = np.round(logits[:, 0] + random.normal(size=300), digits)
    predicted = logits_to_predictions(problem_type, logits)
    probability = logits_to_probabilities(problem_type, logits)
    if digits == 1 and probability is not None and labels.ndim == 1:
        probability = np.round(probability, 1) / np.round(probability, 1).sum(axis=1, keepdims=True)
    curve_scores = probability[:, 1] if probability is not None and outputs == 2 else probability
    for name in applicable_metrics(replace(MRPC, problem_type=problem_type, labels=names)):
        expected = EXPECTED[name](labels, predicted, curve_scores)
        assert METRICS[name].compute(labels, predicted, probability) == pytest.approx(expected, rel=1e-9), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("labels", "predicted"),
    [
        ([0, 0], [0, 0]), ([1, 1], [0, 0]), ([1, 0], [1, 1]), ([0, 1], [1, 0]), ([1], [1]), ([0], [1]),
        ([0, 2, 2], [0, 0, 2]), ([0, 1, 2, 0], [0, 0, 0, 0]), ([0, 0, 0], [0, 1, 2]), ([3, 3], [3, 0]),
        ([[0, 0], [0, 0]], [[0, 0], [0, 0]]), ([[1, 0], [1, 0]], [[0, 0], [1, 0]]), ([[0, 1]], [[1, 0]]),
    ],
    ids=str,
)  # fmt: skip
def test_absent_classes_and_constant_predictions_are_scored_as_in_scikit_learn(labels: Any, predicted: Any) -> None:
    arrays = np.array(labels), np.array(predicted)
    names = ["accuracy", "f1_macro"]
    names += ["f1_micro"] if arrays[0].ndim == 2 else ["balanced_accuracy", "matthews_correlation"]
    if np.max(arrays) < 2 and arrays[0].ndim == 1:
        names.append("f1")
    expected = {name: np.nan_to_num(EXPECTED[name](*arrays, None)) for name in names}
    assert scores(names, *arrays) == pytest.approx(expected)


@pytest.mark.parametrize("labels", [np.zeros(3, dtype=int), np.ones(3, dtype=int), np.zeros((3, 2), dtype=int)])
def test_roc_auc_has_the_value_of_guessing_if_the_labels_have_only_one_class(labels: Any) -> None:
    probability = np.array([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]])
    assert scores(["roc_auc"], labels, labels, probability) == {"roc_auc": 0.5}


def test_the_loss_is_the_cross_entropy_and_never_infinite() -> None:
    labels, logits = random_case(0)
    expected = sklearn.log_loss(labels, probability(logits))
    assert loss(MRPC.problem_type, logits, labels) == pytest.approx(expected, abs=1e-6)
    assert loss(MRPC.problem_type, np.array([[1000.0, -1000.0], [1000.0, 0.0]]), np.array([1, 1])) == 1500


@pytest.mark.parametrize(
    ("value", "formatted", "difference"),
    [(1.23456, "1.235", "+1.235"), (0.000123456, "0.000123", "+0.000123"), (0.0, "0.000", "+0.000")],
)
def test_tiny_errors_are_not_shown_as_zero(value: float, formatted: str, difference: str) -> None:
    assert METRICS["rmse"].format(value) == formatted
    assert METRICS["rmse"].format_difference(value) == difference


def random_case(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, and logits that are rounded to tenths to get ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n), np.round(rng.normal(size=(n, 2)), 1)


def probability(logits: np.ndarray) -> Any:
    return np.round(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), 6)  # like the stage


Evaluate = Callable[..., tuple[Any, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Evaluate:
    """Evaluate predictions, and return the contents of evaluation.json and diagnostics.json."""

    def run(task: Task, train: Any, scored: dict[str, tuple[Any, ...]], names: Any = None) -> Any:
        """`scored` has the labels, the logits, and optionally the logits of the linear model of each split."""
        raw, predictions, baselines, metrics = map(tmp_path.joinpath, ("raw", "predictions", "baseline", "metrics"))
        for directory in (raw, predictions, baselines / "linear"):
            directory.mkdir(parents=True)
        pq.write_table(pa.table({"label": list(train)}), raw / "train.parquet")
        task = replace(task, predicted_splits=list(scored))
        task.write(predictions)
        for split, (labels, *logits) in scored.items():
            examples = pa.table({"idx": np.arange(len(labels), dtype=np.int32), "label": list(labels)})
            write_predictions(predictions / f"{split}.parquet", task, examples, logits[0])
            write_predictions(baselines / "linear" / f"{split}.parquet", task, examples, logits[-1])
        evaluate(raw, predictions, baselines, metrics, names)
        diagnostics = (metrics / "diagnostics.json").read_text()
        assert not re.search("Infinity|NaN", diagnostics), "browsers and jq cannot read them"
        return json.loads((metrics / "evaluation.json").read_text()), *json.loads(diagnostics)

    return run


def test_the_stage_writes_scores_intervals_and_diagnostics(run: Evaluate, tmp_path: Path) -> None:
    cases = {"validation": (*random_case(0), random_case(2)[1]), "test": random_case(1)}
    evaluation, diagnostics = run(MRPC, [1, 1, 0], cases)
    with (tmp_path / "metrics" / "plots" / "confusion.csv").open() as file:
        rows = list(csv.DictReader(file))
    for split, (labels, logits, *_) in cases.items():
        entry, details, predicted = evaluation[split], diagnostics[split], logits.argmax(-1)
        accuracy = float(np.mean(predicted == labels))
        assert (entry["n"], entry["accuracy"]) == (200, pytest.approx(accuracy, abs=1e-6))
        cells = {(row["actual"], row["predicted"]): int(row["n"]) for row in rows if row["split"] == split}
        counts = [[cells[actual, name] for name in MRPC.labels] for actual in MRPC.labels]
        assert counts == sklearn.confusion_matrix(labels, predicted).tolist()
        for name in MRPC.metrics:
            interval = details["intervals"][name]
            assert interval["low"] < interval["value"] == entry[name] < interval["high"]
        above = probability(logits) >= diagnostics["threshold"] - 1e-6
        for values, predictions in ((details["classes"][1], predicted), (details["at_threshold"], above)):
            for name in ("f1", "precision", "recall"):
                assert values[name] == pytest.approx(getattr(sklearn, f"{name}_score")(labels, predictions), abs=1e-6)
        assert details["scores"].keys() == set(applicable_metrics(MRPC))
        assert entry["accuracy"] < details["if_calibrated"]["accuracy_low"], "random predictions are overconfident"
    validation = load_predictions(tmp_path / "predictions", "validation", MRPC)
    assert diagnostics["threshold"] == pytest.approx(best_threshold(validation)), "it does not come from test"
    for name, value in calibration(validation).items():
        assert diagnostics["validation"][name] == pytest.approx(value, abs=1e-6)
    linear = load_predictions(tmp_path / "baseline" / "linear", "validation", MRPC)
    for name, gain in diagnostics["validation"]["gain_over_linear"].items():
        gap = difference(jackknife(name, linear)[None], jackknife(name, validation)[None], same_seeds=True)
        assert [gain["value"], gain["low"], gain["high"]] == pytest.approx(gap[:3], abs=1e-6)
    assert diagnostics["test"]["gain_over_linear"] is None, "both models predict the same"
    for plot in ("reliability", "residuals"):
        assert (tmp_path / "metrics" / "plots" / f"{plot}.csv").read_text().startswith("split,")


@pytest.mark.parametrize(
    ("problem_type", "train", "labels", "constant"),
    [
        ("single_label_classification", [0, 1, 0, 2, 2, 2], [0, 0, 0, 1], 2),
        ("single_label_classification", [1, 1, 0, 0], [0, 0, 0, 1], 1),  # a tie
        ("multi_label_classification", [[1, 0, 1], [1, 0, 0], [0, 0, 1]], [[0, 0, 0]] * 4, [1, 0, 1]),
        ("regression", [3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 6.0], 4.0),
    ],
)
def test_the_constant_baseline_learns_from_train(
    problem_type: ProblemType, train: list[Any], labels: list[Any], constant: Any, run: Evaluate
) -> None:
    """It would predict something else if it came from the scored split."""
    names = [] if problem_type == "regression" else ["a", "b", "c"]
    metric = "rmse" if problem_type == "regression" else "accuracy"
    task = replace(MRPC, problem_type=problem_type, labels=names, metrics=[metric])
    evaluation, diagnostics = run(task, train, {"validation": (np.array(labels), np.zeros((4, task.outputs)))})
    expected = METRICS[metric].compute(np.array(labels), np.array([constant] * 4), None)
    assert evaluation["validation"][f"{task.constant_baseline}_{metric}"] == pytest.approx(expected, abs=1e-6)
    assert diagnostics["constant_prediction"] == constant


def test_the_intervals_of_two_examples_are_finite(run: Evaluate) -> None:
    """JSON has no infinity. The interval of an error has no upper bound."""
    task = replace(MRPC, problem_type="regression", labels=[], metrics=["rmse", "pearson"])
    _, diagnostics = run(task, [1.0, 2.0], {"test": (np.array([1.0, 1.0]), np.array([[1.0], [1.5]]))})
    intervals = diagnostics["test"]["intervals"]
    assert 0 < intervals["rmse"]["low"] < intervals["rmse"]["value"] < intervals["rmse"]["high"] < np.inf
    assert intervals["pearson"] == {"value": 0, "low": -1, "high": 1}


def test_the_chosen_metrics_are_scored_with_intervals_and_a_baseline(run: Evaluate) -> None:
    labels, logits = random_case(1)
    names = ["roc_auc", "balanced_accuracy"]
    evaluation, diagnostics = run(MRPC, [1, 1, 0], {"validation": random_case(0), "test": (labels, logits)}, names)
    test = evaluation["test"]
    assert test["roc_auc"] == pytest.approx(sklearn.roc_auc_score(labels, probability(logits)), abs=1e-6)
    assert (test["majority_roc_auc"], test["majority_balanced_accuracy"]) == (0.5, 0.5)
    assert "accuracy" not in test
    assert list(diagnostics["test"]["intervals"]) == sorted(names) and diagnostics["metrics"] == names


def test_a_metric_that_does_not_apply_is_rejected(run: Evaluate, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'evaluate\.metrics .*accuracy, .*"rmse"'):
        run(MRPC, [1, 0], {"validation": random_case(0)}, ["f1", "rmse"])
    assert not (tmp_path / "metrics").exists()
