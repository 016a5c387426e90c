"""Read and write splits as `datasets.Dataset`."""

from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, List, Value, load_from_disk

from pipeline.core.paths import read_output
from pipeline.core.task import Task


def read_parquet(directory: Path, split: str, producer: str, cache: Path) -> Dataset:
    """Read `directory/split.parquet`, an output of the stage `producer`. `datasets` writes its files to `cache`."""
    return read_output(
        directory / f"{split}.parquet", producer, lambda path: Dataset.from_parquet(str(path), cache_dir=str(cache))
    )


def label_feature(task: Task) -> Any:
    """Return the type of a column that holds the labels or the predictions of a task."""
    if task.problem_type == "single_label_classification":
        return ClassLabel(names=task.labels)
    if task.problem_type == "multi_label_classification":
        return List(Value("int64"), length=len(task.labels))
    return Value("float64")


def save(examples: Dataset, path: Path) -> None:
    """Write a dataset for `load_split`. Without its random fingerprint, the same examples give the same bytes."""
    Dataset(examples.data, fingerprint=path.name).save_to_disk(path)


def load_split(directory: Path, split: str, producer: str) -> Dataset:
    """Open `directory/split`, which the stage `producer` wrote with `save`."""
    return read_output(directory / split, producer, load_from_disk)
