"""Load a dataset of the Hub at a commit, and turn it into a corpus. Its files are read like the user's own files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import ClassLabel, DatasetBuilder, load_dataset_builder

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN
from pipeline.core.text import listing, quoted
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, make_corpus, published_origin
from pipeline.sources.fetch import describe_error, download_file, repo_info
from pipeline.sources.file_format import FileFormat
from pipeline.sources.files import SPLIT_ALIASES, SPLITS
from pipeline.sources.tables import Table, concat, data_suffix, read_bytes, read_table


def load_hub(params: DataParams) -> Corpus:
    """Load data.dataset, and make the splits that it does not have.

    Raises:
        UserError: The dataset cannot be loaded, or it does not fit the section `data` of params.yaml.
    """
    dataset = params.dataset or ""  # `DataParams` checks its form.
    tables = load_tables(dataset, params.config, params.splits)
    corpus = make_corpus(tables, params, {})
    name, _, revision = dataset.partition("@")
    config = {} if params.config is None else {"config": params.config}
    corpus.origin.update(published_origin(corpus.splits, dataset=name, revision=revision, **config))
    return corpus


def load_tables(dataset: str, config: str | None, splits: dict[str, str] | None) -> dict[str, Table]:
    """Return the rows of train, and of validation and test if the dataset has them.

    Args:
        dataset: The name and the commit, such as `dair-ai/emotion@<commit>`.
        config: The configuration. None means the default one, or the only one.
        splits: The names of the splits on the Hub. None means those that are named after a split.
    """
    name, _, revision = dataset.partition("@")
    repo_info(name, revision, "dataset")  # a clear error if the Hub does not answer or does not have the commit
    try:
        builder = load_dataset_builder(name, config, revision=revision)
    except Exception as error:  # It passes on the errors of many other packages.
        raise UserError(
            f"{dataset} cannot be loaded with data.config={quoted(config)} (--config of init): {describe_error(error)}."
        ) from None
    # If the Hub does not answer, `datasets` uses any commit in its cache. It also prefers a local directory.
    if builder.hash != revision:
        raise UserError(f"{dataset}: the Hub did not send this commit. If {name} is also a directory here, rename it.")
    files = {str(split): paths for split, paths in builder.config.data_files.items()}
    names = choose_splits(name, list(files), splits)
    return {
        split: concat([_read_file(dataset, address, builder) for address in files[names[split]]])
        for split in SPLITS
        if split in names
    }


def _read_file(dataset: str, address: str, builder: DatasetBuilder) -> Table:
    """Download a file, verify it, and read it. README.md may have the delimiter, the encoding and class names."""
    name, _, revision = dataset.partition("@")
    file = address.removeprefix(f"hf://datasets/{dataset}/")
    if file == address or ".." in file.split("/"):
        raise UserError(f"{dataset} refers to {address}, which is not pinned to its commit. Use another dataset.")
    if not data_suffix(Path(file)) or getattr(builder.config, "column_names", None):
        raise UserError(f"{dataset}: {file} has a format that cannot be read. Convert it, and set data.task=custom.")
    settings = vars(builder.config)
    delimiter = settings.get("sep") if settings.get("sep") != "," else None
    file_format = FileFormat(delimiter, settings.get("encoding") or "utf-8")
    table = read_table(Path(name, file), read_bytes(download_file(name, file, revision, "dataset")), file_format)
    for column, feature in (builder.info.features or {}).items():
        if isinstance(feature, ClassLabel) and column in table.rows and column not in table.classes:
            table.rows[column] = [_class_name(value, feature.names) for value in table.rows[column]]
            table.classes[column] = feature.names
    return table


def _class_name(value: Any, names: list[str]) -> Any:
    """Return the name of a class that a file has as a number, a text with a number, or the name."""
    if value in names or str(value) not in map(str, range(len(names))):
        return None if str(value) in ("", "-1") else value
    return names[int(value)]


def choose_splits(name: str, available: Sequence[str], splits: dict[str, str] | None) -> dict[str, str]:
    """Return the name on the Hub of train, and of validation and test if they exist.

    Raises:
        UserError: The dataset has no train split or no split with a chosen name, or the names are ambiguous.
    """
    remedy = f"Name the splits in data.splits (in init, --splits train=NAME). {name} has: {listing(available, 20)}."
    names = splits or {}
    for source in available if splits is None else ():
        split = SPLIT_ALIASES.get(source.lower(), source)
        if split in names:
            raise UserError(f"{name} has several candidates for {split}: {names[split]}, {source}. {remedy}")
        names[split] = source
    if missing := [source for source in [names.get(TRAIN, TRAIN), *names.values()] if source not in available]:
        raise UserError(f"{name} has no split {missing[0]}. {remedy}")
    if ignored := [source for source in available if source not in {names.get(split) for split in SPLITS}]:
        log.warning("%s: these splits are ignored: %s. To use them, set data.splits.", name, listing(ignored))
    return names
