"""Tables on disk: one parquet file per split, with the class names in its schema."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, Features
from pyarrow import ArrowException

from pipeline.core.messages import UserError
from pipeline.core.paths import require


def read_split(directory: Path, split: str, producer: str) -> Dataset:
    """Read `directory/split.parquet`, an output of the stage `producer`, into memory.

    Not by `Dataset.from_parquet` or `load_from_disk`: they leave cache files, the latter in the tracked directory, so
    that DVC would rerun every later stage. Raises UserError where the file is missing or not parquet.
    """
    path = require(directory / f"{split}.parquet", producer)
    with _parquet_errors(path, producer):
        # Without a fingerprint, Dataset pickles all rows to hash them: twice the memory.
        return Dataset(pq.read_table(path), fingerprint=f"{producer}-{split}")


def read_batches(directory: Path, split: str, producer: str, rows: int) -> tuple[Features, Iterator[pa.RecordBatch]]:
    """As `read_split`, in batches of at most `rows`: returns the column types and the batches in order."""
    path = require(directory / f"{split}.parquet", producer)

    def batches() -> Iterator[pa.RecordBatch]:
        with _parquet_errors(path, producer):
            yield from file.iter_batches(rows)

    with _parquet_errors(path, producer):
        file = pq.ParquetFile(path)
    return Features.from_arrow_schema(file.schema_arrow), batches()


@contextmanager
def _parquet_errors(path: Path, producer: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:  # pyarrow's has no file name
        raise UserError(f"{path}: Permission denied; change its permissions") from None
    except (ArrowException, OSError) as error:
        raise UserError(f'{path} is not a complete parquet file ({error}); run "dvc repro -f {producer}"') from None


def write_split(dataset: Dataset, directory: Path, split: str) -> None:
    """Write `directory/split.parquet`. With one version of pyarrow, the same rows give the same bytes."""
    table = dataset.with_format("arrow")[:]
    pq.write_table(table.cast(dataset.features.arrow_schema), directory / f"{split}.parquet")


@contextmanager
def writing_batches(features: Features, directory: Path, split: str) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """As `write_split`, in batches: yields the function that writes one."""
    with pq.ParquetWriter(directory / f"{split}.parquet", features.arrow_schema) as writer:
        yield writer.write_batch
