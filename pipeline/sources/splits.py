"""Validation and test rows for which there is no file, made from train's rows."""

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.task import TRAIN, ProblemType
from pipeline.params import SPLIT_KEY, SplitParams
from pipeline.sources.duplicates import Codes, Columns, Hashes, row_hashes

MADE = [TRAIN, "validation", "test"]  # the splits that train's rows become, by number


def made_splits(split: SplitParams, files: Collection[str]) -> dict[str, float]:
    """The shares of train's rows that become train, validation and test, where there is no file of these."""
    shares = dict(zip(MADE, split.probabilities, strict=True))
    kept = {name: share for name, share in shares.items() if name == TRAIN or (name not in files and share)}
    if split.type == "fixed":
        return {TRAIN: 1.0}
    return {name: share / sum(kept.values()) for name, share in kept.items()}


def assign(split: SplitParams, shares: dict[str, float], columns: Columns, kind: ProblemType) -> Codes:
    """The split of each of train's rows, which `columns` has, as numbers in `MADE`. Deterministic."""
    if len(shares) == 1:
        return np.zeros(columns.rows, dtype=np.int8)
    key = columns.read(SPLIT_KEY) if split.column else None
    label = columns.read("label")
    n = len(label)
    validation, test = (round(n * shares.get(name, 0)) for name in MADE[1:])
    if key is not None and split.type == "fixed":
        return key.view(np.float64).astype(np.int8)
    if split.type in ("random", "stratify"):
        alike = split.type == "random" or (key is None and kind == "regression")
        strata = np.zeros(n) if alike else label if key is None else key
        codes = _proportional(strata, validation, test, split.seed)
        if split.type == "stratify" and kind == "single_label_classification":
            _keep_in_train(codes, label.astype(np.int64))
        return codes
    if key is not None and split.type == "datetime":
        codes = np.zeros(n, dtype=np.int8)
        codes[np.argsort(key.view(np.float64), kind="stable")] = np.repeat(
            np.array([0, 1, 2], dtype=np.int8), [n - validation - test, validation, test]
        )
        return codes
    hashes = [columns.read(text) for text in columns.texts]
    if split.type == "hash":
        position = (row_hashes(hashes) if key is None else key) / 2.0**64
        bounds = np.cumsum([shares.get("test", 0), shares.get("validation", 0)])
        return np.array([2, 1, 0], dtype=np.int8)[np.digitize(position, bounds)]
    return _grouped(_sharing_a_text(hashes) if key is None else key, validation, test)


def _proportional(strata: NDArray[Any], validation: int, test: int, seed: int) -> Codes:
    """Rows at random, so that each stratum has its share of each split, to a row."""
    rng = np.random.default_rng(seed)
    codes = np.zeros(len(strata), dtype=np.int8)
    left = rng.permutation(len(strata))
    left = left[np.argsort(strata[left], kind="stable")]
    for code, count in ((2, test), (1, validation)):
        steps = np.arange(len(left) + 1) * count // max(len(left), 1)  # every k-th of the sorted rows
        chosen = np.diff(steps) > 0
        codes[left[chosen]] = code
        left = left[~chosen]
    return codes


def _keep_in_train(codes: Codes, classes: NDArray[np.int64]) -> None:
    """Move the first rows of a class to train until train has one of them, or two if there are three or more."""
    sizes = np.bincount(classes)
    missing = np.clip(sizes - 1, 1, 2) - np.bincount(classes[codes == 0], minlength=len(sizes))
    for number in np.flatnonzero((missing > 0) & (sizes > 0)):
        rows = np.flatnonzero((classes == number) & (codes > 0))
        codes[rows[: missing[number]]] = 0


def _grouped(groups: Hashes, validation: int, test: int) -> Codes:
    """Whole groups, in the order of their hashes, until a split has its rows; those that are too large go to train."""
    hashes, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    small = sizes <= max(min(count for count in (validation, test) if count), 1) if validation or test else sizes > 0
    order = np.lexsort((hashes, ~small))
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    codes = np.zeros(len(hashes), dtype=np.int8)
    codes[order] = np.where(middle < test, 2, np.where(middle < test + validation, 1, 0)) * small[order]
    return codes[group_of]


def _sharing_a_text(texts: list[Hashes]) -> Hashes:
    """For each row the smallest hash of the texts that it shares with others, directly or by way of further rows."""
    if len(texts) == 1:
        return texts[0]
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    known, node = np.unique(np.concatenate(texts), return_inverse=True)
    one, other = np.split(node, 2)
    links = coo_array((np.ones(len(one), dtype=np.int8), (one, other)), shape=(len(known), len(known)))
    _, component = connected_components(links, directed=False)
    first = np.full(component.max() + 1, len(known))
    np.minimum.at(first, component, np.arange(len(known)))
    smallest: Hashes = known[first[component[one]]]
    return smallest
