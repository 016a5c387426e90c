"""Find the files of each split in the user's directory."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from pipeline.core.messages import UserError, log
from pipeline.core.paths import users_path
from pipeline.core.task import TRAIN
from pipeline.core.text import listing
from pipeline.tabular.opening import data_stem
from pipeline.tabular.reading import FORMATS

SPLITS = (TRAIN, "validation", "test")
# What the name of a file, the name of a split on the Hub, or a value of data.split.column means.
SPLIT_ALIASES = {
    "train": TRAIN, "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test",
}  # fmt: skip
# What systems and editors leave behind, in lowercase. Files whose name starts with a dot are never visible, either.
# .dvcignore has the same list, so that these files do not mark a run as outdated.
_SYSTEM_FILES = ("thumbs.db", "desktop.ini", "~$*", "*~", "*.swp")
# For each split, the files of each candidate. A candidate is a file, a directory, or shards with the same pattern, such
# as train-*-of-00003.csv.
Candidates = dict[str, dict[str, list[Path]]]
_SHARD = re.compile(r"(.*?)-\d{5}-of-(\d{5})")


def find_files(directory: Path) -> dict[str, list[Path]]:
    """Return the file of each split, or its shards in order. Train comes first.

    Raises:
        UserError: Train has no file, a split has several candidates, shards are missing, the directory of a split is a
            link or contains a directory, or the copy of the repository in which an experiment runs does not have a file
            because it is not tracked.
    """
    candidates, ignored = _candidates(directory)
    _require_all_shards(candidates)
    # A temporary experiment runs in a copy of the repository that has only tracked files, see `users_path`.
    original = users_path(directory)
    missing = _relative_paths(original, _candidates(original)[0]) - _relative_paths(directory, candidates)
    if missing:
        name = directory / min(missing)
        raise UserError(
            f"{name} is missing in the copy of the repository in which this experiment runs, because it is not "
            f'tracked. Run "dvc add {name} && git add {name}.dvc {name.parent}/.gitignore", or "git add {name}".'
        )
    for split, by_name in candidates.items():
        if len(by_name) > 1:
            raise UserError(f"{directory} has several candidates for {split}: {listing(by_name)}. Keep only one.")
    if TRAIN not in candidates:
        if not directory.is_dir():
            raise UserError(f"data.directory: {directory} does not exist, or is not a directory.")
        names = f" It contains: {listing(ignored)}." if ignored else ""
        *others, last = (f"train{suffix}" for suffix in FORMATS)
        raise UserError(
            f"data.directory: {directory} has no train file.{names} Call your file {', '.join(others)} or {last}. If "
            'there is a train.csv.dvc, run "dvc pull".'
        )
    if ignored := [name for name in ignored if not name.endswith(".dvc")]:
        log.warning(
            "%s: these files are ignored because they are not named after a split: %s",
            directory,
            listing(ignored),
        )
    return {split: next(iter(candidates[split].values())) for split in SPLITS if split in candidates}


def split_from_name(path: Path) -> str | None:
    """Return the split that a file, a shard or a directory is named after. None if its name is not that of a split."""
    shard = None if path.is_dir() else _SHARD.fullmatch(data_stem(path))
    return SPLIT_ALIASES.get((shard[1] if shard else data_stem(path)).lower())


def _candidates(directory: Path) -> tuple[Candidates, list[str]]:
    """Find the files that are named after a split.

    Returns:
        The files, and the names that are not those of a split.

    Raises:
        UserError: The directory of a split is a link, or contains a directory.
    """
    candidates: Candidates = {}
    ignored = []
    for path in _visible(directory) if directory.is_dir() else []:
        split = split_from_name(path)
        files = [file for file in (_visible(path) if path.is_dir() else [path]) if file.suffix != ".dvc"]
        if split and path.is_dir():
            if path.is_symlink():
                raise UserError(f"{path} is a link to a directory, and DVC would not notice changes in it. Link files.")
            if subdirectory := next((file for file in files if file.is_dir()), None):
                raise UserError(f"{subdirectory} is a directory. Move its files to {path}.")
        if split is None or not files:
            ignored.append(path.name)
        else:
            candidates.setdefault(split, {}).setdefault(_pattern(path), []).extend(files)
    return candidates, ignored


def _pattern(path: Path) -> str:
    """Return the name of a file. Shards have the same one: `train-*-of-00003.csv`."""
    stem = data_stem(path)
    return _SHARD.sub(r"\1-*-of-\2", stem) + path.name.removeprefix(stem)


def _require_all_shards(candidates: Candidates) -> None:
    """Raise UserError if shards such as `train-*-of-00003.csv` do not have exactly the numbers 0 to 2."""
    shards: dict[Path, set[str]] = {}
    for file in _all_files(candidates):
        if _SHARD.fullmatch(data_stem(file)):
            shards.setdefault(file.with_name(_pattern(file)), set()).add(file.name)
    for pattern, names in shards.items():
        total = int(data_stem(pattern)[-5:])
        expected = {pattern.name.replace("*", f"{number:05}") for number in range(total)}
        if names != expected:
            raise UserError(
                f"{pattern.parent} must have exactly {total} files {pattern.name}, numbered from 00000. Missing or "
                f"unexpected: {listing(sorted(expected ^ names), 3)}."
            )


def _visible(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if not is_hidden(path.name)]


def is_hidden(name: str) -> bool:
    """Return whether a file or directory is not the user's: it is hidden, or a system or an editor left it behind."""
    return name.startswith(".") or any(fnmatchcase(name.lower(), pattern) for pattern in _SYSTEM_FILES)


def _all_files(candidates: Candidates) -> Iterator[Path]:
    for by_name in candidates.values():
        yield from chain.from_iterable(by_name.values())


def _relative_paths(directory: Path, candidates: Candidates) -> set[Path]:
    return {file.relative_to(directory) for file in _all_files(candidates)}
