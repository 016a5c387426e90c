"""Find the files of each split in the user's directory."""

import re
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from pipeline.core.messages import UserError, log
from pipeline.core.paths import users_path
from pipeline.core.task import TRAIN
from pipeline.core.text import listing
from pipeline.tabular.opening import data_stem
from pipeline.tabular.reading import FORMATS, REMEDIES

SPLITS = (TRAIN, "validation", "test")
# What the name of a file, the name of a split on the Hub, or a value of data.split.column means.
SPLIT_ALIASES = {
    "train": TRAIN, "training": TRAIN, "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "eval": "validation", "test": "test", "testing": "test",
}  # fmt: skip
# What systems and editors leave behind, in lowercase. Files whose name starts with a dot are never visible, either.
# .dvcignore has the same list, so that these files do not mark a run as outdated.
_SYSTEM_FILES = ("thumbs.db", "desktop.ini", "~$*", "*~", "*.swp")
_SHARD = re.compile(r"(.*?)-\d{5}-of-(\d{5})")


def find_files(directory: Path) -> dict[str, list[Path]]:
    """Return the file of each split, or its shards in order. Train comes first.

    Raises:
        UserError: Train has no file, a split has several candidates, shards are missing, the directory of a split is a
            link or contains a directory, or the copy of the repository in which an experiment runs does not have a file
            because it is not tracked.
    """
    files, ignored = _files_by_split(directory)
    # A temporary experiment runs in a copy of the repository that has only tracked files, see `users_path`.
    original = users_path(directory)
    originals = chain.from_iterable(_files_by_split(original)[0].values())
    missing = {directory / file.relative_to(original) for file in originals} - {*chain.from_iterable(files.values())}
    if missing:
        name = min(missing)
        raise UserError(
            f"{name} is missing in the copy of the repository in which this experiment runs, because it is not "
            f'tracked. Run "dvc add {name} && git add {name}.dvc {name.parent}/.gitignore", or "git add {name}".'
        )
    for split in files:
        _require_one_source(directory, split, files[split])
    if TRAIN not in files:
        if not directory.is_dir():
            raise UserError(f"data.directory: {directory} does not exist, or is not a directory.")
        names = f" It contains: {listing(ignored)}." if ignored else ""
        suffixes = {Path(name).suffix.lower() for name in ignored}
        hints = [
            f" {REMEDIES[suffix]}" for suffix in sorted(suffixes & {".arrow", ".zip"})
        ]  # A .txt file may be a note.
        if not hints and any((directory / name).is_dir() for name in ignored):
            hints = [f" If the names of directories are labels, {_table_advice(TRAIN)}."]
        *others, last = (f"train{suffix}" for suffix in FORMATS)
        raise UserError(
            f"data.directory: {directory} has no train file.{names}{''.join(hints)} Call your file "
            f'{", ".join(others)} or {last}. If there is a train.csv.dvc, run "dvc pull".'
        )
    if ignored := [name for name in ignored if not name.endswith(".dvc")]:
        log.warning(
            "%s: these files are ignored because they are not named after a split: %s",
            directory,
            listing(ignored),
        )
    return {split: files[split] for split in SPLITS if split in files}


def split_from_name(path: Path) -> str | None:
    """Return the split that a file, a shard or a directory is named after. None if its name is not that of a split."""
    shard = None if path.is_dir() else _SHARD.fullmatch(data_stem(path))
    return SPLIT_ALIASES.get((shard[1] if shard else data_stem(path)).lower())


def _files_by_split(directory: Path) -> tuple[dict[str, list[Path]], list[str]]:
    """Find the files that are named after a split, or are in a directory that is.

    Returns:
        The files of each split, and the names that are not those of a split.

    Raises:
        UserError: The directory of a split is a link, or contains a directory.
    """
    files_by_split: dict[str, list[Path]] = {}
    ignored = []
    for path in visible_entries(directory):
        split = split_from_name(path)
        files = [file for file in (visible_entries(path) if path.is_dir() else [path]) if file.suffix != ".dvc"]
        if split and path.is_dir():
            if path.is_symlink():
                raise UserError(
                    f"{path} is a link to a directory, and DVC would not notice changes in it. Link its files."
                )
            if subdirectory := next((file for file in files if file.is_dir()), None):
                raise UserError(
                    f"{subdirectory} is a directory. If its name is a label, {_table_advice(path.name)}. Otherwise, "
                    f"move its files to {path}."
                )
        if split is None or not files:
            ignored.append(path.name)
        else:
            files_by_split.setdefault(split, []).extend(files)
    return files_by_split, ignored


def _table_advice(split: str) -> str:
    return f"write a table {split}.csv with the text of each file and the name of its directory"


def _require_one_source(directory: Path, split: str, files: list[Path]) -> None:
    """Raise UserError if the files of a split are not a single file, all shards of one, or those of one directory.

    If a directory contains shards, they must be complete, too.
    """
    files_by_pattern: dict[Path, list[Path]] = {}  # The pattern of shards is train-*.csv. Any other file has its own.
    for file in files:
        stem = data_stem(file)
        pattern = file.with_name(_SHARD.sub(r"\1-*", stem) + file.name.removeprefix(stem))
        files_by_pattern.setdefault(pattern, []).append(file)
    sources = sorted({pattern.relative_to(directory).parts[0] for pattern in files_by_pattern})
    if len(sources) > 1:
        raise UserError(f"{directory} has several candidates for {split}: {listing(sources)}. Keep only one.")
    for pattern, shards in files_by_pattern.items():
        if shard := _SHARD.fullmatch(data_stem(shards[0])):
            complete_pattern = pattern.name.replace("*", f"*-of-{shard[2]}")
            expected = {complete_pattern.replace("*", f"{number:05}") for number in range(int(shard[2]))}
            if differences := expected ^ {file.name for file in shards}:
                raise UserError(
                    f"{pattern.parent} must have exactly {len(expected)} files {complete_pattern}, numbered from "
                    f"00000. Missing or unexpected: {listing(sorted(differences), 3)}."
                )


def visible_entries(directory: Path) -> list[Path]:
    """Return the user's files and directories in a directory, or an empty list if it does not exist."""
    entries = directory.iterdir() if directory.is_dir() else ()
    return [path for path in sorted(entries) if not is_hidden(path.name)]


def is_hidden(name: str) -> bool:
    """Return whether a file or directory is not the user's: it is hidden, or a system or an editor left it behind."""
    return name.startswith(".") or any(fnmatchcase(name.lower(), pattern) for pattern in _SYSTEM_FILES)
