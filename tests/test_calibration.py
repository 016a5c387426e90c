"""Threshold curves agree with scikit-learn, and calibration with its definition."""

import numpy as np
import pytest
from sklearn import metrics as sklearn

from pipeline.evaluation.calibration import expected_calibration_error, reliability, simulate_calibrated_model
from pipeline.evaluation.diagnostics import best_threshold, class_scores, precision_recall_curve, roc_curve
from pipeline.evaluation.metrics import threshold_counts


def random_case() -> tuple[np.ndarray, np.ndarray]:
    """Return random labels and probabilities, with ties."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 2, 200), np.round(rng.random(200), 2)


def test_curves_match_scikit_learn() -> None:
    labels, probability = random_case()
    counts = threshold_counts(labels, probability)[:2]
    precision, recall, _ = sklearn.precision_recall_curve(labels, probability)
    assert np.array(precision_recall_curve(*counts)) == pytest.approx(np.column_stack([recall, precision])[::-1])
    false_rate, true_rate, _ = sklearn.roc_curve(labels, probability, drop_intermediate=False)
    assert np.array(roc_curve(*counts)) == pytest.approx(np.column_stack([false_rate, true_rate]))


@pytest.mark.parametrize(
    ("labels", "predictions", "precision", "recall", "f1"),
    [
        ([0, 0], [0, 1], 0.0, None, 0.0),
        ([1, 0], [0, 0], None, 0.0, 0.0),
        ([0, 0], [0, 0], None, None, None),
        ([1, 1], [1, 0], 1, 0.5, pytest.approx(2 / 3)),
    ],
)
def test_scores_of_a_class_without_predictions_or_labels_are_undefined(
    labels: list[int], predictions: list[int], precision: float | None, recall: float | None, f1: float | None
) -> None:
    result = class_scores(np.array(labels), np.array(predictions))[1]
    assert result == {"n": sum(labels), "precision": precision, "recall": recall, "f1": f1}


@pytest.mark.parametrize("labels", [[1, 0], [0, 0], [1, 1]])
def test_curves_of_two_examples_have_no_nan(labels: list[int]) -> None:
    counts = threshold_counts(np.array(labels), np.array([0.9, 0.1]))[:2]
    recall = [0.0, *np.cumsum(labels) / max(sum(labels), 1)]
    assert precision_recall_curve(*counts) == list(zip(recall, [1.0, labels[0], sum(labels) / 2], strict=True))
    false_rate = [0.0, *np.cumsum(1 - np.array(labels)) / max(2 - sum(labels), 1)]
    assert roc_curve(*counts) == list(zip(false_rate, recall, strict=True))


def test_no_threshold_gives_a_higher_f1_than_the_best_one() -> None:
    labels, probability = random_case()

    def f1(threshold: float) -> float:
        predictions = probability >= threshold
        return float(2 * (labels * predictions).sum() / (labels.sum() + predictions.sum()))

    assert f1(best_threshold(labels, probability)) == max(map(f1, np.arange(0, 1.01, 0.005)))


def test_the_highest_of_equally_good_thresholds_is_best() -> None:
    """With the same F1, fewer positive predictions mean higher precision."""
    labels, probability = np.array([1, 0, 0, 1]), np.array([0.9, 0.7, 0.5, 0.3])
    f1_scores = (sklearn.f1_score(labels, probability >= threshold) for threshold in (0.9, 0.3))
    assert next(f1_scores) == next(f1_scores)
    assert best_threshold(labels, probability) == 0.9


def test_the_usual_threshold_stays_if_no_other_one_is_better() -> None:
    labels, probability = np.array([1, 1, 0, 0]), np.array([0.9, 0.8, 0.2, 0.1])
    assert best_threshold(labels, probability) == 0.5


def test_a_bin_holds_the_predictions_between_its_edges() -> None:
    bins = reliability(np.array([0.51, 0.52, 0.6, 0.61, 1.0]), np.array([True, False, True, True, True]))
    assert [(row.n, row.accuracy) for row in bins] == [(2, 0.5), (1, 1.0), (1, 1.0), (1, 1.0)], (
        "0.6 belongs to the lower bin"
    )
    assert bins[0].confidence == pytest.approx(0.515)
    assert expected_calibration_error(bins) == pytest.approx((2 * 0.015 + 0.4 + 0.39 + 0) / 5)


def test_the_simulation_describes_the_scores_of_a_calibrated_model() -> None:
    rng = np.random.default_rng(2)
    confidence = rng.uniform(0.6, 1, 1000)
    is_right = rng.random((5000, 1000)) < confidence
    bins = reliability(confidence, is_right[0])
    expected = simulate_calibrated_model(bins)
    assert simulate_calibrated_model(bins) == expected, "the same predictions give the same report"
    errors = np.array([expected_calibration_error(reliability(confidence, correct)) for correct in is_right])
    assert errors.mean() == pytest.approx(expected["calibration_error"], rel=0.05)
    assert np.mean(errors > expected["calibration_error_high"]) == pytest.approx(0.05, abs=0.005)
    accuracies = is_right.mean(axis=1)
    assert np.mean(accuracies < expected["accuracy_low"]) == pytest.approx(0.025, abs=0.01)
    assert np.mean(accuracies > expected["accuracy_high"]) == pytest.approx(0.025, abs=0.01)
