"""Load a dataset of the Hub at a commit, or from a mirror directory, and turn it into a corpus."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import datasets
from datasets import ClassLabel, Dataset, DatasetBuilder, Features, get_dataset_config_names, load_dataset_builder

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN
from pipeline.core.text import listing, quoted
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, published_origin
from pipeline.sources.fetch import Unavailable, download_file, hub_dataset, mirror_directory, not_fetched
from pipeline.sources.files import SPLIT_ALIASES, SPLITS
from pipeline.sources.raw_rows import collect_rows, columns_to_read, make_corpus
from pipeline.tabular.reading import Batch, ColumnSelection, read_file

_MIRROR = "HUB_MIRROR"
_FORMATS = ("csv", "json", "parquet", "arrow")  # names of the builders of `datasets` for tables
_SAVED = ("dataset_dict.json", "state.json")  # the files that save_to_disk writes for all splits, and for one
_ROWS = 1 << 15  # rows per batch


def load_hub(params: DataParams) -> Corpus:
    """Load data.dataset, and make the splits that it does not have.

    Raises:
        UserError: The dataset cannot be loaded, or it does not fit the section `data` of params.yaml.
    """
    dataset = params.dataset or ""  # `DataParams` checks its form.
    name, _, revision = dataset.partition("@")
    available = load_splits(dataset, params.config)
    names = _choose_splits(name, list(available), params)
    rows = {
        split: collect_rows(
            _batches(f"{name} {names[split]}", available[names[split]], columns_to_read(split, params)), split, params
        )
        for split in SPLITS
        if split in names
    }
    corpus = make_corpus(rows, params)
    config = {} if params.config is None else {"config": params.config}
    return replace(corpus, origin=published_origin(corpus.splits, dataset=name, revision=revision, **config))


def config_names(dataset: str) -> list[str]:
    """Return the names of the configurations of a pinned dataset, such as `dair-ai/emotion@<commit>`.

    Raises:
        UserError: The dataset cannot be loaded.
    """
    name, _, revision = dataset.partition("@")
    directory = _mirrored(name)
    if directory and _is_saved(directory):
        saved = next(iter(_load_saved(dataset, directory).values()))
        return [saved.info.config_name or "default"]
    if not directory:
        _require_commit(name, revision)
    with _dataset_errors(dataset):
        return list(get_dataset_config_names(str(directory or name), revision=None if directory else revision))


def load_splits(dataset: str, config: str | None) -> dict[str, Dataset]:
    """Load all splits of a pinned dataset from the mirror if it is there, or else from the Hub.

    All columns of CSV files are texts, and empty fields are None.

    Args:
        dataset: The name and the commit, such as `dair-ai/emotion@<commit>`.
        config: The name of the configuration. None means the default one, or the only one.

    Returns:
        The splits with their names on the Hub.

    Raises:
        UserError: The dataset cannot be loaded.
    """
    name, _, revision = dataset.partition("@")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    directory = _mirrored(name)
    if directory:
        log.warning("%s: %s cannot be verified to be commit %s", _MIRROR, name, revision)
        if _is_saved(directory):
            return _load_saved(dataset, directory, config)
        builder = _builder(dataset, str(directory), None, config)
    else:
        _require_commit(name, revision)
        builder = _builder(dataset, name, revision, config)
        # If the Hub does not answer, `datasets` uses any commit in its cache. It also prefers a local directory.
        if builder.hash != revision:
            raise UserError(
                f"{dataset}: the Hub did not send the files of this commit, and other files are never used instead. "
                f"Check that the commit has data files. If {name} is also a directory here, rename it."
            )
    if builder.name not in _FORMATS:
        raise UserError(f"{dataset} is read as {builder.name}. Only {', '.join(_FORMATS)} files are supported.")
    files = _fetch(builder, dataset, directory)
    log.info("Loaded %s from %s", dataset, _MIRROR if directory else "the Hub")
    if builder.name == "csv":
        return {split: _read_csv(f"{name} {split}", paths, builder.info.features) for split, paths in files.items()}
    with _dataset_errors(dataset):
        builder.download_and_prepare()
        return {split: builder.as_dataset(split) for split in files}


def _fetch(builder: DatasetBuilder, dataset: str, directory: Path | None) -> dict[str, list[Path]]:
    """Return the files of each split. Files of the Hub are downloaded to its cache, and their checksums are compared.

    Args:
        directory: The directory of the dataset in the mirror, or None for the Hub.

    Raises:
        UserError: A file is not part of the dataset, or the Hub does not send it.
    """
    name, _, revision = dataset.partition("@")
    root = f"{directory.resolve().as_posix()}/" if directory else f"hf://datasets/{dataset}/"
    files: dict[str, list[Path]] = {}
    for split, addresses in builder.config.data_files.items():
        paths = files[str(split)] = []
        for address in addresses:
            if not address.startswith(root) or ".." in address.split("/"):
                raise UserError(
                    f"{dataset} refers to {address}, which is not part of the dataset, so that it is not pinned to a "
                    "commit. Use another dataset."
                )
            file = address.removeprefix(root)
            try:
                paths.append(directory / file if directory else download_file(name, file, revision, "dataset"))
            except Unavailable as error:
                raise not_fetched(name, _MIRROR, f"{name}/", error) from None
    return files


def _mirrored(name: str) -> Path | None:
    """Return the directory of a dataset in the mirror, or None if the mirror does not have it."""
    directory = mirror_directory(_MIRROR)
    return directory / name if directory and (directory / name).is_dir() else None


def _is_saved(directory: Path) -> bool:
    return any((directory / file).is_file() for file in _SAVED)


def _load_saved(dataset: str, directory: Path, config: str | None = None) -> dict[str, Dataset]:
    """Load what save_to_disk wrote. Raises UserError if it is a different configuration."""
    with _dataset_errors(dataset):
        saved = datasets.load_from_disk(directory)
    splits = {str(saved.split or TRAIN): saved} if isinstance(saved, Dataset) else dict(saved)
    saved_config = next(iter(splits.values())).info.config_name
    if config and saved_config and config != saved_config:
        raise UserError(f'data.config is "{config}", but {directory} has the configuration "{saved_config}".')
    return splits


def _require_commit(name: str, revision: str) -> None:
    """Raise UserError if the Hub does not have a commit, or if it has a script instead of data files."""
    try:
        files = [file.rfilename for file in hub_dataset(name, revision).siblings or []]
    except Unavailable as error:
        raise not_fetched(name, _MIRROR, f"{name}/", error) from None
    script = f"{name.rpartition('/')[2]}.py"
    if script in files:
        raise UserError(
            f"{name} has a script, {script}, which is never run. Use a dataset that consists of data files, such as "
            "Parquet."
        )


def _builder(dataset: str, path: str, revision: str | None, config: str | None) -> DatasetBuilder:
    with _dataset_errors(dataset):
        try:
            return load_dataset_builder(path, config, revision=revision)
        except ValueError:
            names = get_dataset_config_names(path, revision=revision)
            if config in names or (config is None and len(names) == 1):
                raise
    raise UserError(
        f"data.config must be one of the configurations of {dataset}: {listing(names, 50)}, got {quoted(config)}."
    )


@contextmanager
def _dataset_errors(dataset: str) -> Iterator[None]:
    """Turn any error of `datasets` into a UserError, because it passes on the errors of many other packages."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetGenerationError) else None
        reason = " ".join(str(cause or error).split()).rstrip(".")
        raise UserError(f"{dataset} cannot be loaded: {reason or type(error).__name__}.") from None


def _read_csv(source: str, paths: list[Path], features: Features | None) -> Dataset:
    """Read CSV files with our strict reader.

    `load_dataset` takes "NA" and "None" for missing values, turns 007 into 7, and accepts rows with too few or too many
    fields.

    Args:
        features: The features in the metadata of the dataset. Only the class names are used.
    """
    parts = []
    for path in paths:
        for batch in read_file(path, ColumnSelection([], keep_rest=True)):
            columns = {name: [value or None for value in values] for name, values in batch.columns.items()}
            parts.append(Dataset.from_dict(columns, Features(dict.fromkeys(columns, datasets.Value("string")))))
    if not parts:
        raise UserError(f"{source} has no rows.")
    with _dataset_errors(source):
        dataset = datasets.concatenate_datasets(parts)
        for name, feature in (features or {}).items():
            if isinstance(feature, ClassLabel) and name in dataset.column_names:
                dataset = dataset.cast_column(name, feature)
    return dataset


def _choose_splits(name: str, available: list[str], params: DataParams) -> dict[str, str]:
    """Return the name on the Hub of train, and of validation and test if they exist.

    Raises:
        UserError: The dataset does not have a split of data.splits, or the splits that it has are ambiguous.
    """
    remedy = f"Name the splits to use in data.splits. {name} has: {listing(available, 20)}."
    if params.splits is not None:
        if missing := [split for split in params.splits.values() if split not in available]:
            raise UserError(f'data.splits: {name} has no split "{missing[0]}". {remedy}')
        return dict(params.splits)
    names: dict[str, str] = {}
    ignored = []
    for source in available:
        split = SPLIT_ALIASES.get(source.lower())
        if split is None:
            ignored.append(source)
        elif split in names:
            raise UserError(f"{name} has several candidates for {split}: {names[split]}, {source}. {remedy}")
        else:
            names[split] = source
    if TRAIN not in names:
        raise UserError(f"{name} has no split train. {remedy}")
    if ignored:
        log.warning("%s: these splits are ignored: %s. To use them, set data.splits.", name, listing(ignored))
    return names


def _batches(source: str, rows: Dataset, columns: ColumnSelection) -> Iterator[Batch]:
    """Yield the rows of a split in batches. Errors about a row name `source` and the number of the row."""
    path = Path(source)
    rows = rows.select_columns(columns.select(path, rows.column_names))
    if not len(rows):
        raise UserError(f"{source} has no rows.")
    for start in range(0, len(rows), _ROWS):
        batch = rows[start : start + _ROWS]
        size = min(_ROWS, len(rows) - start)
        yield Batch(path, "row", range(start, start + size), batch, rows.features.arrow_schema)
