"""Load a dataset of the Hub at a commit, and turn it into a corpus. Its files are read like the user's own files."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from datasets import DatasetBuilder, Features, load_dataset_builder
from huggingface_hub import get_cached_repo_tree, snapshot_download

from pipeline.core.messages import UserError, log, one_line
from pipeline.core.task import TRAIN
from pipeline.core.text import listing, quoted
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, make_corpus, published_origin
from pipeline.sources.fetch import download_file, hub_errors
from pipeline.sources.file_format import DELIMITERS, FileFormat
from pipeline.sources.files import SPLIT_ALIASES, SPLITS
from pipeline.sources.tables import FORMATS, Table, concat, data_suffix, name_classes, read_table

_METADATA = ["README.md", ".huggingface.yaml", "dataset_infos.json"]  # what `datasets` reads besides the data


def load_hub(params: DataParams) -> Corpus:
    """Load data.dataset, and make the splits that it does not have. Raises UserError if that is not possible."""
    dataset = params.dataset or ""  # `DataParams` checks its form.
    tables = load_tables(dataset, params.config, params.splits)
    corpus = make_corpus(tables, params, {})
    name, _, revision = dataset.partition("@")
    config = {} if params.config is None else {"config": params.config}
    return replace(corpus, origin=published_origin(corpus.splits, dataset=name, revision=revision, **config))


def load_tables(dataset: str, config: str | None, splits: dict[str, str] | None) -> dict[str, Table]:
    """Return the rows of train, and of validation and test if the dataset has them.

    Args:
        dataset: The name and the commit, such as `dair-ai/emotion@<commit>`.
        splits: The names of train, validation and test on the Hub. None means that they are named like `SPLIT_ALIASES`.
    """
    builder, files = _find_files(dataset, config)
    chosen = choose_splits(dataset, list(files), splits)
    return {split: concat([_read(dataset, file, builder) for file in files[name]]) for split, name in chosen.items()}


def _find_files(dataset: str, config: str | None) -> tuple[DatasetBuilder, dict[str, list[str]]]:
    """Return the builder of a dataset, and the files of each split.

    `datasets` looks among empty files, because a search on the Hub needs a network, and may find another commit.
    """
    name, _, revision = dataset.partition("@")
    with hub_errors(f"{name} at {revision:.12}"):
        metadata = Path(snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=_METADATA))
        published = {file.path for file in get_cached_repo_tree(name, repo_type="dataset", revision=revision)}
    with TemporaryDirectory() as temporary:
        directory = Path(temporary, name).resolve()  # `datasets` rejects a dataset with a script of the same name.
        for file in published:
            path = directory / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((metadata / file).read_bytes() if file in _METADATA else b"")
        try:
            builder = load_dataset_builder(str(directory), config, cache_dir=temporary)
        except Exception as error:  # It passes on the errors of many other packages.
            reason = one_line(error).replace(str(directory), name)[:300]
            raise UserError(
                f"{dataset} cannot be loaded with data.config={quoted(config)} (in init, --config): {reason}."
            ) from None
    matches = builder.config.data_files.items()
    files = {str(split): [str(Path(path)).removeprefix(f"{directory}/") for path in paths] for split, paths in matches}
    if elsewhere := set().union(*files.values()) - published:
        raise UserError(f"{dataset}: README.md names {elsewhere.pop()}, which is not part of it. Use another dataset.")
    return builder, files


def _read(dataset: str, file: str, builder: DatasetBuilder) -> Table:
    """Download a file, and read it. README.md may have its delimiter, its encoding and the names of the classes."""
    if data_suffix(Path(file)) is None:
        raise UserError(f"{dataset}: {file} is not {', '.join(FORMATS)}. Convert it, and set data.task=custom.")
    name, _, revision = dataset.partition("@")
    delimiter = getattr(builder.config, "sep", None)  # "," if README.md does not have it
    encoding = getattr(builder.config, "encoding", None) or "utf-8"
    file_format = FileFormat(delimiter if delimiter in DELIMITERS[1:] else None, encoding)
    table = read_table(Path(name, file), download_file(name, file, revision, "dataset").read_bytes(), file_format)
    return name_classes(table, builder.info.features or Features())


def choose_splits(dataset: str, available: list[str], splits: dict[str, str] | None) -> dict[str, str]:
    """Return the name on the Hub of train, and of each other split that exists. Raises UserError if it is not clear."""
    remedy = f"Name the splits in data.splits (in init, --splits train=NAME). They are: {listing(available, 20)}."
    names = dict(splits or {})
    for name in () if splits else available:
        split = SPLIT_ALIASES.get(name.lower())
        if split in names:
            raise UserError(f"{dataset} has several candidates for {split}: {names[split]}, {name}. {remedy}")
        if split:
            names[split] = name
    if missing := [name for name in [names.get(TRAIN, TRAIN), *names.values()] if name not in available]:
        raise UserError(f'{dataset} has no split "{missing[0]}". {remedy}')
    if ignored := [name for name in available if name not in names.values()]:
        log.warning("%s: these splits are ignored: %s. To use them, set data.splits.", dataset, listing(ignored))
    return {split: names[split] for split in SPLITS if split in names}
