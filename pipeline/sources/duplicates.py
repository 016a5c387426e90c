"""Find rows that occur more than once, within a split or across splits, by hashes of their texts.

Two texts are the same if they have the same words and emoji, regardless of case, spaces and punctuation. Two pairs are
the same even if their texts are in a different order.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_EMOJI = r"\x{2600}-\x{27BF}\x{2B50}\x{1F000}-\x{1FAFF}"  # ranges for RE2

Hashes = NDArray[np.uint64]


def hash_rows(rows: pd.DataFrame, text_columns: list[str]) -> pd.DataFrame:
    """Return hashes of the rows of a split. They are the same on every machine.

    The columns are "text_0" and for pairs "text_1" (the texts), "row" (all texts of a row), and "label" if the rows
    have labels.
    """
    columns = {f"text_{n}": hash_column(_normalize(rows[name])) for n, name in enumerate(text_columns)}
    hashes = pd.DataFrame(columns, rows.index)
    hashes["row"] = hashes["text_0"]
    if len(columns) == 2:
        first, second = np.sort(hashes[["text_0", "text_1"]].to_numpy(), axis=1).T
        # Two odd constants mix the sorted hashes into one. Overflow wraps around, which is fine for a hash.
        hashes["row"] = first * np.uint64(0x9E3779B97F4A7C15) + second * np.uint64(0xC2B2AE3D27D4EB4F)
    if "label" in rows:
        hashes["label"] = hash_column(map(str, rows["label"]))
    return hashes


def hash_column(texts: Iterable[str]) -> Hashes:
    digests = (blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _normalize(texts: pd.Series) -> list[str]:
    """Lowercase, drop punctuation and collapse whitespace. Keep emoji, and the punctuation of a text without words."""
    lower = pc.utf8_lower(pa.array(texts, pa.string()))
    with_spaces = pc.replace_substring_regex(lower, f"([{_EMOJI}])", r" \1 ")
    words = pc.utf8_trim(pc.replace_substring_regex(with_spaces, rf"[^\p{{L}}\p{{M}}\p{{N}}{_EMOJI}_]+", " "), " ")
    normalized: list[str] = pc.if_else(pc.equal(words, ""), pc.utf8_trim_whitespace(lower), words).to_pylist()
    return normalized


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
