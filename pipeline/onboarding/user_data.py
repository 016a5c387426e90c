"""Read the files or the dataset that a user names, and decide where files go."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN
from pipeline.onboarding.header import guess_header
from pipeline.sources.fetch import pin_dataset
from pipeline.sources.files import find_files
from pipeline.sources.hub_data import choose_splits, dataset_batches, load_splits
from pipeline.sources.label_values import label_values
from pipeline.sources.raw_rows import require_rows
from pipeline.tabular.file_format import FileFormat, read_head
from pipeline.tabular.opening import data_stem, data_suffix, is_compressed
from pipeline.tabular.reading import Batch, ColumnSelection, check_file, is_missing, read_file

CUSTOM = Path("data/custom")
_MAX_NAME_LENGTH = 80  # the limit of data.name
_COMMIT = re.compile("@[0-9a-f]{40}$")
_HUB_NAME = re.compile(r"[\w-]+/[\w.-]+")


class UserData(NamedTuple):
    """The user's data before any choice of columns.

    Attributes:
        train: The rows of train, with all columns. Numbers of classes are replaced by the names of the classes.
        files: Where each file goes, and where it comes from.
        values: Values of the section `data` of params.yaml that say where the data is.
    """

    train: pd.DataFrame
    files: dict[Path, Path]
    values: dict[str, Any]


def read_files(source: Path, file_format: FileFormat, columns: Sequence[str], infer_header: bool) -> UserData:
    """Read a file, which is then train, or a directory with a file for each split.

    Args:
        columns: Columns that train must have. Fields inside other fields have a name such as "review.text".
        infer_header: Whether the first rows of train decide if the first row contains the names of the columns.

    Raises:
        UserError: The source cannot be read, does not have these columns, or is a directory without a train file.
    """
    if not source.exists():
        hub = f" For a dataset of the Hub, write hf://{source}." if _HUB_NAME.fullmatch(str(source)) else ""
        raise UserError(f"{source} does not exist.{hub}")
    if source.is_dir():
        paths = find_files(source)
        files = {CUSTOM / path.relative_to(source): path for shards in paths.values() for path in shards}
    else:
        paths = {TRAIN: [source]}
        suffix = data_suffix(source) + (".gz" if is_compressed(source) else "")
        files = {CUSTOM / f"{TRAIN}{suffix}": source}
    first = paths[TRAIN][0]
    check_file(first, file_format)
    if infer_header and data_suffix(first) in (".csv", ".tsv"):
        rows = read_head(first, file_format).rows()
        first_row = {field.strip() for field in chain.from_iterable(rows[:1])}
        has_columns = bool(columns) and first_row.issuperset(columns)
        file_format = file_format._replace(header=has_columns or guess_header(rows))
    selection = ColumnSelection(columns, keep_rest=True, remedy="Name one of these columns.")
    batches = chain.from_iterable(read_file(path, selection, file_format=file_format) for path in paths[TRAIN])
    train = _table(batches, first)
    if len(train.columns):
        train = _flatten(train)
    if len(train.columns) < 2:
        remedy = "Add the missing column."
        if data_suffix(first) in (".csv", ".tsv"):
            remedy = (
                "Give each column a name, remove lines above the names and quotes around whole lines, or name the "
                "character between the columns with --delimiter."
            )
        raise UserError(
            f"{first} must have a column with texts and a column with labels, but its columns are: "
            f"{', '.join(train) or 'none'}. {remedy}"
        )
    name = source.absolute().name if source.is_dir() else data_stem(source)
    values = {
        "task": "custom",
        "name": name[:_MAX_NAME_LENGTH],
        "dataset": None,
        "config": None,
        "splits": None,
        "directory": CUSTOM.as_posix(),
        "delimiter": file_format.delimiter,
        "encoding": file_format.encoding,
        "header": file_format.header,
    }
    return UserData(train, files, values)


def _table(batches: Iterable[Batch], source: Path | str) -> pd.DataFrame:
    """Return the rows, with the names of classes instead of their numbers. Raises UserError if there are none."""
    parts = [
        pd.DataFrame({name: label_values(batch, [name]) for name in batch.columns}, dtype=object)
        for batch in require_rows(batches, source)
    ]
    return pd.concat(parts, ignore_index=True)


def _flatten(rows: pd.DataFrame) -> pd.DataFrame:
    """Replace columns of JSON objects with a column for each field, such as "review.text"."""
    parts = []
    for name in rows:
        column = rows[name]
        values = [value for value in column if not is_missing(value)]
        if values and all(isinstance(value, dict) for value in values):
            fields = pd.json_normalize([value if isinstance(value, dict) else {} for value in column])
            parts.append(fields.add_prefix(f"{name}.").astype(object))
        else:
            parts.append(column.to_frame())
    flat = pd.concat(parts, axis="columns")
    return flat.loc[:, ~flat.columns.duplicated()]  # The user may have named a field, which is then read twice.


def read_hub(dataset: str, config: str | None, splits: dict[str, str] | None) -> UserData:
    """Look up the commit of a dataset of the Hub, and read its splits.

    Args:
        dataset: The name, with or without `@` and a branch, a tag or a commit.
        config: The name of the configuration. None means the only one, or the default one.
        splits: Which splits of the dataset are train, validation and test. None means those with these names.

    Raises:
        UserError: The dataset cannot be loaded, or it is not clear which configuration or split to use.
    """
    pinned = dataset if _COMMIT.search(dataset) else pin_dataset(dataset)
    available = load_splits(pinned, config)
    names = choose_splits(dataset, list(available), splits)
    source = f"{dataset} {names[TRAIN]}"
    train = _table(dataset_batches(source, available[names[TRAIN]], ColumnSelection([], keep_rest=True)), source)
    values = {"task": "hub", "name": None, "dataset": pinned, "config": config, "splits": splits}
    return UserData(train, {}, values)
