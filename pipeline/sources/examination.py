"""Examine a corpus: drop the rows that must not be used, and count what a user should see before training."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from pipeline.core.data_card import DataCard
from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN, Task
from pipeline.params import DataParams
from pipeline.sources.card import describe, make_card
from pipeline.sources.corpus import Corpus, describe_rows
from pipeline.sources.duplicates import flag_leakage, hash_rows
from pipeline.sources.folds import take_fold


class Examined(NamedTuple):
    """A corpus without the rows that must not be used, and what a user should see of it.

    Attributes:
        leakage: For each pair of a later and an earlier split, which rows of the later one are also in the earlier one.
        lines: The first rows and the label table, for a terminal.
    """

    task: Task
    splits: dict[str, pd.DataFrame]
    leakage: dict[tuple[str, str], pd.DataFrame]
    card: DataCard
    lines: list[str]


def examine(corpus: Corpus, params: DataParams) -> Examined:
    """Take a fold, drop leaked rows, and make the data card.

    Raises:
        UserError: A split would be empty, train would have only one class, or `on_leakage` is "error".
    """
    if params.split.fold:
        _require_rows(corpus.splits, corpus.task)
        corpus = take_fold(corpus, params.split)
    task, splits, warnings = corpus.task, {**corpus.splits}, [*corpus.warnings]
    hashes = {split: hash_rows(rows, task.text_columns) for split, rows in splits.items()}
    leaked = hashes[TRAIN]["row"].isin(np.concatenate([hashes[split]["row"] for split in task.predicted_splits]))
    if leaked.any() and params.on_leakage != "warn":
        description = f"rows that are also in validation or test: {describe_rows(splits[TRAIN], leaked)}"
        if params.on_leakage == "error":
            raise UserError(f"train has {description}. Remove them, or set data.on_leakage=drop.")
        warnings.append(f"train: dropped {description}")
        splits[TRAIN], hashes[TRAIN] = splits[TRAIN][~leaked], hashes[TRAIN][~leaked]
    _require_rows(splits, task)
    leakage = {
        (later, earlier): flag_leakage(hashes[later], hashes[earlier])
        for earlier, later in combinations(task.splits, 2)
    }
    card = make_card(task, splits, hashes, leakage, warnings)
    return Examined(task, splits, leakage, card, describe(task, splits, card))


def _require_rows(splits: dict[str, pd.DataFrame], task: Task) -> None:
    """Raise UserError if a split has no rows, or train has only one class."""
    remedy = "Change data.split, data.on_missing or data.on_leakage, or add rows."
    for split, rows in splits.items():
        if rows.empty:
            raise UserError(f"{split} would have no rows. {remedy}")
    if task.is_single_label and splits[TRAIN]["label"].nunique() < 2:
        raise UserError(f"train would have only one class. {remedy}")
