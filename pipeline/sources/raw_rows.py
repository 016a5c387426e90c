"""Collect the rows of files or of a dataset on the Hub, with their labels as they are in the source."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN
from pipeline.params import DataParams
from pipeline.sources.label_values import label_columns, label_text, label_values
from pipeline.tabular.reading import Batch, ColumnSelection


class RawRows(NamedTuple):
    """The rows of a split as their source has them. The index of a row is its place, such as its file and line.

    Attributes:
        columns: The text columns, the slice columns and data.split.column, as texts.
        labels: The labels as they are in the source, or None if missing.
        class_names: The class names in the schemas of the source.
    """

    columns: pd.DataFrame
    labels: pd.Series
    class_names: list[str]


def columns_to_read(split: str, params: DataParams) -> ColumnSelection:
    """Return the columns that a split needs. Only test may lack labels."""
    labels = label_columns(params)
    columns = ColumnSelection([*_columns_as_text(split, params), *labels], labels if split == "test" else [])
    if split != TRAIN:
        columns = columns._replace(remedy="Use the column names of train.")
    if params.task == "custom" and params.header:
        hint = " If the file does not begin with column names, set data.header=false."
        return columns._replace(remedy=columns.remedy + hint)
    return columns


def require_rows(batches: Iterable[Batch], source: Path | str) -> Iterator[Batch]:
    """Yield the batches of a file or a split. Raises UserError if they have no rows."""
    count = 0
    for batch in batches:
        count += len(batch.numbers)
        yield batch
    if not count:
        raise UserError(f"{source} has no rows. Add some, or remove it.")


def collect_rows(batches: Iterable[Batch], split: str, params: DataParams) -> RawRows:
    """Collect the rows of a split from at least one batch.

    Raises:
        UserError: A value is not a text or a label, or one of several label columns is 1 or empty in each row of train.
    """
    names, label_names = _columns_as_text(split, params), label_columns(params)
    parts: list[pa.Table] = []
    labels: list[Any] = []
    class_names: list[str] = []
    places: list[str] = []
    values_by_column: dict[str, set[str | None]] = {}
    if split == TRAIN and len(label_names) > 1:
        values_by_column = {name: set() for name in label_names}
    for batch in batches:
        rows = range(len(batch.numbers))
        parts.append(pa.table({name: [batch.text(row, name) for row in rows] for name in names}))
        labels += label_values(batch, label_names)
        for name, values in values_by_column.items():
            values.update(map(label_text, batch.columns.get(name, ())))
        places += map(batch.place, rows)
        class_names += [name for column in label_names for name in batch.class_names.get(column, ())]
    # In a spreadsheet, an empty cell may mean 0. These rows would be dropped as rows without a label.
    for name, values in values_by_column.items():
        if values == {None, "1"}:
            raise UserError(
                f'{split}: "{name}" is 1 or empty in every row. If empty means 0, write 0. Otherwise, remove it from '
                "data.label_column_name."
            )
    table = pa.concat_tables(parts).to_pandas().set_axis(places)
    return RawRows(table, pd.Series(labels, table.index, dtype=object), list(dict.fromkeys(class_names)))


def _columns_as_text(split: str, params: DataParams) -> list[str]:
    names = [*params.text_column_names, *params.slice_columns]
    if split == TRAIN and params.split.column and params.split.column not in names:
        names.append(params.split.column)
    return names
