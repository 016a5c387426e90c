"""The user's own files as a task and rows."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.data_card import LEAKAGE
from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, Task
from pipeline.params import DataParams
from pipeline.sources.corpus import Rows
from pipeline.sources.duplicates import KEY, Hashes, hashes
from pipeline.sources.files import NAMES, Batch, find_files, listing, read_files, shown
from pipeline.sources.kinds import LabelReader
from pipeline.sources.splits import MADE, check_split, made_splits

if TYPE_CHECKING:
    import pyarrow as pa


def check_own(params: DataParams) -> None:
    """Raises UserError for values of the section `data` that do not go together."""
    texts, slices = params.text_column_names, params.slice_columns
    if len(texts) not in (1, 2):
        raise UserError(f"params.yaml: data.text_column_names is {texts}; name one column, or two for pairs")
    for key, names in (("text_column_names", texts), ("slice_columns", slices)):
        for name in names:
            if name in ("label", "idx", LEAKAGE, KEY) and name != params.label_column_name:
                raise UserError(f"params.yaml: data.{key} has {name}, a name that the pipeline uses; rename the column")
            if (*texts, *slices, params.label_column_name).count(name) > 1:
                raise UserError(f"params.yaml: data.{key} has {name}, which data names twice; name each column once")
    if params.id2label is not None and len(set(params.id2label.values())) < max(2, len(params.id2label)):
        raise UserError(f"params.yaml: data.id2label is {params.id2label}; it must have two or more different names")
    check_split(params.split)


class OwnFiles:
    """The files of `data.directory`.

    task: what they are. splits: those that have files. shares: of train's rows that become train and other splits.
    """

    def __init__(self, params: DataParams) -> None:
        """Find the files and read all labels. Raises UserError where something is wrong with them."""
        check_own(params)
        self._params = params
        self._files = find_files(Path(params.directory))
        self.splits = list(self._files)
        self.shares = made_splits(params.split, self._files)
        reader, unlabelled = LabelReader(params), []
        named = [params.split.column] if params.split.type == "fixed" and params.split.column else []
        for split, files in self._files.items():
            label = [params.label_column_name]
            labelled = 0
            for batch in read_files(files, label + named * (split == TRAIN), label if split == "test" else []):
                if label[0] in batch.columns:
                    labelled += reader.add(batch, _list(batch.columns[label[0]]), split == TRAIN)
                if split == TRAIN and named:
                    self.shares |= {MADE[code]: 1 for code in set(self._keys(batch).tolist())}
            if split == "test" and not labelled:
                unlabelled.append(split)
        if twice := sorted(self.shares.keys() & self._files.keys() - {TRAIN}):
            raise UserError(
                f"data.split.column: {named[0]} names rows of {twice[0]}, for which there is a file too; leave one"
            )
        if "validation" not in {*self._files, *self.shares}:
            raise UserError(
                f"data.split: {params.directory} has no validation file, and of train's rows none are made validation "
                "rows (test is never used for it); add a file, or set data.split.type=stratify and a share in "
                "data.split.probabilities"
            )
        self._labels = reader.labels()
        metrics, best = self._labels.metrics
        self.task = Task(
            name=params.task,
            problem_type=self._labels.problem_type,
            text_columns=params.text_column_names,
            labels=self._labels.names,
            metrics=metrics,
            metric_for_best_model=best,
            predicted=[split for split in MADE[1:] if split in self._files or split in self.shares],
            unlabelled=unlabelled,
            slice_columns=params.slice_columns,
        )

    def origin(self) -> dict[str, Any]:
        """What source.json says: the sha256 of each file."""
        found = {}
        for path in chain.from_iterable(self._files.values()):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[path.relative_to(self._params.directory).as_posix()] = digest
        return {"sha256": found}

    def read(self, split: str) -> Iterator[Rows]:
        """The rows of a split's files in batches; of train, with the column `KEY` where `data.split.column` is set."""
        import numpy as np
        import pyarrow as pa

        from pipeline.core.tables import from_numpy

        params, idx = self._params, 0
        label = [] if split in self.task.unlabelled else [params.label_column_name]
        key = [params.split.column] if params.split.column and split == TRAIN else []
        names = [*params.text_column_names, *params.slice_columns]
        for batch in read_files(self._files[split], list(dict.fromkeys([*names, *label, *key]))):
            columns = {name: _strings(batch, name) for name in names}
            unlabelled: list[int] = []
            if label:
                columns["label"], unlabelled = self._labels.encode(_list(batch.columns[label[0]]))
            columns["idx"] = from_numpy(np.arange(idx, idx := idx + len(batch.numbers), dtype=np.int32))
            if key:
                columns[KEY] = from_numpy(self._keys(batch))
            yield Rows(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), unlabelled)

    def _keys(self, batch: Batch) -> Hashes:
        """What the values of `data.split.column` mean: a split's number, a time in seconds, or a hash."""
        import numpy as np

        split = self._params.split
        texts = _strings(batch, str(split.column))
        values: list[str] = texts.to_pylist()
        for row, value in enumerate(values):
            if not value.strip():
                raise UserError(f"{batch.where(row)}: {split.column} is missing, which data.split.column needs")
        if split.type == "fixed":
            return np.array([MADE.index(self._split(batch, row, value)) for row, value in enumerate(values)], np.uint64)
        if split.type == "datetime":
            return np.array([self._time(batch, row, value) for row, value in enumerate(values)]).view(np.uint64)
        return hashes(texts)

    def _split(self, batch: Batch, row: int, value: str) -> str:
        if (name := NAMES.get(value.strip().lower())) is None:
            raise UserError(
                f"{batch.where(row)}: {self._params.split.column} is {shown(value)}; data.split.column must name the "
                f"row's split: {listing(NAMES)}"
            )
        return name

    def _time(self, batch: Batch, row: int, value: str) -> float:
        try:
            return float(value)
        except ValueError:
            pass
        try:
            time = datetime.fromisoformat(value.strip())
        except ValueError:
            raise UserError(
                f"{batch.where(row)}: {self._params.split.column} is {shown(value)}; write times as 2024-12-31 or "
                "2024-12-31T23:59:59 (ISO 8601), or as numbers"
            ) from None
        return time.replace(tzinfo=time.tzinfo or UTC).timestamp()


def _list(values: Any) -> list[Any]:
    found: list[Any] = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    return found


def _strings(batch: Batch, name: str) -> "pa.Array":
    """A column as texts: numbers are written out, and what is missing is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from pipeline.core.tables import from_strings

    values = batch.columns[name]
    if isinstance(values, pa.Array):
        try:
            return pc.coalesce(values.cast(pa.string()), from_strings([""])[0])
        except pa.ArrowException:
            raise UserError(f"{batch.path}: column {name} has {values.type}; it must have texts") from None
    for row, value in enumerate(values):
        if isinstance(value, (list, dict)):
            raise UserError(f"{batch.where(row)}: {name} is {shown(value)}; it must be a text")
    try:
        return from_strings(["" if value is None else str(value) for value in values])
    except UnicodeEncodeError as error:
        raise UserError(f"{batch.path}: {name} has {shown(error.object)}, which is no Unicode; correct it") from None
