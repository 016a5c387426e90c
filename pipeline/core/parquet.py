"""Read the Parquet files of the splits. Unlike `datasets`, pyarrow is quick to import."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.paths import require


def read_split(directory: Path, split: str, producer: str) -> pa.Table:
    """Read `directory/split.parquet`, an output of the stage `producer`.

    Raises:
        UserError: The file is missing or incomplete.
    """
    path = require(directory / f"{split}.parquet", producer)
    try:
        path.open("rb").close()  # This raises a PermissionError that names the file. pyarrow's does not.
        return pq.read_table(path)
    except pa.ArrowException as error:
        raise incomplete(path, producer, error) from None


def incomplete(path: Path, producer: str, error: Exception) -> UserError:
    """Return the error for an output of the stage `producer` that cannot be read."""
    reason = " ".join(str(error).split()).rstrip(".")
    return UserError(f'{path} is incomplete: {reason}. Run "dvc repro --force {producer}".')


def to_numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    """Convert a column of numbers to an array of shape (n,), or a column of lists to an array of shape (n, length)."""
    values = column.to_numpy()
    return np.stack(values) if values.dtype == object else values
