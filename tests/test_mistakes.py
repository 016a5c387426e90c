"""Which mistakes the report shows, and which words it marks."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.task import Task
from pipeline.evaluation.predictions import Predictions
from pipeline.reporting.mistakes import Piece, differences, mistakes, told
from pipeline.sources.synthetic import SAMPLE


def predictions(labels: list[Any], predicted: list[Any], probability: list[Any] | None, **of: Any) -> Predictions:
    found = None if probability is None else np.array(probability)
    return Predictions(
        idx=np.arange(len(labels)), labels=np.array(labels), predicted=np.array(predicted), logits=np.zeros((1, 1)),
        probability=found, swapped=of.get("swapped"),
    )  # fmt: skip


def test_the_most_confident_mistakes_come_first() -> None:
    of_one = np.array([0.7, 0.9, 0.2, 0.9, 0.1, 0.99])
    of = predictions([0, 0, 1, 0, 1, 1], [1, 1, 0, 1, 0, 1], np.stack([1 - of_one, of_one], axis=1).tolist())
    yes, no = mistakes(SAMPLE, of, most=2)
    assert yes == ("Wrongly called equivalent", 3, [1, 3])
    assert no == ("Wrongly called not_equivalent", 2, [4, 2])
    assert told(SAMPLE, of, 1) == "90.0 % sure of equivalent."


TASK = Task(
    name="own", problem_type="multi_label_classification", text_columns=["text"], labels=["a", "b", "c"],
    metrics=["f1_micro"], metric_for_best_model="f1_micro", predicted=["validation"],
)  # fmt: skip


def test_of_several_labels_the_surest_wrong_one_counts() -> None:
    of = predictions(
        [[1, 0, 0], [0, 0, 0], [1, 1, 1]],
        [[1, 0, 1], [0, 0, 0], [0, 1, 1]],
        [[0.9, 0.1, 0.6], [0.1, 0.1, 0.1], [0.2, 0.9, 0.9]],
    )
    [wrong] = mistakes(TASK, of, most=5)
    assert wrong == ("Wrong", 2, [2, 0])
    assert told(TASK, of, 0) == "predicted a, c, labelled a; 60.0 % sure of c."
    assert told(TASK, of, 2) == "predicted b, c, labelled a, b, c; 80.0 % sure that it is not a."


def test_of_more_classes_the_label_is_named() -> None:
    task = replace(TASK, problem_type="single_label_classification")
    of = predictions([0, 1, 2], [0, 2, 1], [[0.9, 0, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
    assert mistakes(task, of, most=5) == [("Wrong", 2, [2, 1])]
    assert told(task, of, 2) == "80.0 % sure of b, labelled c."


def test_of_a_regression_the_largest_errors_come_first() -> None:
    task = replace(TASK, problem_type="regression", labels=[], text_columns=["one", "two"])
    of = predictions([1.0, 2.0, 3.0], [1.5, 0.25, 3.1], None, swapped=np.array([1.5, 0.5, 3.0]))
    [largest] = mistakes(task, of, most=2)
    assert largest.rows == [1, 0]
    assert told(task, of, 1) == "predicted 0.25, labelled 2. With the texts swapped: 0.5."


def test_differing_words_are_marked_ignoring_case() -> None:
    first, second = differences("Shares fell 4 percent .", "shares rose 4 percent on Monday .")
    assert first == [Piece("Shares", False), Piece("fell", True), Piece("4 percent .", False)]
    assert [piece.text for piece in second if piece.differs] == ["rose", "on Monday"]


WORDS = st.lists(st.sampled_from(["a", "b", "B", "c"]), max_size=8).map(" ".join)


@given(WORDS, WORDS)
def test_the_pieces_make_up_the_sentence_and_unmarked_ones_match(first: str, second: str) -> None:
    pieces = differences(first, second)
    assert [" ".join(piece.text for piece in of) for of in pieces] == [first, second]
    alike = [" ".join(piece.text for piece in of if not piece.differs).lower() for of in pieces]
    assert alike[0] == alike[1]
