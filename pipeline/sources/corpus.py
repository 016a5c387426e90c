"""A corpus of sentence pairs: its task, the rows of each split, and their checksum."""

import hashlib
import json
from collections.abc import Iterable
from typing import NamedTuple

from pipeline.core.task import Task

LABELS = ["not_equivalent", "equivalent"]


class Pair(NamedTuple):
    sentence1: str
    sentence2: str
    label: int  # index into LABELS
    idx: int  # the row's number in its original file


Corpus = dict[str, list[Pair]]


def paraphrases(name: str) -> Task:
    """The task of MRPC, under a name."""
    return Task(
        name=name,
        problem_type="single_label_classification",
        text_columns=["sentence1", "sentence2"],
        labels=LABELS,
        metrics=["accuracy", "f1"],
        metric_for_best_model="f1",
        predicted=["validation", "test"],
    )


def rows_sha256(pairs: Iterable[Pair]) -> str:
    """sha256 over each row's JSON list `[sentence1, sentence2, label, idx]` and a line feed, in order, in UTF-8."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(json.dumps(list(pair), ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
