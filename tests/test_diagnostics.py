"""Diagnostics agree with scikit-learn and with their definitions."""

from typing import Any

import numpy as np
import pytest
from conftest import as_predictions
from sklearn import metrics as sklearn

from pipeline.evaluation.diagnostics import best_threshold, calibration, class_scores, plots, reliability
from pipeline.evaluation.predictions import Predictions
from pipeline.sources.demo import DEMO


def binary(labels: Any, probability: Any) -> Predictions:
    """Return predictions with the given probability of class 1."""
    labels, probability = np.array(labels), np.array(probability)
    return as_predictions(labels, (probability > 0.5).astype(int), np.stack([1 - probability, probability], axis=1))


def random_case() -> Predictions:
    """Return random predictions with ties."""
    rng = np.random.default_rng(0)
    return binary(rng.integers(0, 2, 200), np.round(rng.random(200), 2))


@pytest.mark.parametrize(
    ("labels", "predicted", "precision", "recall", "f1"),
    [
        ([0, 0], [0, 1], 0, None, 0),
        ([1, 0], [0, 0], None, 0, 0),
        ([0, 0], [0, 0], None, None, None),
        ([1, 1], [1, 0], 1, 0.5, pytest.approx(2 / 3)),
    ],
)
def test_scores_of_a_class_without_predictions_or_labels_are_undefined(
    labels: list[int], predicted: list[int], precision: float | None, recall: float | None, f1: float | None
) -> None:
    result = class_scores(np.array(labels), np.array(predicted), 2)[1]
    assert result == {"n": sum(labels), "precision": precision, "recall": recall, "f1": f1}


def test_the_scores_of_a_single_label_are_about_rows_that_have_it() -> None:
    [scores] = class_scores(np.array([[1], [1], [0], [0], [0]]), np.array([[1], [0], [0], [0], [0]]), 1)
    assert scores == {"n": 2, "precision": 1, "recall": 0.5, "f1": pytest.approx(2 / 3)}


@pytest.mark.parametrize("labels", [[1, 0], [0, 0], [1, 1]])
def test_plots_of_two_examples_have_no_undefined_numbers(labels: list[int]) -> None:
    for table in plots(DEMO, binary(labels, [0.9, 0.1])).values():
        assert not table.isna().any(axis=None)


def test_no_threshold_gives_a_higher_f1_than_the_best_one() -> None:
    predictions = random_case()
    probability: Any = predictions.probability

    def f1(threshold: float) -> float:
        return float(sklearn.f1_score(predictions.labels, probability[:, 1] >= threshold))

    assert f1(best_threshold(predictions)) == max(map(f1, np.arange(0, 1.01, 0.005)))


def test_the_usual_threshold_stays_if_no_other_one_is_better() -> None:
    assert best_threshold(binary([1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1])) == 0.5


def test_a_bin_holds_the_predictions_between_its_edges() -> None:
    predictions = binary([1, 0, 1, 1, 1], [0.51, 0.52, 0.6, 0.61, 1.0])
    bins = reliability(predictions)
    expected = [(2, 0.5), (1, 1.0), (1, 1.0), (1, 1.0)]  # 0.6 belongs to the lower bin
    assert list(bins[["n", "accuracy"]].itertuples(index=False, name=None)) == expected
    assert bins["confidence"][0] == pytest.approx(0.515)
    assert calibration(predictions)["calibration_error"] == pytest.approx((2 * 0.015 + 0.4 + 0.39 + 0) / 5)


def test_the_simulation_describes_the_scores_of_a_calibrated_model() -> None:
    rng = np.random.default_rng(2)
    probability = np.sort(rng.uniform(0.6, 1, 1000))
    is_right = rng.random((5000, 1000)) < probability
    expected = calibration(binary(is_right[0], probability))["if_calibrated"]
    starts = np.unique(np.ceil(probability * 15), return_index=True)[1]
    errors = abs(np.add.reduceat(is_right - probability, starts, axis=1)).sum(axis=1) / 1000
    assert errors.mean() == pytest.approx(expected["calibration_error"], rel=0.05)
    assert np.mean(errors > expected["calibration_error_high"]) == pytest.approx(0.05, abs=0.01)
    accuracies = is_right.mean(axis=1)
    assert np.mean(accuracies < expected["accuracy_low"]) == pytest.approx(0.025, abs=0.01)
    assert np.mean(accuracies > expected["accuracy_high"]) == pytest.approx(0.025, abs=0.01)
