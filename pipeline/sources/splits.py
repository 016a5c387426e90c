"""Split the rows of train into train, validation and test if validation or test has no file."""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pipeline.core.data_card import GROUP
from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, ProblemType, Task
from pipeline.core.text import literal
from pipeline.params import DataParams, SplitParams
from pipeline.sources.duplicates import Hashes, hash_column, hash_rows
from pipeline.sources.files import SPLIT_ALIASES, SPLITS
from pipeline.sources.label_values import without_point_zero

SplitNames = NDArray[np.object_]  # the name of each row's split

_DATE = r"\d{4}(-|\d{4}|$)"  # pandas also reads -1, 2024.5 and "now" as dates.
# Dates that are numbers but do not sort by time, such as 31122023, 12.2023 and 122023. A program that reads 01122023 as
# a number writes 1122023, but at least one date in a column has all its digits. Otherwise, the values are probably ids.
_UNSORTABLE_DATE = r"((0?[1-9]|1[0-2])\.?|\d{3,4})(19|20)\d\d"
_COMPLETE_DATE = re.compile(r"(\d\d|\d\d?\.|\d{4})\d{4}")


def split_fractions(params: DataParams, files: Collection[str], split_values: NDArray[Any] | None) -> dict[str, float]:
    """Return which fraction of train's rows goes to train, and to each other split that is made from them.

    Args:
        files: The splits that have files, or are in the dataset on the Hub.
        split_values: What data.split.column says about each row of train; None without this key.

    Raises:
        UserError: A split would have two sources, or the validation split would be missing.
    """
    fractions = dict(zip(SPLITS, params.split.fractions, strict=True))
    if params.split.type == "fixed":
        fractions = dict.fromkeys([TRAIN, *([] if split_values is None else np.unique(split_values))], 1.0)
        if twice := sorted(fractions.keys() & set(files) - {TRAIN}):
            raise UserError(
                f'data.split.column: "{params.split.column}" assigns rows to {twice[0]}, but {twice[0]} also has a '
                "file. Keep only one of the two."
            )
    made = {name: value for name, value in fractions.items() if name == TRAIN or (name not in files and value)}
    if "validation" not in {*files, *made}:
        source, unit = (params.dataset, "split") if params.task == "hub" else (params.directory, "file")
        raise UserError(
            f"data.split: {source} has no validation {unit}, and test is never used for validation. Add one, or set "
            "data.split.type=stratify and a fraction for validation in data.split.fractions."
        )
    return {name: value / sum(made.values()) for name, value in made.items()}


def read_split_values(split: SplitParams, column: pd.Series) -> NDArray[Any]:
    """Return for each row the name of its split, its time, or a hash of its value, depending on the split type.

    Args:
        column: The texts of data.split.column. The index has the file and the line.

    Raises:
        UserError: A value is missing, or is not the name of a split or a time.
    """
    texts = column.str.strip()
    if split.type == "datetime":
        return _times(texts)
    if split.type == "fixed":
        names = texts.str.lower().map(SPLIT_ALIASES)
        _require_all(names.notna(), column, f"Write the split of the row, one of {', '.join(SPLITS)}.")
        return np.asarray(names, dtype=object)
    _require_all(texts != "", column, "Fill it in, because data.split.column needs a value for each row.")
    if split.type == "group":
        return hash_column(texts.str.casefold().map(without_point_zero))
    return hash_column(texts.tolist())


def _require_all(valid: pd.Series, column: pd.Series, remedy: str) -> None:
    if not valid.all():
        raise UserError(f"{_value(column, int(np.argmin(valid)))}. {remedy}")


def _value(column: pd.Series, row: int) -> str:
    return f'{column.index[row]}: "{column.name}" is {literal(column.iloc[row])}'


def _times(texts: pd.Series) -> NDArray[np.float64]:
    """Return the times as numbers: dates (ISO 8601, or a year) in microseconds since 1970, or numbers as they are.

    Only the whole column shows whether 2024 is a year: it is one next to 2024-12-31, and a number next to 999.
    """
    dates = read_dates(texts)
    numbers: NDArray[np.float64] = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    is_date = dates.notna()
    is_number = np.isfinite(numbers)
    is_compact_date = is_date & texts.str.fullmatch(r"\d{8}")  # such as 20241231
    if is_number.all() and not is_compact_date.any():
        if _COMPLETE_DATE.fullmatch(max(texts, key=len)) and texts.str.fullmatch(_UNSORTABLE_DATE).all():
            raise UserError(
                f"{_value(texts, 0)}, a date that does not sort by time as a number. Write all times as dates such as "
                "2023-12-31 (ISO 8601)."
            )
        return numbers  # If they are years, their order is the same.
    if is_date.all():
        microseconds: NDArray[np.float64] = dates.dt.as_unit("us").astype(np.int64).to_numpy(dtype=np.float64)
        return microseconds
    unreadable = ~is_date & ~is_number
    row = int(np.argmax(unreadable if unreadable.any() else ~is_date))
    raise UserError(
        f"{_value(texts, row)}. Write all times as dates such as 2024-12-31 or 2024-12-31T23:59:59 (ISO 8601), or "
        "all as numbers."
    )


def read_dates(texts: pd.Series) -> pd.Series:
    """Return the time that each text means if it is a date in the format ISO 8601 or a year, and NaT if it is not."""
    return pd.to_datetime(texts.where(texts.str.match(_DATE)), format="ISO8601", utc=True, errors="coerce")


def split_train(
    train: pd.DataFrame,
    split_values: NDArray[Any] | None,
    fractions: dict[str, float],
    split: SplitParams,
    task: Task,
) -> dict[str, pd.DataFrame]:
    """Return the rows of train, and of each other split that is made from them. The same rows give the same splits.

    Args:
        train: The rows of train that were not dropped. The column "idx" has their numbers.
        split_values: As in `split_fractions`, for all rows, including those that were dropped.
        fractions: The fraction of the rows for each split, including train.
    """
    if split_values is not None:
        split_values = split_values[train["idx"]]
        if split.type == "group":
            train = train.assign(**{GROUP: split_values})
    names = _assign_splits(split, fractions, train, split_values, task)
    return {name: train[names == name] for name in fractions}


def _assign_splits(
    split: SplitParams, fractions: dict[str, float], rows: pd.DataFrame, split_values: NDArray[Any] | None, task: Task
) -> SplitNames:
    """Return the name of the split of each row."""
    size = len(rows)
    counts = {name: round(size * fractions.get(name, 0)) for name in ("test", "validation")}
    if len(fractions) == 1:
        return np.full(size, TRAIN, dtype=object)
    if split.type == "random":
        return _proportional(np.zeros(size), counts, split.seed)
    if split.type == "stratify":
        values = strata(rows["label"], task.problem_type) if split_values is None else split_values
        names = _proportional(values, counts, split.seed)
        if task.problem_type == "single_label_classification":
            _keep_classes_in_train(names, rows["label"].to_numpy(dtype=np.int64))
        return names
    if split.type == "fixed" and split_values is not None:
        return split_values
    if split.type == "datetime" and split_values is not None:
        names = np.full(size, TRAIN, dtype=object)
        latest_first = np.argsort(split_values, kind="stable")[::-1]
        names[latest_first[: counts["test"]]] = "test"
        names[latest_first[counts["test"] : sum(counts.values())]] = "validation"
        return names
    hashes = hash_rows(rows, task.text_columns)
    if split.type == "hash":
        position = (hashes["row"].to_numpy() if split_values is None else split_values) / 2.0**64
        return _cut(position, {name: fractions.get(name, 0) for name in counts})
    return _grouped(groups_sharing_a_text(hashes) if split_values is None else split_values, counts)


def _cut(positions: NDArray[np.float64], sizes: Mapping[str, float]) -> SplitNames:
    """Return the split at each position on a line that starts with test, followed by validation and train."""
    is_test = positions < sizes["test"]
    is_validation = positions < sizes["test"] + sizes["validation"]
    return np.select([is_test, is_validation], ["test", "validation"], TRAIN).astype(object)


def strata(labels: pd.Series, problem_type: ProblemType) -> NDArray[np.int64]:
    """Return a number for the label of each row. It is the same for all rows of a regression."""
    numbers: NDArray[np.int64] = np.zeros(len(labels), dtype=np.int64)
    if problem_type == "single_label_classification":
        numbers = labels.to_numpy(dtype=np.int64)
    elif problem_type == "multi_label_classification":
        numbers, _ = pd.factorize(labels.map(str))
    return numbers


def _proportional(strata: NDArray[Any], counts: dict[str, int], seed: int) -> SplitNames:
    """Draw rows at random so that each split gets its proportion of each stratum, to within one row."""
    names = np.full(len(strata), TRAIN, dtype=object)
    remaining = np.random.default_rng(seed).permutation(len(strata))
    remaining = remaining[np.argsort(strata[remaining], kind="stable")]
    for name, count in counts.items():
        steps = np.arange(len(remaining) + 1) * count // max(len(remaining), 1)  # every k-th of the sorted rows
        chosen = np.diff(steps) > 0
        names[remaining[chosen]] = name
        remaining = remaining[~chosen]
    return names


def _keep_classes_in_train(names: SplitNames, classes: NDArray[np.int64]) -> None:
    """Move the first rows of a class to train until train has enough of them.

    Enough means one row, or two rows if the class has three or more.
    """
    sizes = np.bincount(classes)
    missing = np.clip(sizes - 1, 1, 2) - np.bincount(classes[names == TRAIN], minlength=len(sizes))
    for number in np.flatnonzero((missing > 0) & (sizes > 0)):
        rows = np.flatnonzero((classes == number) & (names != TRAIN))
        names[rows[: missing[number]]] = TRAIN


def _grouped(groups: Hashes, counts: dict[str, int]) -> SplitNames:
    """Assign whole groups in the order of their hashes until a split is full.

    Groups that are larger than the smallest split go to train.
    """
    largest = max(min((count for count in counts.values() if count), default=math.inf), 1)
    sizes = pd.Series(groups).value_counts().sort_index()
    sizes = sizes[sizes <= largest]
    middle = sizes.cumsum() - sizes / 2
    by_group = pd.Series(_cut(middle.to_numpy(), counts), sizes.index, dtype=object)
    names: SplitNames = by_group.reindex(groups, fill_value=TRAIN).to_numpy(dtype=object)
    return names


def groups_sharing_a_text(hashes: pd.DataFrame) -> Hashes:
    """Return a group for each row. Rows are in the same group if shared texts connect them, even via other rows.

    The group is the smallest hash of its texts.
    """
    texts: Hashes = hashes.filter(like="text_").to_numpy()
    if texts.shape[1] == 1:
        return texts[:, 0]
    known, nodes = np.unique(texts, return_inverse=True)
    first, second = nodes.reshape(texts.shape).T
    components = _connect(first, second, len(known))
    smallest: Hashes = pd.Series(texts.min(axis=1)).groupby(components).transform("min").to_numpy()
    return smallest


def sample_groups(rows: pd.DataFrame, hashes: pd.DataFrame) -> NDArray[np.integer]:
    """Return a group for each row. Rows are in the same group if shared texts connect them, even via other rows.

    If the rows have the column `GROUP` already, a shared value of this column connects them, too.
    """
    groups = groups_sharing_a_text(hashes)
    if GROUP not in rows:
        return groups
    by_text, _ = pd.factorize(groups)
    by_value, values = pd.factorize(rows[GROUP])
    return _connect(by_value, len(values) + by_text, len(values) + len(rows))


def _connect(first: NDArray[np.intp], second: NDArray[np.intp], size: int) -> NDArray[np.int32]:
    """Return the number of the connected component of each row, in a graph in which each row links two nodes.

    Args:
        first, second: The nodes of each row, as numbers below `size`.
    """
    links = coo_array((np.ones(len(first), dtype=np.int8), (first, second)), shape=(size, size))
    _, components = connected_components(links, directed=False)
    component_of_row: NDArray[np.int32] = components[first]
    return component_of_row
