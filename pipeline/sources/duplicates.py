"""Rows that occur twice, within a split and in several: by a hash of each text, kept on disk.

Texts are the same where they have the same words, whatever their case, spaces and punctuation; pairs in either order.
"""

from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.core.tables import from_strings, to_numpy
from pipeline.core.task import Task
from pipeline.params import SPLIT_KEY

Hashes = NDArray[np.uint64]
Codes = NDArray[np.int8]  # the number of each row's split, train's being 0; -1: in none
Bits = NDArray[np.uint8]

# The lower bits are the numbers of splits, of which a task has five at most.
OTHERS, REPEATED, CONTRADICTORY, IDENTICAL = 0b11110, 1 << 5, 1 << 6, 1 << 7
_CHUNK = 1 << 18  # rows read at once
_BUCKET = 1 << 19  # rows compared at once


class Marks(NamedTuple):
    """What is known of n rows, shape (n,) each: as bits, the numbers of the splits that have the row, or a text of it.

    rows also: REPEATED, where the split has the row earlier too; CONTRADICTORY, where one of these has another label;
    IDENTICAL, where the pair is twice the same text. contradicted: the numbers of the splits that have the row with
    another label.
    """

    rows: Bits
    texts: Bits
    contradicted: Bits


class Columns:
    """Columns of uint64 in a directory, a file each: eight bytes per row and column that need no memory."""

    def __init__(self, directory: Path, texts: int) -> None:
        self._directory = directory
        self.rows = 0
        self.texts = [f"text {number}" for number in range(texts)]  # columns of their hashes
        directory.mkdir()

    def append(self, name: str, values: NDArray[Any]) -> None:
        with (self._directory / name).open("ab") as file:
            file.write(values.tobytes())

    def read(self, name: str, start: int = 0, count: int = -1) -> Hashes:
        """The values of `count` rows from `start`, or as many as there are."""
        return np.fromfile(self._directory / name, np.uint64, count, offset=8 * start)


def is_empty(texts: pa.Array) -> pa.Array:
    """Whether each text is "". The scalar is made so since `pa.scalar` imports pandas, where it is installed."""
    return pc.equal(texts, from_strings([""])[0])


def normalized(texts: pa.Array) -> pa.Array:
    """Lowercase, drop punctuation, collapse whitespace; a text without words keeps its punctuation."""
    lower = pc.utf8_lower(texts)
    words = pc.utf8_trim(pc.replace_substring_regex(lower, r"[^\p{L}\p{M}\p{N}_]+", " "), " ")
    return pc.if_else(is_empty(words), pc.utf8_trim_whitespace(lower), words)


def hashes(texts: pa.Array) -> Hashes:
    """A hash of each text, the same everywhere. Shape (n,)."""
    digests = (blake2b(text.encode(), digest_size=8).digest() for text in texts.to_pylist())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def row_hashes(texts: list[Hashes]) -> Hashes:
    """A hash of each row from those of its texts, whatever their order."""
    if len(texts) == 1:
        return texts[0]
    factors = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)
    mixed: Hashes = np.minimum(*texts) * factors[0] + np.maximum(*texts) * factors[1]
    return mixed


def note(columns: Columns, batch: pa.RecordBatch, task: Task) -> None:
    """Append to `columns` the hashes of a batch's texts, its "label" (of several, a hash), "idx" and `SPLIT_KEY`."""
    for name, column in zip(task.text_columns, columns.texts, strict=True):
        columns.append(column, hashes(normalized(batch[name])))

    label = to_numpy(batch["label"]) if "label" in batch.schema.names else np.zeros(len(batch), dtype=np.int64)
    if label.ndim == 2:
        label = label @ np.random.default_rng(0).integers(1 << 62, size=label.shape[1])
    columns.append("label", label)
    columns.rows += len(batch)
    columns.append("idx", to_numpy(batch["idx"]).astype(np.int64))
    if SPLIT_KEY in batch.schema.names:
        columns.append(SPLIT_KEY, to_numpy(batch[SPLIT_KEY]))


def compare(columns: Columns, codes: Codes) -> Marks:
    """Find the rows and the texts that occur more than once."""
    texts = columns.texts
    rows: Bits = np.zeros(len(codes), dtype=np.uint8)
    single: Bits = np.zeros(len(codes), dtype=np.uint8)
    contradicted: Bits = np.zeros(len(codes), dtype=np.uint8)
    buckets = len(codes) // _BUCKET + 1
    for bucket in range(buckets):
        keys, at, labels = _bucket(columns, texts, codes, buckets, bucket)
        order = np.lexsort((codes[at], keys))
        keys, at, labels = keys[order], at[order], labels[order]
        rows[at] = _having(keys, codes[at])
        contradicted[at] = _contradicted(keys, codes[at], labels)
        starts = np.append(True, (keys[1:] != keys[:-1]) | (codes[at][1:] != codes[at][:-1]))[: len(keys)]
        first = np.maximum.accumulate(np.where(starts, np.arange(len(keys)), 0))
        differs = labels != labels[first]
        among_earlier = np.cumsum(differs) - differs - np.cumsum(differs)[first] > 0
        rows[at] |= np.where(starts, 0, REPEATED + CONTRADICTORY * (differs | among_earlier)).astype(np.uint8)
    if len(texts) == 1:
        return Marks(rows, rows & np.uint8(REPEATED - 1), contradicted)
    for start in range(0, len(codes), _CHUNK):
        one, other = (columns.read(text, start, _CHUNK) for text in texts)
        rows[start : start + _CHUNK] |= np.where(one == other, IDENTICAL, 0).astype(np.uint8)
    for bucket in range(2 * buckets):
        found = [_bucket(columns, [text], codes, 2 * buckets, bucket)[:2] for text in texts]
        keys, at = (np.concatenate(of) for of in zip(*found, strict=True))
        order = np.argsort(keys)
        np.bitwise_or.at(single, at[order], _having(keys[order], codes[at[order]]))
    return Marks(rows, single, contradicted)


def _bucket(
    columns: Columns, texts: list[str], codes: Codes, buckets: int, bucket: int
) -> tuple[Hashes, NDArray[np.intp], Hashes]:
    """The hashes of a bucket of the rows, their positions, and their labels; not of rows that are in no split."""
    found = []
    for start in range(0, len(codes), _CHUNK):
        keys = row_hashes([columns.read(text, start, _CHUNK) for text in texts])
        belongs = ((keys >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32) == bucket
        at = np.flatnonzero(belongs & (codes[start : start + _CHUNK] >= 0))
        found.append((keys[at], at + start, columns.read("label", start, _CHUNK)[at]))
    keys, positions, labels = (np.concatenate(of) for of in zip(*found, strict=True))
    return keys, positions, labels


def _having(keys: Hashes, codes: Codes) -> Bits:
    """The numbers, as bits, of the splits that have each key. keys: sorted."""
    bits = np.left_shift(1, codes).astype(np.uint8)
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    if not len(starts):
        return bits
    return np.repeat(np.bitwise_or.reduceat(bits, starts), np.diff(np.append(starts, len(keys))))


def _contradicted(keys: Hashes, codes: Codes, labels: Hashes) -> Bits:
    """The numbers, as bits, of the splits that have each row's key with another label. keys: sorted."""
    bits: Bits = np.zeros(len(keys), dtype=np.uint8)
    for code in np.unique(codes):
        in_split = codes == code
        known, starts = np.unique(keys[in_split], return_index=True)
        lowest, highest = (extreme.reduceat(labels[in_split], starts) for extreme in (np.minimum, np.maximum))
        position = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        differs = (lowest[position] != labels) | (highest[position] != labels)
        bits |= np.where((known[position] == keys) & differs, 1 << code, 0).astype(np.uint8)
    return bits
