"""Small tasks of every kind: a user's own files, whose labels a tiny model can learn."""

import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from conftest import data_params

from pipeline.core.task import Task
from pipeline.download import download
from pipeline.sources import demo

SIZES = {"train": 240, "validation": 60, "test": 60}
CITIES = ["Boston", "Chicago", "Denver"]
_OF_ALL: dict[str, Any] = {"name": "custom", "predicted": ["validation", "test"]}
TASKS = {
    "classes": Task(
        problem_type="single_label_classification", text_columns=["text"], labels=[*CITIES, "elsewhere"],
        metrics=["accuracy", "f1_macro", "matthews_correlation"], metric_for_best_model="f1_macro", **_OF_ALL,
    ),
    "several": Task(
        problem_type="multi_label_classification", text_columns=["text"], labels=CITIES,
        metrics=["f1_micro", "f1_macro", "accuracy"], metric_for_best_model="f1_micro", **_OF_ALL,
    ),
    "number": Task(
        problem_type="regression", text_columns=["one", "two"], labels=[], metrics=["pearson", "spearmanr", "rmse"],
        metric_for_best_model="pearson", unlabelled=["test"], **_OF_ALL,
    ),
}  # fmt: skip


def rows_of(kind: str) -> Iterator[tuple[str, str, Any]]:
    """Two texts and a label, which is a fact of the first: the cities in it, or how long it is."""
    random = np.random.default_rng(0)
    for first, second, _ in demo.pairs(2000):
        if kind == "number":
            yield first, second, len(first.split()) / 10
        elif not any(city in first for city in CITIES):
            named = random.integers(2, size=3) if kind == "several" else np.eye(4, 3, k=-1)[random.integers(4)]
            cities = [city for city, there in zip(CITIES, named, strict=True) if there]
            yield " ".join([*cities, first]), second, cities if kind == "several" else [*cities, "elsewhere"][0]


def download_kind(kind: str, directory: Path) -> Path:
    """Write a user's files of a kind, and run download. Returns its output."""
    task, rows = TASKS[kind], rows_of(kind)
    for split, size in SIZES.items():
        texts = [
            dict(zip(task.text_columns, of, strict=False)) | {"label": of[2]} for of in itertools.islice(rows, size)
        ]
        for row in texts if split in task.unlabelled else []:
            del row["label"]
        with (directory / f"{split}.{'jsonl' if kind == 'several' else 'csv'}").open("w", newline="") as file:
            if kind == "several":
                file.writelines(json.dumps(row) + "\n" for row in texts)
            else:
                writer = csv.DictWriter(file, texts[0])
                writer.writeheader()
                writer.writerows(texts)
    own = {"directory": str(directory), "text_column_names": task.text_columns}
    download(directory / "raw", data_params(task="custom", **own))
    return directory / "raw"
