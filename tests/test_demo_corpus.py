"""The embedded corpus is deterministic, balanced like MRPC, and not solvable by word overlap."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from pipeline.core.data_card import GROUP
from pipeline.evaluation.metrics import scores
from pipeline.sources import demo
from pipeline.sources.corpus import rows_sha256

CHECKSUM = "3103c1a1962545483bbb79f1228d32d70fb63eb60de885ebd06166b0fb9b14cc"


def overlap(left: str, right: str) -> float:
    first, second = set(left.lower().split()), set(right.lower().split())
    return len(first & second) / len(first | second)


def best_threshold_accuracy(values: np.ndarray, labels: np.ndarray) -> float:
    """Return the best accuracy of any rule "a paraphrase if the value is above (or below) t" on these pairs."""
    thresholds = [*np.unique(values), np.inf]
    return max(
        max(
            scores(["accuracy"], labels, (values >= threshold).astype(int))["accuracy"],
            scores(["accuracy"], labels, (values < threshold).astype(int))["accuracy"],
        )
        for threshold in thresholds
    )


def test_the_corpus_is_the_same_everywhere() -> None:
    assert rows_sha256(pd.concat(demo.load_demo().splits.values())) == CHECKSUM


def test_the_corpus_has_the_expected_size_and_the_balance_and_columns_of_mrpc(raw: Path) -> None:
    tables = {split: pq.read_table(raw / f"{split}.parquet") for split in ("train", "validation", "test")}
    assert {split: len(table) for split, table in tables.items()} == {"train": 640, "validation": 120, "test": 240}
    columns = ["sentence1", "sentence2", "label", "idx"]
    rows = [tuple(row.values()) for table in tables.values() for row in table.select(columns).to_pylist()]
    assert tables["train"].column_names == [*columns, GROUP]
    assert 0.65 < np.mean([label for _, _, label, _ in rows]) < 0.70
    assert len({(first, second) for first, second, _, _ in rows}) == len(rows), "no pair occurs twice"
    assert all(first != second for first, second, _, _ in rows)


def test_word_overlap_does_not_predict_the_label() -> None:
    rows = list(demo.pairs(demo.SIZE))
    labels = np.array([label for _, _, label in rows])
    shared = np.array([overlap(first, second) for first, second, _ in rows])
    assert best_threshold_accuracy(shared, labels) < labels.mean() + 0.07
