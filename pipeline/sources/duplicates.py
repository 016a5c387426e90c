"""Find rows that occur more than once, within a split or across splits, by hashes of their texts.

Two texts are the same if they differ only in case, spaces and ASCII punctuation, unless they have nothing else. Two
pairs are the same even if their texts are in a different order.
"""

import re

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_SEPARATORS = re.compile(r"[\s!-/:-@\[-`{-~]+")  # spaces and ASCII punctuation

Hashes = NDArray[np.uint64]


def hash_column(values: pd.Series) -> Hashes:
    """Return hashes that are the same on every machine."""
    hashes: Hashes = pd.util.hash_array(values.to_numpy(dtype=object), categorize=False)
    return hashes


def hash_rows(rows: pd.DataFrame, text_columns: list[str]) -> pd.DataFrame:
    """Return hashes of rows: "text_0" and for pairs "text_1", "row" (all texts), and "label" if there are labels."""
    texts = [rows[name].map(_normalize) for name in text_columns]
    if len(texts) == 2:  # An empty text must not connect all pairs that have one.
        first, second = texts
        texts = [first.mask(first == "", second), second.mask(second == "", first)]
    hashes = pd.DataFrame({f"text_{n}": hash_column(column) for n, column in enumerate(texts)}, rows.index)
    hashes["row"] = hashes["text_0"]
    if len(texts) == 2:
        first, second = np.sort(hashes[["text_0", "text_1"]].to_numpy(), axis=1).T
        # Two odd constants mix the sorted hashes into one. Overflow wraps around, which is fine for a hash.
        hashes["row"] = first * np.uint64(0x9E3779B97F4A7C15) + second * np.uint64(0xC2B2AE3D27D4EB4F)
    if "label" in rows:
        hashes["label"] = hash_column(rows["label"].map(str))
    return hashes


def _normalize(text: str) -> str:
    return _SEPARATORS.sub(" ", text.lower()).strip() or text.strip()


def flag_duplicates(hashes: pd.DataFrame) -> pd.DataFrame:
    """Flag the duplicates among the rows of a split.

    The columns are "repeated" (an earlier row has the same texts) and "contradictory" (it also has another label).
    """
    flags = pd.DataFrame({"repeated": hashes.duplicated("row"), "contradictory": False})
    if "label" in hashes:
        differs_from_first = hashes["label"] != hashes.groupby("row")["label"].transform("first")
        flags["contradictory"] = differs_from_first.groupby(hashes["row"]).cummax()
    return flags


def flag_leakage(later: pd.DataFrame, earlier: pd.DataFrame) -> pd.DataFrame:
    """Flag the rows of a split that are also in an earlier split, as a whole or in part.

    The columns are "rows" (the earlier split has the whole row), "texts" (it has at least one of the texts) and
    "contradictory" (it has the whole row with a different label).
    """
    known = pd.unique(earlier.filter(like="text_").to_numpy().ravel())
    flags = pd.DataFrame({"rows": later["row"].isin(earlier["row"]), "contradictory": False})
    flags["texts"] = later.filter(like="text_").isin(known).any(axis=1)
    if "label" in later and "label" in earlier:
        has_several = later["row"].map(earlier.groupby("row")["label"].nunique()) > 1
        # XOR makes one number of a row and its label.
        has_same = (later["row"] ^ later["label"]).isin(earlier["row"] ^ earlier["label"])
        flags["contradictory"] = flags["rows"] & (has_several | ~has_same)
    return flags
