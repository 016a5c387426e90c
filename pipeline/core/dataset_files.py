"""Read and write splits as `datasets.Dataset`."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, List, Value, load_from_disk
from datasets.exceptions import DatasetGenerationError

from pipeline.core.paths import read_output
from pipeline.core.task import Task


def read_parquet(directory: Path, split: str, producer: str, cache: Path) -> Dataset:
    """Read `directory/split.parquet`, an output of the stage `producer`.

    Args:
        cache: A directory for the Arrow files of `datasets`: a copy of the file, and the results of `map`.

    Raises:
        UserError: The file is missing or damaged.
    """
    path = directory / f"{split}.parquet"
    read_output(path, producer, pq.read_schema)  # This raises the error first, because `datasets` would also log it.
    try:
        return Dataset.from_parquet(str(path), cache_dir=str(cache))
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None  # It says, for example, that the disk is full.


def label_feature(task: Task) -> Any:
    """Return the type of a column that holds the labels or the predictions of a task."""
    if task.problem_type == "single_label_classification":
        return ClassLabel(names=task.labels)
    if task.problem_type == "multi_label_classification":
        return List(Value("int64"), length=len(task.labels))
    return Value("float64")


def save(examples: Dataset, path: Path) -> None:
    """Write a dataset for `load_split`.

    A dataset also has a random fingerprint and the paths of its source files. These are not written, so the same
    examples give the same bytes.
    """
    Dataset(examples.data, fingerprint=path.name).save_to_disk(path)


def load_split(directory: Path, split: str, producer: str) -> Dataset:
    """Open `directory/split`, which the stage `producer` wrote with `save`.

    Raises:
        UserError: The dataset is missing or damaged.
    """
    return read_output(directory / split, producer, load_from_disk)
