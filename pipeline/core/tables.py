"""Tables on disk: one parquet file for each split, with the names of the classes in its schema."""

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

    Not by `Dataset.from_parquet` or `load_from_disk`: they leave cache files behind, the latter inside the tracked
    directory, and DVC would rerun every later stage. Raises UserError where the file is missing or is no parquet.
    """
    path = require(directory / f"{split}.parquet", producer)
    with _told_where_not_whole(path, producer):
        # A name for the rows. Without one, Dataset pickles them all to make a hash: twice the memory.
        return Dataset(pq.read_table(path), fingerprint=f"{producer}-{split}")


def read_batches(directory: Path, split: str, producer: str, rows: int) -> tuple[Features, Iterator[pa.RecordBatch]]:
    """As `read_split`, but at most so many rows at a time: the columns' types and the batches, in order."""
    path = require(directory / f"{split}.parquet", producer)

    def batches() -> Iterator[pa.RecordBatch]:
        with _told_where_not_whole(path, producer):
            yield from file.iter_batches(rows)

    with _told_where_not_whole(path, producer):
        file = pq.ParquetFile(path)
    return Features.from_arrow_schema(file.schema_arrow), batches()


@contextmanager
def _told_where_not_whole(path: Path, producer: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:  # pyarrow's has no file name to tell
        raise UserError(f"{path}: Permission denied; change its permissions") from None
    except (ArrowException, OSError) as error:
        raise UserError(f'{path} is not a whole parquet file ({error}); run "dvc repro -f {producer}"') from None


def write_split(dataset: Dataset, directory: Path, split: str) -> None:
    """Write `directory/split.parquet`: the same rows give the same bytes, for one version of pyarrow."""
    table = dataset.with_format("arrow")[:]
    pq.write_table(table.cast(dataset.features.arrow_schema), directory / f"{split}.parquet")


@contextmanager
def writing_batches(features: Features, directory: Path, split: str) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """As `write_split`, by batches: yields the function that writes one."""
    with pq.ParquetWriter(directory / f"{split}.parquet", features.arrow_schema) as writer:
        yield writer.write_batch
