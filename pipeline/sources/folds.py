"""Cut the rows of train and validation into folds, for cross-validation."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from pipeline.core.data_card import GROUP
from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN
from pipeline.params import SplitParams
from pipeline.sources.corpus import Corpus
from pipeline.sources.duplicates import hash_rows
from pipeline.sources.splits import groups_sharing_a_text, strata


def take_fold(corpus: Corpus, split: SplitParams) -> Corpus:
    """Return the corpus with a fold of its labeled rows as test. The original test split is not used.

    The rows of train and validation together are cut into k folds of about the same size, with about the same
    proportion of each label. Rows that share a text, or the value of `split.column` with the split type "group", are
    in the same fold. Of the other folds, a part as large as the original validation split becomes validation, so the
    epoch is not chosen on the fold, and the rest becomes train.

    The `idx` of a row of validation follows those of train, if both have the same numbers.

    Args:
        split: `fold` is "i/k", with i from 1 to k.

    Raises:
        UserError: There are too few rows or groups for k folds, fewer than k rows of a class, or `split.type` is
            "datetime".
    """
    if split.type == "datetime":
        raise UserError(
            "data.split.fold: data.split.type is datetime, but the model for a fold would also learn from later rows. "
            "Set data.split.fold=null, or another data.split.type."
        )
    number, k = map(int, str(split.fold).split("/"))
    train, validation = corpus.splits[TRAIN], corpus.splits["validation"]
    if set(train["idx"]) & set(validation["idx"]):
        validation = validation.assign(idx=validation["idx"] + train["idx"].max() + 1)
    rows = pd.concat([train, validation]).sort_values("idx", ignore_index=True)
    if GROUP not in train:
        rows[GROUP] = groups_sharing_a_text(hash_rows(rows, corpus.task.text_columns))
    labels = strata(rows["label"], corpus.task.problem_type)
    _require_rows_of_each_class(labels, corpus, k)
    is_test = _folds(rows[GROUP], labels, k, split.seed) == number - 1
    rest = rows[~is_test]
    parts = max(round(len(rows) / len(validation)), 2)
    is_validation = _folds(rest[GROUP], labels[~is_test], parts, split.seed) == 0
    splits = {TRAIN: rest[~is_validation], "validation": rest[is_validation], "test": rows[is_test]}
    task = replace(corpus.task, predicted_splits=["validation", "test"], unlabeled_splits=[])
    return replace(corpus, task=task, splits=splits)


def _folds(groups: pd.Series, labels: NDArray[np.int64], k: int, seed: int) -> NDArray[np.int64]:
    """Return the number of the fold of each row, from 0."""
    if groups.nunique() < k:
        raise UserError(
            f"data.split.fold: {groups.nunique():,} groups of rows cannot be cut into {k} folds. Use fewer folds."
        )
    counts = np.bincount(labels)
    labels = np.where(counts[labels] < k, len(counts), labels)  # Rare combinations of several labels are one stratum.
    folds = np.zeros(len(groups), dtype=np.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)  # the stratum of rare combinations
        cut = StratifiedGroupKFold(k, shuffle=True, random_state=seed).split(labels, labels, groups)
        for number, (_, rows) in enumerate(cut):
            folds[rows] = number
    return folds


def _require_rows_of_each_class(labels: NDArray[np.int64], corpus: Corpus, k: int) -> None:
    """Raise UserError if a class has fewer than k rows, so that a fold would have none."""
    if corpus.task.problem_type != "single_label_classification":
        return
    counts = np.bincount(labels, minlength=len(corpus.task.labels))
    rarest = int(counts.argmin())
    if counts[rarest] < k:
        raise UserError(
            f"data.split.fold: only {counts[rarest]} rows of train and validation have the label "
            f'"{corpus.task.labels[rarest]}", too few for {k} folds. Use fewer folds, or add rows.'
        )
