"""Load a corpus from the user's own files."""

from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, Task
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, drop_incomplete
from pipeline.sources.fetch import file_sha256
from pipeline.sources.files import find_files
from pipeline.sources.label_values import label_values
from pipeline.sources.labels import Labels, read_labels
from pipeline.sources.splits import MADE, assign, made_fractions, split_keys
from pipeline.tabular.file_format import FileFormat
from pipeline.tabular.reading import ColumnSelection, read_file, texts


class _FileRows(NamedTuple):
    """The rows of a split as its files have them. The index of a row is its file and line.

    Attributes:
        texts: The text columns, the slice columns and data.split.column.
        labels: The labels as they are in the files, or None if missing.
        class_names: The class names in the schemas of Parquet files.
    """

    texts: pd.DataFrame
    labels: pd.Series
    class_names: list[str]


def load_custom(params: DataParams) -> Corpus:
    """Read the files of data.directory, and make the splits that have no file.

    Raises:
        UserError: A file has an error, or the files do not fit the section `data` of params.yaml.
    """
    file_format = FileFormat(params.delimiter, params.encoding, params.header)
    files = find_files(Path(params.directory), file_format)
    last_changes = {path: _last_change(path) for path in chain.from_iterable(files.values())}
    sha256 = {path.relative_to(params.directory).as_posix(): file_sha256(path) for path in last_changes}
    rows = {split: _read(paths, split, params, file_format) for split, paths in files.items()}
    if changed := next((path for path, time in last_changes.items() if _last_change(path) != time), None):
        raise UserError(f"{changed} changed while it was being read. Run the command again.")

    keys = split_keys(params.split, rows[TRAIN].texts[params.split.column]) if params.split.column else None
    fractions = made_fractions(params, files, keys)
    labels = read_labels(
        {split: part.labels for split, part in rows.items()},
        {split: part.class_names for split, part in rows.items()},
        params,
    )
    task = _task(params, labels, [split for split in MADE[1:] if split in files or split in fractions], list(files))
    splits: dict[str, pd.DataFrame] = {}
    warnings = [*labels.warnings]
    for split, part in rows.items():
        frame = part.texts[[*task.text_columns, *task.slice_columns]].reset_index(drop=True)
        if split in labels.splits:
            frame["label"] = labels.splits[split].to_numpy()
        frame["idx"] = np.arange(len(frame), dtype=np.int32)
        splits[split] = drop_incomplete(split, frame, task, params.on_missing, warnings)
    train = splits[TRAIN]
    names = assign(params.split, fractions, train, None if keys is None else keys[train["idx"]], task)
    splits |= {split: train[names == split] for split in fractions}
    return Corpus(task, {split: splits[split] for split in task.splits}, {"sha256": sha256}, warnings)


def _last_change(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return status.st_mtime_ns, status.st_size


def _read(paths: list[Path], split: str, params: DataParams, file_format: FileFormat) -> _FileRows:
    names = [*params.text_column_names, *params.slice_columns]
    if split == TRAIN and params.split.column and params.split.column not in names:
        names.append(params.split.column)
    columns = ColumnSelection([*names, *params.label_columns], optional=params.label_columns if split == "test" else [])
    parts: list[pa.Table] = []
    labels: list[Any] = []
    class_names: list[str] = []
    places: list[str] = []
    for path in paths:
        before = len(labels)
        for batch in read_file(path, columns, file_format=file_format):
            parts.append(pa.table({name: texts(batch, name) for name in names}))
            labels += label_values(batch, params.label_columns)
            places += map(batch.where, range(len(batch.numbers)))
            class_names += [name for column in params.label_columns for name in batch.class_names.get(column, ())]
        if len(labels) == before:
            raise UserError(f"{path} has no rows. Add some, or remove the file.")
    table = pa.concat_tables(parts).to_pandas().set_axis(places)
    return _FileRows(table, pd.Series(labels, table.index, dtype=object), list(dict.fromkeys(class_names)))


def _task(params: DataParams, labels: Labels, predicted: list[str], files: list[str]) -> Task:
    metrics = labels.metrics
    return Task(
        name=params.task,
        problem_type=labels.problem_type,
        text_columns=params.text_column_names,
        labels=labels.names,
        metrics=metrics,
        metric_for_best_model=next((name for name in metrics if name.startswith("f1")), metrics[0]),
        predicted_splits=predicted,
        unlabeled_splits=[split for split in files if split not in labels.splits],
        slice_columns=params.slice_columns,
    )
