"""Find and read the files that a user names, and decide where they go."""

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.text import listing
from pipeline.sources.files import NAMES, find_files
from pipeline.tabular.file_format import FileFormat
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
        paths = find_files(source)
        files = {CUSTOM / path.relative_to(source): path for shards in paths.values() for path in shards}
    else:
        check_file(source)
        paths = {"train": [source]}
        is_compressed = source.suffix.lower() == ".gz"
        suffix = "".join(source.suffixes[-2:]) if is_compressed else source.suffix
        files = {CUSTOM / f"train{suffix.lower()}": source}
    columns = ColumnSelection([], keep_rest=True)
    batches = [batch for path in paths["train"] for batch in read_file(path, columns)]
    if not batches:
        raise UserError(f"{paths['train'][0]} has no rows. Add some.")
    rows = pd.concat([pd.DataFrame(dict(batch.columns), dtype=object) for batch in batches], ignore_index=True)
    values = {
        "task": "custom",
        "name": source.absolute().name.partition(".")[0],
        "directory": CUSTOM.as_posix(),
        "delimiter": file_format.delimiter,
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
