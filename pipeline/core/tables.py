"""Tables on disk: one file per split, with the class names in its schema.

Parquet, but for the tokenized rows: those are Arrow files, which need not fit into memory.

Arrays go to Arrow and come back by the functions at the end: `pa.array` and `to_numpy` of pyarrow import pandas, where
it is installed, and nothing here needs it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import ArrowException

from pipeline.core.messages import UserError
from pipeline.core.paths import require


def schema(columns: Mapping[str, pa.DataType | list[str]]) -> pa.Schema:
    """The schema of a split's file. columns: by name, an Arrow type, or of a column of classes their names in order.

    Its metadata is that of the package `datasets`, by which `Dataset.from_parquet` knows the classes; the package
    itself takes half a second to import.
    """
    fields = {name: pa.int64() if isinstance(kind, list) else kind for name, kind in columns.items()}
    features = {name: _feature(kind) for name, kind in columns.items()}
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": features}})})


def _feature(kind: pa.DataType | list[str]) -> dict[str, Any]:
    if isinstance(kind, list):
        return {"names": kind, "_type": "ClassLabel"}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_fixed_size_list(kind):
        return {"feature": _feature(kind.value_type), "length": kind.list_size, "_type": "List"}
    return {"dtype": "float64" if kind == pa.float64() else str(kind), "_type": "Value"}  # Arrow says "double"


def kind_of(schema: pa.Schema, column: str) -> pa.DataType | list[str]:
    """What `schema` was given for a column: an Arrow type, or the names of the classes."""
    feature = json.loads(schema.metadata[b"huggingface"])["info"]["features"][column]
    return feature["names"] if feature["_type"] == "ClassLabel" else schema.field(column).type


def read_split(directory: Path, split: str, producer: str) -> pa.Table:
    """Read `directory/split.parquet`, an output of the stage `producer`, into memory.

    Not by `pyarrow.parquet.read_table`, which makes a chunk of each row group: `take` is slow on many chunks.
    Raises UserError where the file is missing or not parquet.
    """
    path = require(directory / f"{split}.parquet", producer)
    with _file_errors(path, producer):
        return pq.ParquetFile(path).read()


def read_batches(directory: Path, split: str, producer: str, rows: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """As `read_split`, in batches of at most `rows`: returns the schema and the batches in order."""
    path = require(directory / f"{split}.parquet", producer)

    def batches() -> Iterator[pa.RecordBatch]:
        with _file_errors(path, producer):
            yield from file.iter_batches(rows)

    with _file_errors(path, producer):
        file = pq.ParquetFile(path, pre_buffer=False)  # else it keeps all that it has read
    return file.schema_arrow, batches()


@contextmanager
def _file_errors(path: Path, producer: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:  # pyarrow's has no file name
        raise UserError(f"{path}: Permission denied; change its permissions") from None
    except (ArrowException, OSError) as error:
        raise UserError(
            f'{path} is not a complete {path.suffix[1:]} file ({error}); run "dvc repro -f {producer}"'
        ) from None


def write_split(table: pa.Table, directory: Path, split: str) -> None:
    """Write `directory/split.parquet`. With one version of pyarrow, the same rows give the same bytes."""
    pq.write_table(table, directory / f"{split}.parquet")


# Above it a file is mapped into memory, not read. One that is then truncated ends the process without a message.
_MOST_READ = 256 * 2**20


def open_arrow(directory: Path, split: str, producer: str) -> pa.Table:
    """Open `directory/split.arrow`, written by `writing_arrow` in the stage `producer`; a large one is memory-mapped.

    Raises UserError where the file is missing or not complete.
    """
    path = require(directory / f"{split}.arrow", producer)
    with _file_errors(path, producer):
        mapped = path.stat().st_size > _MOST_READ
        return pa.ipc.open_file(pa.memory_map(str(path)) if mapped else pa.OSFile(str(path))).read_all()


@contextmanager
def writing_arrow(schema: pa.Schema, directory: Path, split: str) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yield the function that writes a batch of `directory/split.arrow`. The same batches give the same bytes."""
    with pa.ipc.new_file(directory / f"{split}.arrow", schema) as writer:
        yield writer.write_batch


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """Numbers, shape (n,) or (n, k), as an Arrow array; of the second shape lists of k."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    flat = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, buffer])
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def to_numpy(numbers: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Numbers, or lists of k numbers, none of them missing, as a NumPy array of shape (n,) or (n, k), read-only."""
    whole = numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers
    if pa.types.is_fixed_size_list(whole.type):
        return np.from_dlpack(whole.flatten()).reshape(-1, whole.type.list_size)
    return np.from_dlpack(whole)
