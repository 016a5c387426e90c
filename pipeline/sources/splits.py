"""Split train's rows into train, validation and test rows, for the splits that have no file."""

import math
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, ProblemType, Task
from pipeline.params import DataParams, SplitParams
from pipeline.sources.duplicates import Hashes, hash_column, hash_rows
from pipeline.sources.files import NAMES
from pipeline.tabular.reading import quote

MADE = [TRAIN, "validation", "test"]  # the splits that train's rows become, by number
Codes = NDArray[np.int8]  # the number of each row's split

_YEAR = re.compile(r"[0-9]{4}")
_COMPACT_DATE = "[0-9]{8}"  # 20241231, which Python reads as a date


def made_fractions(params: DataParams, files: Collection[str], keys: NDArray[Any] | None) -> dict[str, float]:
    """Return the fractions of train's rows that become train, validation and test, unless these have files.

    Args:
        files: The splits that have files.
        keys: What `split_keys` returned for train's rows; None without data.split.column.

    Raises:
        UserError: There would be two sources of a split, or no validation split.
    """
    fractions = dict(zip(MADE, params.split.fractions, strict=True))
    if params.split.type == "fixed":
        fractions = {TRAIN: 1.0} | {MADE[code]: 1.0 for code in ([] if keys is None else np.unique(keys))}
        if twice := sorted(fractions.keys() & set(files) - {TRAIN}):
            raise UserError(
                f"data.split.column: {params.split.column} names rows of {twice[0]}, for which there is a file too; "
                "keep only one"
            )
    made = {name: value for name, value in fractions.items() if name == TRAIN or (name not in files and value)}
    if "validation" not in {*files, *made}:
        raise UserError(
            f"data.split: {params.directory} has no validation file, and test is not used for it; add one, or set "
            "data.split.type=stratify and a fraction for validation in data.split.fractions"
        )
    return {name: value / sum(made.values()) for name, value in made.items()}


def split_keys(split: SplitParams, column: pd.Series) -> NDArray[Any]:
    """Return for each row what data.split.column says: the number of its split, its time, or a hash of the value.

    Args:
        column: The texts of data.split.column; the index has file and line.

    Raises:
        UserError: A value is missing, or it is not a split or a time.
    """
    texts = column.str.strip()
    if split.type == "datetime":
        return _times(texts)
    valid, remedy = texts != "", "fill it in, since data.split.column needs it"
    if split.type == "fixed":
        valid, remedy = texts.str.lower().isin(list(NAMES)), f"write {' or '.join(MADE)}, the row's split"
    if not valid.all():
        raise UserError(f"{_value(column, int(np.argmin(valid)))}; {remedy}")
    if split.type == "fixed":
        return np.array([MADE.index(NAMES[text]) for text in texts.str.lower()])
    return hash_column(column.tolist())


def _value(column: pd.Series, row: int) -> str:
    file, line = column.index[row]
    return f"{file} {line}: {column.name} is {quote(column.iloc[row])}"


def _times(texts: pd.Series) -> NDArray[np.float64]:
    """Return times that are all dates (ISO 8601, or a year) in seconds since 1970, and numbers as they are.

    Only the whole column tells a year from a number: 2024 is a year next to 2024-12-31, and a number next to 999.
    """
    dates = np.array([_parse_date(text) for text in texts])
    numbers = np.array([_parse_number(text) for text in texts])
    is_compact = texts.str.fullmatch(_COMPACT_DATE).to_numpy(dtype=bool)
    unreadable = np.isnan(dates) & np.isnan(numbers)
    if unreadable.any():
        raise UserError(
            f"{_value(texts, int(unreadable.argmax()))}; write times as 2024-12-31 or 2024-12-31T23:59:59 (ISO 8601), "
            "or as numbers"
        )
    must_be_number = np.isnan(dates)
    must_be_date = ~must_be_number & (np.isnan(numbers) | is_compact)
    if must_be_number.any() and must_be_date.any():
        raise UserError(
            f"{_value(texts, int(must_be_date.argmax()))}, a date, but {_value(texts, int(must_be_number.argmax()))}, "
            "a number; write all times as dates such as 2024-12-31, or all as numbers"
        )
    return numbers if must_be_number.any() else dates


def _parse_date(text: str) -> float:
    try:
        time = datetime.fromisoformat(f"{text}-01-01" if _YEAR.fullmatch(text) else text)
    except ValueError:
        return math.nan
    return time.replace(tzinfo=time.tzinfo or UTC).timestamp()


def _parse_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def assign(
    split: SplitParams, fractions: dict[str, float], rows: pd.DataFrame, keys: NDArray[Any] | None, task: Task
) -> Codes:
    """Return the split of each of train's rows as a number in `MADE`. The same rows give the same splits.

    Args:
        fractions: How much of the rows each split gets.
        rows: Train's rows.
        keys: What `split_keys` returned for them; None without data.split.column.
    """
    size = len(rows)
    validation, test = (round(size * fractions.get(name, 0)) for name in MADE[1:])
    if len(fractions) == 1 or not size:
        return np.zeros(size, dtype=np.int8)
    if split.type == "random":
        return _proportional(np.zeros(size), validation, test, split.seed)
    if split.type == "stratify":
        return _stratified(rows["label"], keys, validation, test, split.seed, task.problem_type)
    if split.type == "fixed" and keys is not None:
        return keys.astype(np.int8)
    if split.type == "datetime" and keys is not None:
        codes = np.zeros(size, dtype=np.int8)
        codes[np.argsort(keys, kind="stable")] = np.repeat([0, 1, 2], [size - validation - test, validation, test])
        return codes
    hashes = hash_rows(rows, task.text_columns)
    if split.type == "hash":
        position = (hashes["row"].to_numpy() if keys is None else keys) / 2.0**64
        bounds = np.cumsum([fractions.get("test", 0), fractions.get("validation", 0)])
        return (2 - np.digitize(position, bounds)).astype(np.int8)
    return _grouped(_groups_sharing_a_text(hashes) if keys is None else keys, validation, test)


def _stratified(
    labels: pd.Series, keys: NDArray[Any] | None, validation: int, test: int, seed: int, problem_type: ProblemType
) -> Codes:
    """Give each split the same proportions of the labels, or of the values of data.split.column."""
    if problem_type == "single_label_classification":
        classes = labels.to_numpy(dtype=np.int64)
        codes = _proportional(classes if keys is None else keys, validation, test, seed)
        _keep_classes_in_train(codes, classes)
        return codes
    strata = np.zeros(len(labels)) if problem_type == "regression" else pd.factorize(labels.map(str))[0]
    return _proportional(strata if keys is None else keys, validation, test, seed)


def _proportional(strata: NDArray[Any], validation: int, test: int, seed: int) -> Codes:
    """Draw rows at random, so that each stratum has its fraction of each split, to within one row."""
    codes = np.zeros(len(strata), dtype=np.int8)
    remaining = np.random.default_rng(seed).permutation(len(strata))
    remaining = remaining[np.argsort(strata[remaining], kind="stable")]
    for code, count in ((2, test), (1, validation)):
        steps = np.arange(len(remaining) + 1) * count // max(len(remaining), 1)  # every k-th of the sorted rows
        chosen = np.diff(steps) > 0
        codes[remaining[chosen]] = code
        remaining = remaining[~chosen]
    return codes


def _keep_classes_in_train(codes: Codes, classes: NDArray[np.int64]) -> None:
    """Move the first rows of a class to train until train has one of them, or two if there are three or more."""
    sizes = np.bincount(classes)
    missing = np.clip(sizes - 1, 1, 2) - np.bincount(classes[codes == 0], minlength=len(sizes))
    for number in np.flatnonzero((missing > 0) & (sizes > 0)):
        rows = np.flatnonzero((classes == number) & (codes > 0))
        codes[rows[: missing[number]]] = 0


def _grouped(groups: Hashes, validation: int, test: int) -> Codes:
    """Take whole groups in the order of their hashes until a split is full. Groups that are too large go to train."""
    largest = max(min((count for count in (validation, test) if count), default=math.inf), 1)
    sizes = pd.Series(groups).value_counts().sort_index()
    sizes = sizes[sizes <= largest]
    middle = sizes.cumsum() - sizes / 2
    codes = pd.Series(2 - np.digitize(middle, [test, test + validation]), sizes.index)
    row_codes: Codes = pd.Series(groups).map(codes).fillna(0).to_numpy(dtype=np.int8)
    return row_codes


def _groups_sharing_a_text(hashes: pd.DataFrame) -> Hashes:
    """Return for each row the smallest hash of the texts that it shares with others, directly or via further rows."""
    texts: Hashes = hashes.filter(like="text_").to_numpy()
    if texts.shape[1] == 1:
        return texts[:, 0]
    known, nodes = np.unique(texts, return_inverse=True)
    first, second = nodes.reshape(texts.shape).T
    links = coo_array((np.ones(len(first), dtype=np.int8), (first, second)), shape=(len(known), len(known)))
    _, components = connected_components(links, directed=False)
    smallest: Hashes = pd.Series(known).groupby(components).min().to_numpy()
    groups: Hashes = smallest[components[first]]
    return groups
