"""Read the Parquet files of the splits. Unlike `datasets`, pyarrow is quick to import."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.core.paths import read_output


def read_rows(directory: Path, split: str) -> pa.Table:
    """Read `directory/split.parquet`, an output of a stage. Raises UserError if it is missing or damaged."""
    return read_output(directory / f"{split}.parquet", pq.read_table)


def to_numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    """Convert a column of numbers to an array of shape (n,), or a column of lists to an array of shape (n, length)."""
    values = column.to_numpy()
    return np.stack(values) if values.dtype == object else values
