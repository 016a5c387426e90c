"""Which files in the user's directory are the rows of which split."""

import re
from itertools import chain
from pathlib import Path

from pipeline.core.messages import UserError, log
from pipeline.core.paths import users_path
from pipeline.core.task import TRAIN
from pipeline.tabular.reading import READERS, listing, require_form

# What a split is called in the name of a file, as on the Hub.
NAMES = {TRAIN: TRAIN, **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"), "test": "test"}
_SHARD = re.compile(r"(.*?)-\d{5}-of-(\d{5})")


def find_files(directory: Path) -> dict[str, list[Path]]:
    """The files of each split in a directory, train first: one, or several shards in order. Raises UserError."""
    found, others = _listed(directory)
    if not directory.is_absolute():  # a temporary experiment runs in another directory, see `users_path`
        users, here = (_relative(of) for of in (users_path(directory), directory))
        if lacking := sorted(users - here):
            name = directory / lacking[0]
            raise UserError(
                f"{name} is not in the copy of the repository in which this experiment runs: it is not tracked; "
                f'run "dvc add {name} && git add {name}.dvc {name.parent}/.gitignore", or "git add {name}"'
            )
    for split, candidates in found.items():
        if len(candidates) > 1:
            raise UserError(f"{directory} has {listing(candidates)}, each of which may be {split}; leave one of them")
    if TRAIN not in found:
        has = f", but {listing(others)}" if others else ""
        raise UserError(
            f"data.directory: {directory} has no train file{has}; put train{', train'.join(READERS)} there, or where "
            'it has train.csv.dvc run "dvc pull"'
        )
    if ignored := [name for name in others if not name.endswith(".dvc")]:
        log.warning("%s: not read, since named neither train, validation nor test: %s", directory, listing(ignored))
    return {split: next(iter(found[split].values())) for split in dict.fromkeys(NAMES.values()) if split in found}


def _listed(directory: Path) -> tuple[dict[str, dict[str, list[Path]]], list[str]]:
    """By split and name the files, or the shards, that may be it; and the names of the files that are no split's."""
    found: dict[str, dict[str, list[Path]]] = {}
    others = []
    for path in _visible(directory) if directory.is_dir() else []:
        shard = None if path.is_dir() else _SHARD.fullmatch(path.stem)
        stem = shard[1] if shard else path.stem
        split = NAMES.get(stem.lower())
        files = _visible(path) if path.is_dir() else [path]
        files = [file for file in files if file.suffix != ".dvc"]
        if split is None or not files:
            others.append(path.name)
            continue
        name = f"{stem}-*-of-{shard[2]}{path.suffix}" if shard else path.name
        found.setdefault(split, {}).setdefault(name, []).extend(files)
    shards: dict[tuple[Path, str], set[str]] = {}
    for file in chain.from_iterable(chain.from_iterable(by_name.values()) for by_name in found.values()):
        require_form(file)
        if shard := _SHARD.fullmatch(file.stem):
            pattern = f"{shard[1]}-*-of-{shard[2]}{file.suffix}"
            shards.setdefault((file.parent, pattern), set()).add(file.name)
    for (parent, pattern), names in shards.items():
        _require_shards(parent, pattern, names)
    return found, others


def _require_shards(directory: Path, pattern: str, names: set[str]) -> None:
    """Raise UserError if the shards `train-*-of-00003.csv` are not exactly those with the numbers 0 to 2."""
    total = int(pattern.rpartition("-of-")[2][:5])
    expected = {pattern.replace("*", f"{number:05}") for number in range(total)}
    if missing := sorted(expected - names):
        raise UserError(
            f"{directory}: the {total} files {pattern} are numbered from 00000, but there is no {listing(missing, 3)}; "
            "add it"
        )
    if surplus := sorted(names - expected):
        raise UserError(
            f"{directory}: the {total} files {pattern} are numbered from 00000, but there is {surplus[0]}; rename it"
        )


def _visible(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if not path.name.startswith(".")]


def _relative(directory: Path) -> set[Path]:
    candidates = chain.from_iterable(of.values() for of in _listed(directory)[0].values())
    return {path.relative_to(directory) for path in chain.from_iterable(candidates)}
