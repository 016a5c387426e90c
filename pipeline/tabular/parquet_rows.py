"""Read the rows of Parquet files, and the class names that the package `datasets` wrote into them."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Features

from pipeline.core.messages import UserError
from pipeline.tabular.json_rows import nested_value


def parquet_batches(
    path: Path, size: int, select: Callable[[list[str], list[str]], list[str]]
) -> Iterator[tuple[range, dict[str, list[Any]], pa.Schema]]:
    """Yield the rows of a Parquet file in batches: their numbers, the values of each column, and the schema.

    Args:
        size: The number of rows per batch.
        select: Returns the names of the columns to read, given the names of all columns and of the fields inside them.
    """
    start = 0
    try:
        # With `pre_buffer`, the default, the reader keeps everything that it has read:
        # https://github.com/apache/arrow/issues/39808 and https://github.com/apache/arrow/issues/49923
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            schema = file.schema_arrow
            names = select(schema.names, _nested_fields(schema))
            for batch in file.iter_batches(size, columns=names):
                values = batch.to_pydict()
                for name in names:
                    if name not in values:
                        outer, _, inner_name = name.partition(".")
                        values[name] = [nested_value(value or {}, inner_name) for value in values[outer]]
                yield range(start, start + len(batch)), {name: values[name] for name in names}, schema
                start += len(batch)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} contains text that is not UTF-8 ({error}). Write the file again.") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a complete Parquet file ({error}). Write the file again.") from None


def _nested_fields(fields: Iterable[pa.Field]) -> list[str]:
    """Return the names of the fields inside structs, such as "review.text"."""
    names = []
    for field in fields:
        if pa.types.is_struct(field.type):
            inner = [*field.type.names, *_nested_fields(field.type.fields)]
            names += [f"{field.name}.{name}" for name in inner]
    return names


def class_names(path: Path, schema: pa.Schema) -> dict[str, list[str]]:
    """Return the class names of each column that contains class numbers or lists of them.

    Raises:
        UserError: The file has metadata of the package `datasets` that cannot be read.
    """
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    try:
        features = Features.from_arrow_schema(schema).flatten()
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # A newer version may have written it.
        raise UserError(
            f'{path} has metadata of the package "datasets" that cannot be read ({error!r}), so the names of its '
            "classes are unknown. Write the file again, with class names instead of numbers."
        ) from None
    # The items of a list have a feature of their own.
    items = {name: getattr(feature, "feature", feature) for name, feature in features.items()}
    return {name: feature.names for name, feature in items.items() if isinstance(feature, ClassLabel)}
