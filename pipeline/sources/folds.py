"""Cut the rows of train and validation into folds, for cross-validation."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.data_card import GROUP
from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN
from pipeline.params import SplitParams
from pipeline.sources.corpus import Corpus
from pipeline.sources.duplicates import hash_rows
from pipeline.sources.splits import sample_groups, strata

_MAX_PARTS = 10  # of the other rows; one of them is validation


def take_fold(corpus: Corpus, split: SplitParams) -> Corpus:
    """Return the corpus with a fold of its labeled rows as test. The original test split is not used.

    The rows of train and validation together are cut into k folds of about the same size, with about the same
    proportion of each label. Rows that share a text, or the value of `split.column` with the split type "group", are
    in the same fold, even if only other rows connect them. A part of the remaining rows becomes validation, so the
    epoch is not chosen on the fold. It is about as large as the original validation split, but at least a tenth of
    these rows, unless a large group has to stay together. The rest becomes train.

    Args:
        split: `fold` is "i/k", with i from 1 to k.

    Raises:
        UserError: There are too few rows or groups for k folds, fewer than k rows of a class, all rows of a class are
            in the same fold, the groups of validation are not known, or `split.type` is "datetime".
    """
    if split.type == "datetime" and corpus.task.name in ("custom", "hub"):
        raise UserError(
            "data.split.type is datetime, and in cross-validation, a model would also learn from rows that are later "
            "than those of its fold. Set another data.split.type."
        )
    number, k = map(int, str(split.fold).split("/"))
    rows = labeled_rows(corpus)
    if GROUP in rows and rows[GROUP].isna().any():
        raise UserError(
            "data.split.fold: data.split.column is only read for train, so the groups of the rows of validation are "
            "not known. Move these rows to train, or set data.split.type=stratify."
        )
    rows[GROUP] = sample_groups(rows, hash_rows(rows, corpus.task.text_columns))
    labels = strata(rows["label"], corpus.task.problem_type)
    folds = _fold_numbers(rows[GROUP], labels, k, split.seed)
    _require_classes_in_folds(folds, labels, corpus, k)
    is_test = folds == number - 1
    rest = rows[~is_test]
    groups = rest[GROUP].nunique()
    if groups < 2:
        raise UserError(
            f"data.split.fold={split.fold}: rows that share a text or a group stay together, and all rows outside of "
            "this fold are one group, so none of them can become validation. Use more folds or more groups."
        )
    parts = max(round(len(rows) / len(corpus.splits["validation"])), 2)
    parts = min(parts, _MAX_PARTS, groups)
    part_numbers = _fold_numbers(rest[GROUP], labels[~is_test], parts, split.seed)
    is_validation = _part_for_validation(part_numbers, labels[~is_test])
    splits = {TRAIN: rest[~is_validation], "validation": rest[is_validation], "test": rows[is_test]}
    task = replace(corpus.task, predicted_splits=["validation", "test"], unlabeled_splits=[])
    return replace(corpus, task=task, splits=splits)


def labeled_rows(corpus: Corpus) -> pd.DataFrame:
    """Return the rows of train and validation, ordered by `idx`.

    If both have their own file, and so the same numbers, the `idx` of validation are shifted to follow those of train.
    """
    train, validation = corpus.splits[TRAIN], corpus.splits["validation"]
    if set(train["idx"]) & set(validation["idx"]):
        validation = validation.assign(idx=validation["idx"] + train["idx"].max() + 1)
    return pd.concat([train, validation]).sort_values("idx", ignore_index=True)


def _fold_numbers(groups: pd.Series, labels: NDArray[np.int64], k: int, seed: int) -> NDArray[np.int64]:
    """Return the number of the fold of each row, from 0."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold  # Most runs need no folds.

    if groups.nunique() < k:
        raise UserError(
            "data.split.fold: rows that share a text or a group stay together, and there are fewer such groups of rows "
            f"({groups.nunique():,}) than folds ({k}). Use fewer folds, or add rows with other texts."
        )
    counts = np.bincount(labels)
    labels = np.where(counts[labels] < k, len(counts), labels)  # Rare combinations of several labels are one stratum.
    # StratifiedGroupKFold is a loop over the groups, which is slow for a million rows.
    grouped = not groups.is_unique
    splitter = StratifiedGroupKFold if grouped else StratifiedKFold
    folds = np.zeros(len(groups), dtype=np.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)  # the stratum of rare combinations
        cut = splitter(k, shuffle=True, random_state=seed).split(labels, labels, groups if grouped else None)
        for number, (_, rows) in enumerate(cut):
            folds[rows] = number
    return folds


def _require_classes_in_folds(folds: NDArray[np.int64], labels: NDArray[np.int64], corpus: Corpus, k: int) -> None:
    """Raise UserError if a class has fewer than k rows, or if all of its rows are in the same fold.

    A fold would then have no row of the class, or its model could not learn the class.
    """
    if corpus.task.problem_type != "single_label_classification":
        return
    for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
        name = corpus.task.labels[label]
        if count < k:
            raise UserError(
                f'data.split.fold: the label "{name}" is too rare in train and validation for {k} folds (rows: '
                f"{count}). Use fewer folds, or add rows."
            )
        if len(np.unique(folds[labels == label])) == 1:
            raise UserError(
                "data.split.fold: rows that share a text or a group stay together, so all rows with the label "
                f'"{name}" are in the same fold, and its model could not learn this label. Add other rows with this '
                "label."
            )


def _part_for_validation(part_numbers: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows become validation: one of the parts without which train has the most classes.

    Among these parts, it is the one whose size is closest to the mean, because a large group makes a large part.
    """
    parts = [part_numbers == number for number in range(part_numbers.max() + 1)]

    def suitability(part: NDArray[np.bool_]) -> tuple[int, float]:
        return len(np.unique(labels[~part])), -abs(part.mean() - 1 / len(parts))

    return max(parts, key=suitability)
