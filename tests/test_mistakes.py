"""Which mistakes the report shows, and which words it marks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reporting.mistakes import Piece, differences, most_confident


def test_the_most_confident_mistakes_come_first() -> None:
    labels = np.array([0, 0, 1, 0, 1, 1])
    probability = np.array([0.7, 0.9, 0.2, 0.9, 0.1, 0.99])
    predictions = (probability >= 0.5).astype(int)
    confidence = np.maximum(probability, 1 - probability)
    assert most_confident(labels, predictions, confidence, predicted=1, most=2) == [1, 3]
    assert most_confident(labels, predictions, confidence, predicted=1, most=9) == [1, 3, 0]
    assert most_confident(labels, predictions, confidence, predicted=0, most=9) == [4, 2]


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
