"""Read and write splits as `datasets.Dataset`."""

from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, load_from_disk
from numpy.typing import NDArray

from pipeline.core.paths import read_output


def save(examples: Dataset, path: Path) -> None:
    """Write a dataset for `load_examples`. Without its random fingerprint, the same examples give the same bytes."""
    Dataset(examples.data, fingerprint=path.name).save_to_disk(path)


def load_examples(directory: Path, split: str) -> Dataset:
    """Open `directory/split`, which a stage wrote with `save`. Raises UserError if it is missing or damaged."""
    return read_output(directory / split, load_from_disk)


def read_column(rows: Dataset, name: str) -> NDArray[Any]:
    """Return a column as an array. Without the format "numpy", it would be read one number at a time."""
    return np.asarray(rows.with_format("numpy")[name][:])
