"""Tables on disk: one parquet file for each split, with the names of the classes in its schema."""

from pathlib import Path

import pyarrow.parquet as pq
from datasets import Dataset
from pyarrow import ArrowException

from pipeline.stage import UserError, require


def read_split(directory: Path, split: str, producer: str) -> Dataset:
    """Read `directory/split.parquet`, an output of the stage `producer`, into memory.

    Not by `Dataset.from_parquet` or `load_from_disk`: they leave cache files behind, the latter inside the tracked
    directory, and DVC would rerun every later stage. Raises UserError where the file is missing or is no parquet.
    """
    path = require(directory / f"{split}.parquet", producer)
    try:
        return Dataset(pq.read_table(path))
    except (ArrowException, OSError) as error:
        raise UserError(f'{path} is not a whole parquet file ({error}); run "dvc repro -f {producer}"') from None


def write_split(dataset: Dataset, directory: Path, split: str) -> None:
    """Write `directory/split.parquet`: the same rows give the same bytes, for one version of pyarrow."""
    table = dataset.with_format("arrow")[:]
    pq.write_table(table.cast(dataset.features.arrow_schema), directory / f"{split}.parquet")
