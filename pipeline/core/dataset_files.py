"""Read and write splits as `datasets.Dataset`."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, List, Value, load_from_disk
from datasets.exceptions import DatasetGenerationError
from pyarrow import ArrowException

from pipeline.core.parquet import incomplete
from pipeline.core.paths import require
from pipeline.core.task import Task

_MOST_IN_MEMORY = 256 * 2**20  # bytes


def read_parquet(directory: Path, split: str, producer: str, cache: Path) -> Dataset:
    """Read `directory/split.parquet`, an output of the stage `producer`.

    Args:
        cache: A directory for the Arrow files of `datasets`: a copy of the file, and the results of `map`.

    Raises:
        UserError: The file is missing or incomplete.
    """
    path = require(directory / f"{split}.parquet", producer)
    try:
        pq.read_schema(path)  # This raises the error first, because `datasets` would also log it.
        return Dataset.from_parquet(str(path), cache_dir=str(cache))
    except (ArrowException, ValueError, DatasetGenerationError) as error:
        if isinstance(error.__cause__, OSError):  # The cache directory cannot be written.
            raise error.__cause__ from None
        raise incomplete(path, producer, error) from None


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
    """Open `directory/split`, which the stage `producer` wrote with `save`. Large datasets are memory-mapped.

    Raises:
        UserError: The dataset is missing or incomplete.
    """
    path = require(directory / split, producer)
    try:
        size = sum(file.stat().st_size for file in path.iterdir())
        # If a mapped file changes, so do the examples, and if it is truncated, the process crashes.
        return load_from_disk(path, keep_in_memory=size < _MOST_IN_MEMORY)
    except (ArrowException, OSError, ValueError, KeyError) as error:
        raise incomplete(path, producer, error) from None
