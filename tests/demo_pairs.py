"""The pairs of the demo corpus, as texts for tests."""

import csv
from collections.abc import Iterator
from itertools import cycle, islice

from pipeline.sources.demo import DEMO, DEMO_FILE


def pairs(count: int) -> Iterator[tuple[str, str, int]]:
    """Yield pairs as (sentence1, sentence2, label), at most 1,000 different ones."""
    with DEMO_FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in islice(cycle(rows), count):
        yield row["sentence1"], row["sentence2"], DEMO.labels.index(row["label"])
