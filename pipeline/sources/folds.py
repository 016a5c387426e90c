"""Cut the rows of train and validation into folds, for cross-validation."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import TRAIN
from pipeline.params import SplitParams
from pipeline.sources.corpus import Corpus
from pipeline.sources.duplicates import hash_rows
from pipeline.sources.splits import connected, groups_by_text, label_strata

_MAX_PARTS = 10  # of the other rows; one of them is validation


def take_fold(corpus: Corpus, split: SplitParams) -> Corpus:
    """Return the corpus with a fold of its labeled rows as test. The original test split is not used.

    The rows of train and validation together are cut into k folds of about the same size, with about the same
    proportion of each label. Rows that share a text, or the value of `split.column` with the split type "group", are
    in the same fold, even if only other rows connect them. A part of the remaining rows becomes validation. It is about
    as large as the original validation split, but at least a tenth of these rows. The rest becomes train.

    Raises:
        UserError: There are too few rows or groups for k folds, or train would lack a class of the fold.
    """
    if split.type == "datetime" and corpus.task.name in ("custom", "hub"):
        raise UserError("data.split.type is datetime, but a model of a fold would learn from later rows. Change it.")
    number, k = map(int, str(split.fold).split("/"))
    rows = labeled_rows(corpus)
    groups = _groups(rows, corpus)
    labels = label_strata(rows["label"], corpus.task.problem_type)
    folds = _fold_numbers(groups, labels, k, split.seed)
    for label in np.unique(labels) if corpus.task.is_single_label else ():
        if len(np.unique(folds[labels == label])) == 1:
            raise UserError(
                f'data.split.fold: all rows with the label "{corpus.task.labels[label]}" are in the same fold, because '
                "rows that share a text or a group stay together, so its model could not learn this label. Add rows."
            )
    is_test = folds == number - 1
    rest, rest_groups, rest_labels = rows[~is_test], groups[~is_test], labels[~is_test]
    parts = min(max(round(len(rows) / len(corpus.splits["validation"])), 2), _MAX_PARTS, len(np.unique(rest_groups)))
    part_numbers = _fold_numbers(rest_groups, rest_labels, parts, split.seed)
    # The part without which train has the most classes, and whose size is closest to the mean.
    is_validation = max(
        (part_numbers == part for part in range(parts)),
        key=lambda part: (len(np.unique(rest_labels[~part])), -abs(part.mean() - 1 / parts)),
    )
    splits = {TRAIN: rest[~is_validation], "validation": rest[is_validation], "test": rows[is_test]}
    task = replace(corpus.task, predicted_splits=["validation", "test"], unlabeled_splits=[])
    return replace(corpus, task=task, splits=splits)


def labeled_rows(corpus: Corpus) -> pd.DataFrame:
    """Return the rows of train and validation, ordered by `idx`.

    If both have their own file, and so the same numbers, the `idx` of validation are shifted to follow those of train.
    """
    train, validation = corpus.splits[TRAIN], corpus.splits["validation"]
    if {*train["idx"]} & {*validation["idx"]}:
        validation = validation.assign(idx=validation["idx"] + train["idx"].max() + 1)
    return pd.concat([train, validation]).sort_values("idx")


def _groups(rows: pd.DataFrame, corpus: Corpus) -> NDArray[np.int32]:
    """Return the number of each row's group. Rows are connected by a shared text, or by a value of `corpus.groups`."""
    by_text = pd.Series(groups_by_text(hash_rows(rows, corpus.task.text_columns)))
    if corpus.groups is None:
        return connected([by_text])
    groups = corpus.groups.reindex(rows.index)
    if groups.isna().any():
        raise UserError("data.split.fold: data.split.column is only read for train. Move the validation rows there.")
    return connected([by_text, groups])


def _fold_numbers(groups: NDArray[np.int32], labels: NDArray[np.int64], k: int, seed: int) -> NDArray[np.int64]:
    """Return the number of the fold of each row, from 0."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold  # Most runs need no folds.

    count = len(np.unique(groups))
    if count < max(k, 2):
        raise UserError(
            f"data.split.fold: rows that share a text or a group stay together, and {k} folds need more such groups "
            f"than {count}. Use fewer folds, or add rows with other texts."
        )
    sizes = np.bincount(labels)
    labels = np.where(sizes[labels] < k, len(sizes), labels)  # Rare labels are one stratum.
    # StratifiedGroupKFold is a loop over the groups, which is slow for a million rows.
    splitter = (StratifiedKFold if count == len(groups) else StratifiedGroupKFold)(k, shuffle=True, random_state=seed)
    folds = np.zeros(len(groups), dtype=np.int64)
    with warnings.catch_warnings():
        # The stratum of rare labels may have fewer rows than folds, and StratifiedKFold does not need groups.
        warnings.filterwarnings("ignore", "The (least populated class|groups parameter)", UserWarning)
        for number, (_, rows) in enumerate(splitter.split(labels, labels, groups)):
            folds[rows] = number
    return folds
