"""A corpus of sentence pairs: the rows of each split, and their checksum."""

import hashlib
import json
from collections.abc import Iterable
from typing import NamedTuple

LABELS = ["not_equivalent", "equivalent"]


class Pair(NamedTuple):
    sentence1: str
    sentence2: str
    label: int  # index into LABELS
    idx: int  # the row's number in its original file


Corpus = dict[str, list[Pair]]


def rows_sha256(pairs: Iterable[Pair]) -> str:
    """sha256 over each row's JSON list `[sentence1, sentence2, label, idx]` and a line feed, in order, in UTF-8."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(json.dumps(list(pair), ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
