"""Find and read the files that a user names, and decide where they go."""

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN
from pipeline.core.text import listing
from pipeline.sources.files import NAMES, find_files
from pipeline.tabular.file_format import FileFormat, detect_format
from pipeline.tabular.opening import data_stem, data_suffix, is_compressed
from pipeline.tabular.reading import ColumnSelection, check_file, read_file

CUSTOM = Path("data/custom")


class UserData(NamedTuple):
    """The user's data before any choice of columns.

    Attributes:
        train: The rows of train, with all columns as they are in the files.
        splits: The splits that exist.
        files: Where each file goes, and where it comes from.
        values: Values of the section `data` of params.yaml that say where the data are.
    """

    train: pd.DataFrame
    splits: list[str]
    files: dict[Path, Path]
    values: dict[str, Any]


def read_files(source: Path, file_format: FileFormat) -> UserData:
    """Read a file, which is then train, or a directory with a file for each split.

    Raises:
        UserError: The source does not exist, cannot be read, or is a directory without a train file.
    """
    if source.is_dir():
        paths = find_files(source, file_format)
        files = {CUSTOM / path.relative_to(source): path for shards in paths.values() for path in shards}
    else:
        check_file(source, file_format)
        paths = {TRAIN: [source]}
        suffix = data_suffix(source) + (".gz" if is_compressed(source) else "")
        files = {CUSTOM / f"{TRAIN}{suffix}": source}
    columns = ColumnSelection([], keep_rest=True)
    batches = [batch for path in paths[TRAIN] for batch in read_file(path, columns, file_format=file_format)]
    if not batches:
        raise UserError(f"{paths[TRAIN][0]} has no rows. Add some.")
    rows = pd.concat([pd.DataFrame(dict(batch.columns), dtype=object) for batch in batches], ignore_index=True)
    delimiters = {detect_format(path, file_format).delimiter for path in files.values()}
    values = {
        "task": "custom",
        "name": data_stem(source.absolute()),
        "directory": CUSTOM.as_posix(),
        "delimiter": delimiters.pop() if len(delimiters) == 1 else None,
        "encoding": file_format.encoding,
        "header": file_format.header,
    }
    return UserData(rows, list(paths), files, values)


def earlier_files() -> list[Path]:
    """Return what is in data/custom under the name of a split: files, directories and .dvc files."""
    return [path for path in sorted(CUSTOM.glob("*")) if path.name.partition(".")[0].partition("-")[0].lower() in NAMES]


def require_room(files: dict[Path, Path], force: bool) -> list[Path]:
    """Return the earlier files in data/custom that must make room for the new ones.

    Raises:
        UserError: There are some, and `force` is not set, or the new files are among them.
    """
    earlier = earlier_files()
    if not files or not earlier:
        return []
    if any(CUSTOM.resolve() in source.resolve().parents for source in files.values()):
        raise UserError(f"The files are already in {CUSTOM}. Move them to another directory first.")
    if not force:
        raise UserError(f"{CUSTOM} already has {listing(path.name for path in earlier)}. Use --force to replace them.")
    return earlier
