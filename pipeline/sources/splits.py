"""Split the rows of train into train, validation and test if validation or test has no file."""

import math
from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN, ProblemType, Task
from pipeline.core.text import literal
from pipeline.params import DataParams, SplitParams
from pipeline.sources.duplicates import Hashes, hash_column, hash_rows
from pipeline.sources.files import SPLIT_ALIASES, SPLITS

SplitNames = NDArray[np.object_]  # the name of each row's split


def split_fractions(params: DataParams, files: Collection[str], values: pd.Series | None) -> dict[str, float]:
    """Return which fraction of train's rows goes to train, and to each other split that is made from them.

    Args:
        files: The splits that have files, or are in the dataset on the Hub.
        values: What `read_split_values` returns.

    Raises:
        UserError: A split would have two sources, or the validation split would be missing.
    """
    fractions = dict(zip(SPLITS, params.split.fractions, strict=True))
    if params.split.type == "fixed":
        fractions = dict.fromkeys([TRAIN, *(() if values is None else values.unique())], 1.0)
        if twice := sorted(fractions.keys() & {*files} - {TRAIN}):
            raise UserError(f"data.split.column: {twice[0]} also has a file. Keep only one of the two.")
    made = {name: value for name, value in fractions.items() if name == TRAIN or (name not in files and value)}
    if "validation" not in {*files, *made}:
        raise UserError(
            f"data.split: {params.dataset or params.directory} has no validation split, and test is never used for it. "
            "Add one, or set data.split.type=stratify and a fraction for validation in data.split.fractions."
        )
    return {name: value / sum(made.values()) for name, value in made.items()}


def read_split_values(split: SplitParams, texts: pd.Series) -> pd.Series:
    """Return what data.split.column says about each row: the name of its split, its time, or its group.

    Args:
        texts: The column. The index has the place of each row.

    Raises:
        UserError: A value is missing, or is not the name of a split or a time.
    """
    texts = texts.str.strip()
    values, remedy = texts.mask(texts == ""), "Fill it in."
    if split.type == "fixed":
        values, remedy = texts.str.lower().map(SPLIT_ALIASES), f"Write one of {', '.join(SPLITS)}."
    elif split.type == "datetime":
        values, remedy = pd.to_numeric(texts, errors="coerce"), "Write all times as dates (2024-12-31), or as numbers."
        if values.isna().any():
            values = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    if values.isna().any():
        row = int(values.isna().argmax())
        raise UserError(f'{texts.index[row]}: "{texts.name}" is {literal(texts.iloc[row])}. {remedy}')
    return values


def split_train(
    train: pd.DataFrame, values: pd.Series | None, fractions: Mapping[str, float], split: SplitParams, task: Task
) -> dict[str, pd.DataFrame]:
    """Return the rows of train, and of each other split that is made from them. The same rows give the same splits.

    Args:
        train: The rows of train that were not dropped.
        values: What `read_split_values` returns, for all rows, including those that were dropped.
        fractions: The fraction of the rows for each split, including train.
    """
    values = None if values is None else values.loc[train.index]
    names = _assign(train, values, fractions, split, task) if len(fractions) > 1 else np.full(len(train), TRAIN)
    if split.type == "datetime" and values is not None:
        ranges = [f"{name} from {values[names == name].min()} to {values[names == name].max()}" for name in fractions]
        log.info("times: %s", ", ".join(ranges))
    return {name: train[names == name] for name in fractions}


def _assign(
    rows: pd.DataFrame, values: pd.Series | None, fractions: Mapping[str, float], split: SplitParams, task: Task
) -> SplitNames:
    """Return the name of the split of each row."""
    counts = {name: round(len(rows) * fractions.get(name, 0)) for name in ("test", "validation")}
    if split.type == "fixed":
        return np.asarray(values, dtype=object)
    if split.type == "datetime":
        latest_first = np.asarray(values).argsort(kind="stable")[::-1]
        return _cut(latest_first.argsort(), counts)
    if split.type == "group":
        groups = groups_by_text(hash_rows(rows, task.text_columns)) if values is None else hash_column(values)
        return _whole_groups(groups, counts)
    strata = label_strata(rows["label"], task.problem_type) if values is None else pd.factorize(values)[0]
    names = _proportional(strata, counts, split.seed)
    if task.is_single_label:
        _keep_classes_in_train(names, rows["label"].to_numpy(dtype=np.int64))
    return names


def _cut(positions: NDArray[np.number], sizes: Mapping[str, float]) -> SplitNames:
    """Return the split at each position on a line that starts with test, followed by validation and train."""
    is_test, is_later = positions < sizes["test"], positions < sizes["test"] + sizes["validation"]
    return np.select([is_test, is_later], ["test", "validation"], TRAIN).astype(object)


def _whole_groups(groups: Hashes, counts: Mapping[str, int]) -> SplitNames:
    """Fill test and validation with whole groups, in the order of their hashes. Larger groups stay in train."""
    sizes = pd.Series(groups).value_counts().sort_index()
    sizes = sizes[sizes <= max(min((count for count in counts.values() if count), default=math.inf), 1)]
    by_group = pd.Series(_cut((sizes.cumsum() - sizes / 2).to_numpy(), counts), sizes.index)
    names: SplitNames = by_group.reindex(groups).fillna(TRAIN).to_numpy(dtype=object)
    return names


def label_strata(labels: pd.Series, problem_type: ProblemType) -> NDArray[np.int64]:
    """Return a number for the label of each row. It is the same for all rows of a regression."""
    numbers: NDArray[np.int64] = np.zeros(len(labels), dtype=np.int64)
    if problem_type == "single_label_classification":
        numbers = labels.to_numpy(dtype=np.int64)
    elif problem_type == "multi_label_classification":
        numbers, _ = pd.factorize(labels.map(str))
    return numbers


def _proportional(strata: NDArray[np.int64], counts: Mapping[str, int], seed: int) -> SplitNames:
    """Draw rows at random so that each split gets its proportion of each stratum, to within one row."""
    names = np.full(len(strata), TRAIN, dtype=object)
    remaining = np.random.default_rng(seed).permutation(len(strata))
    remaining = remaining[np.argsort(strata[remaining], kind="stable")]
    for name, count in counts.items():
        chosen = np.diff(np.arange(len(remaining) + 1) * count // max(len(remaining), 1)) > 0  # every k-th of them
        names[remaining[chosen]] = name
        remaining = remaining[~chosen]
    return names


def _keep_classes_in_train(names: SplitNames, classes: NDArray[np.int64]) -> None:
    """Move the first rows of a class to train until it has one of them, or two if the class has three or more."""
    for number, size in enumerate(np.bincount(classes)):
        rows = np.flatnonzero(classes == number)
        missing = min(max(size - 1, 1), 2) - np.count_nonzero(names[rows] == TRAIN)
        names[rows[names[rows] != TRAIN][: max(missing, 0)]] = TRAIN


def groups_by_text(hashes: pd.DataFrame) -> Hashes:
    """Return a group for each row: the smallest hash among the texts that connect rows, even via other rows."""
    texts = hashes.filter(like="text_")
    components = connected([texts[name] for name in texts])
    smallest: Hashes = texts.min(axis=1).groupby(components).transform("min").to_numpy()
    return smallest


def connected(columns: list[pd.Series]) -> NDArray[np.int32]:
    """Return the number of each row's component. A value that two rows have in common in any column connects them."""
    numbers, values = pd.factorize(np.concatenate([column.to_numpy(dtype=object) for column in columns]))
    first, last = numbers.reshape(len(columns), -1)[[0, -1]]
    links = coo_array((np.ones(len(first), dtype=np.int8), (first, last)), shape=(len(values), len(values)))
    components: NDArray[np.int32] = connected_components(links, directed=False)[1][first]
    return components
