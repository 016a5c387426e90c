"""A corpus that fits into memory: its task, a table of each split, and the checksum of the rows."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pipeline.core.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

LABELS = ["not_equivalent", "equivalent"]


class Pair(NamedTuple):
    sentence1: str
    sentence2: str
    label: int  # index into LABELS
    idx: int  # the row's number in its original file


@dataclass(frozen=True)
class Corpus:
    """A corpus that fits into memory.

    splits: by name, the task's text columns (string), `label` (int64: number of the class; float64: of a regression;
    none where the labels are not known) and `idx` (int32: the row's number in its original file).
    published: what source.json says of its origin.
    """

    task: Task
    splits: dict[str, "pa.Table"]
    published: Mapping[str, str]


def table_of(task: Task, rows: Iterable[tuple[str | float, ...]]) -> "pa.Table":
    """The table of a split with labels. rows: at least one, each its texts, label and idx."""
    import numpy as np
    import pyarrow as pa

    from pipeline.core.tables import from_numpy, from_strings, schema

    *texts, labels, idx = zip(*rows, strict=True)
    columns = [from_strings(of) for of in texts]
    columns += [from_numpy(np.array(labels)), from_numpy(np.array(idx, dtype=np.int32))]
    types = {**dict.fromkeys(task.text_columns, pa.string()), "label": task.labels or pa.float64(), "idx": pa.int32()}
    return pa.table(columns, schema=schema(types))


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


def rows_sha256(table: "pa.Table") -> str:
    """sha256 over each row's JSON list `[sentence1, sentence2, label, idx]` and a line feed, in order, in UTF-8."""
    digest = hashlib.sha256()
    for batch in table.to_batches(max_chunksize=10_000):
        for row in zip(*batch.to_pydict().values(), strict=True):
            digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
