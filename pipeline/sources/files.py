"""Find and read the user's files, one or several for each split."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from pipeline.core.messages import UserError, log
from pipeline.core.paths import users_path
from pipeline.core.task import TRAIN
from pipeline.core.text import listing
from pipeline.sources.file_format import FileFormat
from pipeline.sources.tables import FORMATS, Table, concat, data_stem, data_suffix, read_bytes, read_table

SPLITS = (TRAIN, "validation", "test")
# What the name of a file, the name of a split on the Hub, or a value of data.split.column means.
SPLIT_ALIASES = {
    "train": TRAIN, "training": TRAIN, "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "eval": "validation", "test": "test", "testing": "test",
}  # fmt: skip
_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})")


def find_files(directory: Path) -> dict[str, list[Path]]:
    """Return the file of each split, or its shards such as train-00000-of-00002.parquet. Train comes first.

    Raises:
        UserError: Train has no file, a split has several files or lacks a shard, or a file is not tracked, so that the
            copy of the repository in which an experiment runs does not have it.
    """
    # A temporary experiment runs in a copy of the repository that has only tracked files, see `users_path`.
    users_files, _ = _files_by_split(users_path(directory))
    for path in chain.from_iterable(users_files.values()):
        if path.exists() and not (directory / path.name).exists():
            name = directory / path.name
            raise UserError(f'{name} is not tracked, so this experiment would not use it. Run "dvc add {name}".')
    files, ignored = _files_by_split(directory)
    for split, paths in files.items():
        if {_stem_and_count(path)[1] for path in paths} != {len(paths)} or len({*map(data_stem, paths)}) < len(paths):
            names = listing(path.name for path in paths)
            raise UserError(f"{directory} must have one file for {split}, or all of its shards, but it has: {names}.")
    if TRAIN not in files:
        content = f"It has: {listing(ignored)}." if ignored else "It is empty, or does not exist."
        raise UserError(f"data.directory: {directory} has no file train{', train'.join(FORMATS)}. {content}")
    if ignored:
        log.warning("%s: files that are not named after a split are ignored: %s", directory, listing(ignored))
    return {split: files[split] for split in SPLITS if split in files}


def _files_by_split(directory: Path) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the files that are named after a split, and the names of all other files."""
    files: dict[str, list[Path]] = {}
    ignored = []
    for path in visible_entries(directory):
        split = SPLIT_ALIASES.get(_stem_and_count(path)[0].lower())
        if split and data_suffix(path) and not path.is_dir():
            files.setdefault(split, []).append(path)
        elif path.suffix != ".dvc":
            ignored.append(path.name)
    return files, ignored


def _stem_and_count(path: Path) -> tuple[str, int]:
    """Return the name of a file without the suffixes and the number of a shard, and how many shards there must be."""
    shard = _SHARD.fullmatch(data_stem(path))
    return (shard["stem"], int(shard["count"])) if shard else (data_stem(path), 1)


def read_files(files: Mapping[str, Sequence[Path]], file_format: FileFormat) -> tuple[dict[str, Table], dict[str, str]]:
    """Return the rows of each split, and the checksum of each file by its name."""
    tables, sha256 = {}, {}
    for split, paths in files.items():
        parts = []
        for path in paths:
            content = read_bytes(path)
            sha256[path.name] = hashlib.sha256(content).hexdigest()
            parts.append(read_table(path, content, file_format))
        tables[split] = concat(parts)
    return tables, sha256


def visible_entries(directory: Path) -> list[Path]:
    """Return the user's files and directories in a directory, or an empty list if it does not exist."""
    return [path for path in sorted(directory.iterdir()) if not is_hidden(path.name)] if directory.is_dir() else []


def is_hidden(name: str) -> bool:
    """Return whether a system or an editor left a file behind. .dvcignore has the same list."""
    return name.startswith((".", "~$")) or name.endswith(("~", ".swp")) or name.lower() in ("thumbs.db", "desktop.ini")
