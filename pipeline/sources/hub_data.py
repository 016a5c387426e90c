"""Load a dataset of the Hub at a commit, and turn it into a corpus."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
from datasets import Audio, ClassLabel, Dataset, DatasetBuilder, Features, Image, Pdf, Video, load_dataset_builder

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN
from pipeline.core.text import listing, quoted
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, make_corpus, published_origin
from pipeline.sources.fetch import describe_error, download_file, repo_info
from pipeline.sources.files import SPLIT_ALIASES, SPLITS
from pipeline.sources.raw_rows import collect_rows, columns_to_read, require_rows
from pipeline.tabular.file_format import DEFAULT_FORMAT, FileFormat
from pipeline.tabular.reading import Batch, ColumnSelection, read_file

_FORMATS = ("csv", "json", "parquet", "arrow")  # names of the builders of `datasets` for tables
_ROWS = 1 << 15  # rows per batch
_MEDIA = (Audio, Image, Pdf, Video)  # types of columns that can only be decoded with more packages


def load_hub(params: DataParams) -> Corpus:
    """Load data.dataset, and make the splits that it does not have.

    Raises:
        UserError: The dataset cannot be loaded, or it does not fit the section `data` of params.yaml.
    """
    dataset = params.dataset or ""  # `DataParams` checks its form.
    name, _, revision = dataset.partition("@")
    available = load_splits(dataset, params.config)
    names = choose_splits(name, list(available), params.splits)
    rows = {}
    for split in SPLITS:
        if split in names:
            source = f"{name} {names[split]}"
            batches = dataset_batches(source, available[names[split]], columns_to_read(split, params))
            rows[split] = collect_rows(require_rows(batches, source), split, params)
    corpus = make_corpus(rows, params)
    config = {} if params.config is None else {"config": params.config}
    return replace(corpus, origin=published_origin(corpus.splits, dataset=name, revision=revision, **config))


def load_splits(dataset: str, config: str | None) -> dict[str, Dataset]:
    """Load all splits of a pinned dataset from the Hub.

    All columns of CSV files are texts, unless the metadata of the dataset has names for their classes.

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
    repo_info(name, revision, "dataset")  # raises a clear error if the Hub does not answer or does not have the commit
    with _dataset_errors(dataset, f" with data.config={quoted(config)} (in init, --config)"):
        builder = load_dataset_builder(name, config, revision=revision)
    # If the Hub does not answer, `datasets` uses any commit in its cache. It also prefers a local directory.
    if builder.hash != revision:
        raise UserError(
            f"{dataset}: the Hub did not send the files of this commit, and the pipeline never uses other files "
            f"instead. Check that the commit has data files. If {name} is also a directory here, rename it."
        )
    if builder.name not in _FORMATS:
        raise UserError(f"{dataset} is read as {builder.name}. Only {', '.join(_FORMATS)} files are supported.")
    files = _fetch_data_files(builder, dataset)
    log.info("loaded %s from the Hub", dataset)
    if builder.name == "csv":
        csv_format = _csv_format(dataset, builder.config)
        return {
            split: _read_csv(f"{name} {split}", paths, csv_format, builder.info.features)
            for split, paths in files.items()
        }
    with _dataset_errors(dataset):
        builder.download_and_prepare()
        return {split: builder.as_dataset(split) for split in files}


def _fetch_data_files(builder: DatasetBuilder, dataset: str) -> dict[str, list[Path]]:
    """Download the files of each split to the cache of the Hub, compare their checksums, and return them.

    Raises:
        UserError: A file is not part of the dataset, or the Hub does not send it.
    """
    name, _, revision = dataset.partition("@")
    root = f"hf://datasets/{dataset}/"
    files: dict[str, list[Path]] = {}
    for split, addresses in builder.config.data_files.items():
        paths = files[str(split)] = []
        for address in addresses:
            if not address.startswith(root) or ".." in address.split("/"):
                raise UserError(
                    f"{dataset} refers to {address}, which is not part of the dataset, so it is not pinned to a "
                    "commit. Use another dataset."
                )
            paths.append(download_file(name, address.removeprefix(root), revision, "dataset"))
    return files


@contextmanager
def _dataset_errors(dataset: str, settings: str = "") -> Iterator[None]:
    """Turn any error of `datasets` into a UserError, because it passes on the errors of many other packages."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetGenerationError) else None
        raise UserError(f"{dataset} cannot be loaded{settings}: {describe_error(cause or error)}.") from None


def _csv_format(dataset: str, config: Any) -> FileFormat:
    """Return the format of CSV files in the metadata of a dataset. Raises UserError if they have no usable header."""
    if config.names is not None or config.header not in ("infer", 0):
        raise UserError(
            f"{dataset}: its README.md gives the columns of its CSV files other names than the first row (column_names "
            "or header), which is not supported. Download the files, and use them with data.task=custom."
        )
    return FileFormat(encoding=config.encoding or DEFAULT_FORMAT.encoding)


def _read_csv(source: str, paths: list[Path], csv_format: FileFormat, features: Features | None) -> Dataset:
    """Read CSV files with our strict reader.

    `load_dataset` takes "NA" and "None" for missing values, turns 007 into 7, and accepts rows with too few or too many
    fields.

    Args:
        features: The features in the metadata of the dataset. Only the class names are used.
    """
    classes = {name: feature for name, feature in (features or {}).items() if isinstance(feature, ClassLabel)}
    parts = []
    for path in paths:
        for batch in require_rows(read_file(path, ColumnSelection([], keep_rest=True), file_format=csv_format), path):
            # An empty field is a missing class. In a list of labels, it means that a row has none of them.
            columns = {
                name: [value or None for value in values] if name in classes else values
                for name, values in batch.columns.items()
            }
            parts.append(Dataset.from_dict(columns, Features(dict.fromkeys(columns, datasets.Value("string")))))
    with _dataset_errors(source):
        dataset = datasets.concatenate_datasets(parts)
        for name, feature in classes.items():
            if name in dataset.column_names:
                dataset = dataset.cast_column(name, feature)
    return dataset


def choose_splits(name: str, available: Sequence[str], splits: dict[str, str] | None) -> dict[str, str]:
    """Return the name on the Hub of train, and of validation and test if they exist.

    Args:
        available: The names of the splits of the dataset.
        splits: The names that the user chose. None means that the names on the Hub say what the splits are.

    Raises:
        UserError: The dataset has no train split or no split with a chosen name, or the names are ambiguous.
    """
    remedy = (
        "Name the splits to use in data.splits (in init, --splits), as in train=NAME. "
        f"{name} has: {listing(available, 20)}."
    )
    ignored = []
    if splits is not None:
        names = splits
        if missing := [source for source in splits.values() if source not in available]:
            raise UserError(f'{name} has no split "{missing[0]}". {remedy}')
    else:
        names = {}
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


def dataset_batches(source: str, rows: Dataset, columns: ColumnSelection) -> Iterator[Batch]:
    """Yield the rows of a split in batches. Errors about a row name `source` and the number of the row.

    A field inside the objects of a column is a column with a name such as "review.text".
    """
    path = Path(source)
    media = [name for name, feature in rows.features.items() if isinstance(feature, _MEDIA)]
    rows = rows.remove_columns(media).flatten()
    rows = rows.select_columns(columns.select(path, rows.column_names))
    for start in range(0, len(rows), _ROWS):
        batch = rows[start : start + _ROWS]
        size = min(_ROWS, len(rows) - start)
        yield Batch(path, "row", range(start, start + size), batch, rows.features.arrow_schema)
