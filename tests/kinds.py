"""A small task of each problem type, as custom files with labels that a tiny model can learn."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from conftest import data_params, sections, tokenize_params
from demo_pairs import pairs

from pipeline.core.paths import CLASSIFIER, METRICS_DIR, TOKENIZED
from pipeline.core.task import Task
from pipeline.download import download
from pipeline.params import Params
from pipeline.tokenize_data import tokenize
from pipeline.train import train
from pipeline.training.checkpointing import CHECKPOINTS

SIZES = {"train": 240, "validation": 60, "test": 60}
CITIES = ["Boston", "Chicago", "Denver"]
_COMMON: dict[str, Any] = {"name": "custom", "predicted_splits": ["validation", "test"]}
TASKS = {
    "classes": Task(
        problem_type="single_label_classification", text_columns=["text"], labels=[*CITIES, "elsewhere"],
        metrics=["accuracy", "f1_macro", "matthews_correlation"], metric_for_best_model="f1_macro", **_COMMON,
    ),
    "multi_label": Task(
        problem_type="multi_label_classification", text_columns=["text"], labels=CITIES,
        metrics=["f1_micro", "f1_macro", "accuracy"], metric_for_best_model="f1_micro", **_COMMON,
    ),
    "regression": Task(
        problem_type="regression", text_columns=["one", "two"], labels=[], metrics=["pearson", "spearmanr", "rmse"],
        metric_for_best_model="pearson", unlabeled_splits=["test"], **_COMMON,
    ),
}  # fmt: skip


def generate_rows(task: str) -> Iterator[tuple[str, str, Any]]:
    """Yield two texts and a label that depends only on the first text: the cities that it names, or its length."""
    random = np.random.default_rng(0)
    for first, second, _ in pairs(2000):
        if task == "regression":
            yield first, second, len(first.split()) / 10
        elif not any(city in first for city in CITIES):
            has_city = random.integers(2, size=3) if task == "multi_label" else np.eye(4, 3, k=-1)[random.integers(4)]
            cities = [city for city, is_in_text in zip(CITIES, has_city, strict=True) if is_in_text]
            yield " ".join([*cities, first]), second, cities if task == "multi_label" else [*cities, "elsewhere"][0]


def download_task(name: str, directory: Path) -> Path:
    """Write the custom files of a task, run download and return its output directory."""
    task, rows = TASKS[name], generate_rows(name)
    for split, size in SIZES.items():
        examples = [
            dict(zip(task.text_columns, row, strict=False)) | {"label": row[2]} for row in itertools.islice(rows, size)
        ]
        table = pd.DataFrame(examples)
        if split in task.unlabeled_splits:
            table = table.drop(columns="label")
        if name == "multi_label":
            table.to_json(directory / f"{split}.jsonl", orient="records", lines=True)
        else:
            table.to_csv(directory / f"{split}.csv", index=False)
    params = data_params(task="custom", directory=str(directory), text_column_names=task.text_columns)
    download(directory / "raw", params)
    return directory / "raw"


def train_task(
    name: str, directory: Path, checkpoint: Path, params: Params, stride: int | None = None, **changes: Any
) -> Path:
    """Run the stages up to train for a task, in the paths below `directory` that the stages use."""
    tokenized, metrics, checkpoints = directory / TOKENIZED, directory / METRICS_DIR, directory / CHECKPOINTS
    raw = download_task(name, directory)
    tokenize(raw, checkpoint, tokenized, tokenize_params(24, stride=stride, train_on_windows=stride is not None), 1)
    settings = sections(params, **{"max_train_samples": None, **changes})
    train(tokenized, checkpoint, directory / CLASSIFIER, metrics, checkpoints, *settings)
    return directory
