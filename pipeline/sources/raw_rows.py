"""Turn the rows of files or of a dataset on the Hub into a corpus, and make the splits that are missing."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pipeline.core.data_card import GROUP
from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, Task
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, drop_incomplete
from pipeline.sources.files import SPLITS
from pipeline.sources.label_values import label_values
from pipeline.sources.labels import Labels, read_labels
from pipeline.sources.splits import assign_splits, read_split_values, split_fractions
from pipeline.tabular.reading import Batch, ColumnSelection, texts


class RawRows(NamedTuple):
    """The rows of a split as their source has them. The index of a row is its place, such as its file and line.

    Attributes:
        texts: The text columns, the slice columns and data.split.column.
        labels: The labels as they are in the source, or None if missing.
        class_names: The class names in the schemas of the source.
    """

    texts: pd.DataFrame
    labels: pd.Series
    class_names: list[str]


def columns_to_read(split: str, params: DataParams) -> ColumnSelection:
    """Return the columns that a split needs. Only test may lack labels."""
    names = [*_text_columns(split, params), *params.label_columns]
    return ColumnSelection(names, optional=params.label_columns if split == "test" else [])


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
        UserError: A value is not a text or a label.
    """
    names = _text_columns(split, params)
    parts: list[pa.Table] = []
    labels: list[Any] = []
    class_names: list[str] = []
    places: list[str] = []
    for batch in batches:
        parts.append(pa.table({name: texts(batch, name) for name in names}))
        labels += label_values(batch, params.label_columns)
        places += map(batch.where, range(len(batch.numbers)))
        class_names += [name for column in params.label_columns for name in batch.class_names.get(column, ())]
    table = pa.concat_tables(parts).to_pandas().set_axis(places)
    return RawRows(table, pd.Series(labels, table.index, dtype=object), list(dict.fromkeys(class_names)))


def _text_columns(split: str, params: DataParams) -> list[str]:
    names = [*params.text_column_names, *params.slice_columns]
    if split == TRAIN and params.split.column and params.split.column not in names:
        names.append(params.split.column)
    return names


def make_corpus(rows: Mapping[str, RawRows], params: DataParams) -> Corpus:
    """Read the labels, drop incomplete rows if the user wants that, and make the splits that have no rows of their own.

    Args:
        rows: The rows of each split that the source has, train first.

    Returns:
        The corpus, without its origin.

    Raises:
        UserError: The rows do not fit the section `data` of params.yaml.
    """
    split_values = None
    if params.split.column:
        split_values = read_split_values(params.split, rows[TRAIN].texts[params.split.column])
    fractions = split_fractions(params, rows, split_values)
    labels = read_labels(
        {split: part.labels for split, part in rows.items()},
        {split: part.class_names for split, part in rows.items()},
        params,
    )
    task = _task(params, labels, [split for split in SPLITS[1:] if split in rows or split in fractions], list(rows))
    splits: dict[str, pd.DataFrame] = {}
    warnings = [*labels.warnings]
    for split, part in rows.items():
        frame = part.texts[[*task.text_columns, *task.slice_columns]].reset_index(drop=True)
        if split in labels.splits:
            frame["label"] = labels.splits[split].to_numpy()
        frame["idx"] = np.arange(len(frame), dtype=np.int32)
        splits[split] = drop_incomplete(split, frame, task, params.on_missing, warnings)
    train = splits[TRAIN]
    if split_values is not None:
        split_values = split_values[train["idx"]]
        if params.split.type == "group":
            train = train.assign(**{GROUP: split_values})
    names = assign_splits(params.split, fractions, train, split_values, task)
    splits |= {split: train[names == split] for split in fractions}
    return Corpus(task, {split: splits[split] for split in task.splits}, {}, warnings)


def _task(params: DataParams, labels: Labels, predicted: list[str], sources: list[str]) -> Task:
    metrics = labels.metrics
    return Task(
        name=params.task,
        problem_type=labels.problem_type,
        text_columns=params.text_column_names,
        labels=labels.names,
        metrics=metrics,
        metric_for_best_model=next((name for name in metrics if name.startswith("f1")), metrics[0]),
        predicted_splits=predicted,
        unlabeled_splits=[split for split in sources if split not in labels.splits],
        slice_columns=params.slice_columns,
    )
