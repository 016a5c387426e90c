"""Which mistakes the report shows, and which words it marks."""

from dataclasses import replace

import numpy as np
from report_inputs import TASKS

from pipeline.evaluation.predictions import Predictions
from pipeline.reporting.mistakes import MistakeGroup, Piece, pieces, worst_mistakes


def predictions(labels: list[object], predicted: list[object], probability: list[object] | None) -> Predictions:
    probabilities = None if probability is None else np.array(probability)
    return Predictions(np.arange(len(labels)), np.array(labels), np.array(predicted), np.zeros((1, 1)), probabilities)


def test_with_two_classes_the_most_confident_mistakes_of_each_class_come_first() -> None:
    positive = np.array([0.7, 0.9, 0.2, 0.9, 0.1, 0.99, *[0.6] * 12])
    labels = [0, 0, 1, 0, 1, 1, *[0] * 12]
    outcome = predictions(
        labels, (positive >= 0.5).astype(int).tolist(), np.stack([1 - positive, positive], 1).tolist()
    )
    assert worst_mistakes(TASKS["pairs"], outcome) == [
        MistakeGroup(1, 15, [1, 3, 0, *range(6, 13)]),
        MistakeGroup(0, 2, [4, 2]),
    ]


def test_with_more_classes_all_mistakes_are_in_one_group() -> None:
    outcome = predictions([0, 1, 2], [0, 2, 1], [[0.9, 0, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
    assert worst_mistakes(TASKS["mismatched"], outcome) == [MistakeGroup(None, 2, [2, 1])]


def test_with_several_labels_the_most_confident_wrong_label_counts() -> None:
    outcome = predictions(
        [[1, 0, 0], [0, 0, 0], [1, 1, 1]],
        [[1, 0, 1], [0, 0, 0], [0, 1, 1]],
        [[0.9, 0.1, 0.6], [0.1, 0.1, 0.1], [0.2, 0.9, 0.9]],
    )
    assert worst_mistakes(TASKS["multi_label"], outcome) == [MistakeGroup(None, 2, [2, 0])], (
        "a wrong no with a confidence of 0.8 comes before a wrong yes with 0.6"
    )


def test_with_a_regression_the_largest_errors_come_first() -> None:
    outcome = predictions([1.0, 2.0, 3.0], [1.5, 0.25, 3.0], None)
    assert worst_mistakes(TASKS["regression"], outcome) == [MistakeGroup(None, 2, [1, 0])]
    assert worst_mistakes(TASKS["regression"], replace(outcome, predicted=outcome.labels)) == [
        MistakeGroup(None, 0, [])
    ]


def test_a_single_text_has_no_marks_and_a_long_text_is_truncated() -> None:
    [[piece]] = pieces(["word " * 10_000])
    assert not piece.differs
    assert 1_000 < len(piece.text) < 3_000


def test_differing_words_are_marked_ignoring_case() -> None:
    first, second = pieces(["Shares fell 4 percent .", "shares rose 4 percent on Monday ."])
    assert first == [Piece("Shares", False), Piece("fell", True), Piece("4 percent", False), Piece(".", False)]
    assert second == [
        Piece("shares", False), Piece("rose", True), Piece("4 percent", False), Piece("on Monday", True),
        Piece(".", False),
    ]  # fmt: skip


def test_no_words_are_marked_in_a_pair_of_dissimilar_texts() -> None:
    texts = ["Shares fell 4 percent on Monday .", "The bank sued an airline ."]
    assert pieces(texts) == [[Piece(text, False)] for text in texts]
