"""The user's own files as a task and rows."""

import hashlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.messages import UserError
from pipeline.core.tables import from_numpy
from pipeline.core.task import TRAIN, Task
from pipeline.params import SPLIT_KEY, DataParams
from pipeline.sources.corpus import Rows
from pipeline.sources.duplicates import Hashes, hashes
from pipeline.sources.files import NAMES, find_files
from pipeline.sources.kinds import LabelReader
from pipeline.sources.label_values import label_values
from pipeline.sources.splits import MADE, made_splits
from pipeline.sources.times import Times
from pipeline.tabular.reading import Batch, Columns, read_files, shown, texts

_NUMBERED = ("fixed", "datetime")  # types of split whose column means a number


class OwnFiles:
    """The files of `data.directory`.

    task: what they are. splits: those that have files. shares: of train's rows that become train and other splits.
    warnings: what to know of the labels.
    """

    def __init__(self, params: DataParams) -> None:
        """Find the files and read all labels. Raises UserError where something is wrong with them."""
        self._params = params
        self._files = find_files(Path(params.directory))
        self.splits = list(self._files)
        self.shares = made_splits(params.split, self._files)
        reader = LabelReader(params)
        split_columns = [params.split.column] if params.split.type in _NUMBERED and params.split.column else []
        self._times = Times(str(params.split.column))
        for split, files in self._files.items():
            label = params.label_columns
            columns = Columns(label + split_columns * (split == TRAIN), optional=label if split == "test" else [])
            for batch in read_files(files, columns):
                reader.add(batch, label_values(batch, label) or [], split)
                if split == TRAIN and split_columns and params.split.type == "datetime":
                    for row, text in enumerate(texts(batch, split_columns[0]).to_pylist()):
                        self._times.add(batch.where(row), text.strip())
                elif split == TRAIN and split_columns:
                    self.shares |= {MADE[int(code)]: 1 for code in set(self._keys(batch).view(np.float64))}
        if twice := sorted(self.shares.keys() & self._files.keys() - {TRAIN}):
            raise UserError(
                f"data.split.column: {params.split.column} names rows of {twice[0]}, for which there is a file too; "
                "leave one"
            )
        if "validation" not in {*self._files, *self.shares}:
            raise UserError(
                f"data.split: {params.directory} has no validation file, and test is not used for it; add one, or set "
                "data.split.type=stratify and a share in data.split.probabilities"
            )
        self._labels = reader.labels()
        self.warnings = reader.warnings
        metrics = self._labels.metrics
        best = next((name for name in metrics if name.startswith("f1")), metrics[0])
        self.task = Task(
            name=params.task,
            problem_type=self._labels.problem_type,
            text_columns=params.text_column_names,
            labels=self._labels.names,
            metrics=metrics,
            metric_for_best_model=best,
            predicted=[split for split in MADE[1:] if split in self._files or split in self.shares],
            unlabelled=self._labels.unlabelled,
            slice_columns=params.slice_columns,
        )

    def origin(self) -> dict[str, Any]:
        """What source.json says: the sha256 of each file."""
        sha256 = {}
        for path in chain.from_iterable(self._files.values()):
            with path.open("rb") as file:
                name = path.relative_to(self._params.directory).as_posix()
                sha256[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sha256": sha256}

    def read(self, split: str) -> Iterator[Rows]:
        """The rows of a split's files in batches; train has the column `SPLIT_KEY` if `data.split.column` is set."""
        params, idx = self._params, 0
        label = [] if split in self.task.unlabelled else params.label_columns
        key = [params.split.column] if params.split.column and split == TRAIN else []
        names = [*params.text_column_names, *params.slice_columns]
        for batch in read_files(self._files[split], Columns([*names, *label, *key])):
            columns = {name: texts(batch, name) for name in names}
            unlabelled: list[int] = []
            if label:
                columns["label"], unlabelled = self._labels.encode(label_values(batch, label) or [])
            columns["idx"] = from_numpy(np.arange(idx, idx := idx + len(batch.numbers), dtype=np.int32))
            if key:
                columns[SPLIT_KEY] = from_numpy(self._keys(batch))
            yield Rows(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), unlabelled)

    def _keys(self, batch: Batch) -> Hashes:
        """What the values of `data.split.column` mean: a split's number or a time as floats, or a hash."""
        split = self._params.split
        values = texts(batch, str(split.column))
        number = {"fixed": _split_number, "datetime": self._times.seconds}.get(split.type, _filled)
        must = (
            f"write {' or '.join(MADE)}, the row's split"
            if split.type == "fixed"
            else "fill it in, since data.split.column needs it"
        )
        numbers = []
        for row, text in enumerate(values.to_pylist()):
            try:
                numbers.append(number(text.strip()))
            except (KeyError, ValueError):
                raise UserError(f"{batch.where(row)}: {split.column} is {shown(text)}; {must}") from None
        return np.array(numbers).view(np.uint64) if split.type in _NUMBERED else hashes(values)


def _filled(text: str) -> float:
    if not text:
        raise ValueError
    return 0.0


def _split_number(text: str) -> float:
    return float(MADE.index(NAMES[text.lower()]))
