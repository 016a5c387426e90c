"""Download a corpus or read your files, and report problems with the data."""

from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

from pipeline.cli import run_stage

import datasets
import numpy as np
import pandas as pd
from datasets import Dataset, Features, Value

from pipeline.core.data_card import DATA_CARD, GROUP, LEAKAGE, DataCard
from pipeline.core.dataset_files import label_feature
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import RAW, SOURCE
from pipeline.core.task import TRAIN, Task
from pipeline.params import DataParams, Params
from pipeline.sources.corpus import Corpus, describe_rows
from pipeline.sources.duplicates import flag_leakage, hash_rows
from pipeline.sources.folds import take_fold
from pipeline.sources.loading import load_corpus
from pipeline.sources.splits import sample_groups
from pipeline.sources.survey import survey


def download(out: Path, params: DataParams) -> None:
    """Write a Parquet file for each split, and task.json, source.json and data_card.json next to them.

    The columns are the text columns, `label`, `idx` and the slice columns. A split whose labels are unknown
    has no `label`. Train has the column `GROUP`, and the other splits have `LEAKAGE`.

    Raises:
        UserError: The data cannot be fetched, or it does not match `params`.
    """
    with atomic_output(out) as draft:
        draft.mkdir()
        corpus = load_corpus(params)
        if params.split.fold:
            _require_rows(corpus, params)
            corpus = take_fold(corpus, params.split)
        hashes = {split: hash_rows(rows, corpus.task.text_columns) for split, rows in corpus.splits.items()}
        if params.on_leakage != "warn":
            corpus, hashes = _drop_leaked(corpus, hashes, params)
        _require_rows(corpus, params)
        _require_two_classes(corpus)
        task, splits = corpus.task, corpus.splits
        groups = sample_groups(splits[TRAIN], hashes[TRAIN])
        splits = {**splits, TRAIN: splits[TRAIN].assign(**{GROUP: groups})}
        leakage = {
            (later, earlier): flag_leakage(hashes[later], hashes[earlier])
            for earlier, later in combinations(task.splits, 2)
        }
        card = survey(task, splits, hashes, leakage, corpus.warnings)
        _log_card(task, card)
        for split in task.splits:
            _write_split(draft, split, splits[split], task, leakage.get((split, TRAIN)))
        task.write(draft)
        write_json(draft / DATA_CARD, asdict(card))
        write_json(draft / SOURCE, {"task": task.name, **corpus.origin})


def _require_rows(corpus: Corpus, params: DataParams) -> None:
    for split in corpus.task.splits:
        if corpus.splits[split].empty and split == "test" and params.split.type == "fixed" and params.split.column:
            raise UserError(
                f'test would have no rows, because all rows that "{params.split.column}" assigns to it were dropped. '
                "If test rows have no labels, write them to a file of their own."
            )
        if corpus.splits[split].empty:
            raise UserError(
                f"{split} would have no rows. There are too few rows, or too few groups, for the current "
                f'data.split.type "{params.split.type}", data.split.fractions, data.on_missing and data.on_leakage. '
                "Change these keys, or add rows."
            )


def _require_two_classes(corpus: Corpus) -> None:
    """Raise UserError if train has one class only, which is possible after splitting, and after dropping rows."""
    if corpus.task.problem_type == "single_label_classification" and corpus.splits[TRAIN]["label"].nunique() < 2:
        raise UserError(
            "train would have only one class. Change data.split, data.on_missing or data.on_leakage, or add rows."
        )


def _drop_leaked(
    corpus: Corpus, hashes: dict[str, pd.DataFrame], params: DataParams
) -> tuple[Corpus, dict[str, pd.DataFrame]]:
    """Return the corpus and the hashes without the rows of train that are also in a later split.

    Raises:
        UserError: There are such rows, and `on_leakage` is "error".
    """
    task, train = corpus.task, corpus.splits[TRAIN]
    later_rows = pd.concat([hashes[split]["row"] for split in task.predicted_splits])
    leaked = hashes[TRAIN]["row"].isin(later_rows)
    if not leaked.any():
        return corpus, hashes
    description = describe_rows(train["idx"], leaked)
    if params.on_leakage == "error":
        raise UserError(
            f"train has rows that are also in validation or test: {description}. Remove them, or set "
            "data.on_leakage=drop."
        )
    warning = f"train: dropped rows that are also in validation or test: {description}"
    splits = {**corpus.splits, TRAIN: train[~leaked]}
    corpus = replace(corpus, splits=splits, warnings=[*corpus.warnings, warning])
    return corpus, {**hashes, TRAIN: hashes[TRAIN][~leaked]}


def _write_split(directory: Path, split: str, rows: pd.DataFrame, task: Task, leakage: pd.DataFrame | None) -> None:
    """Write the rows of a split. With the same versions of pyarrow and datasets, the same rows give the same bytes.

    Args:
        leakage: Which rows are also in train, and which share a text with it. None for train.
    """
    features = dict.fromkeys(task.text_columns, Value("string"))
    if "label" in rows:
        features["label"] = label_feature(task)
    features |= {"idx": Value("int32")} | dict.fromkeys(task.slice_columns, Value("string"))
    if leakage is None:
        rows = rows.assign(**{GROUP: pd.factorize(rows[GROUP])[0]})
        features[GROUP] = Value("int32")
    else:
        rows = rows.assign(**{LEAKAGE: np.maximum(2 * leakage["rows"], leakage["texts"])})
        features[LEAKAGE] = Value("int8")
    dataset = Dataset.from_pandas(rows[list(features)], features=Features(features), preserve_index=False)
    datasets.disable_progress_bars()
    dataset.to_parquet(directory / f"{split}.parquet")


def _log_card(task: Task, card: DataCard) -> None:
    for split, counts in card.splits.items():
        positive = f', {counts.labels[1] / counts.rows:.1%} "{task.labels[1]}"' if task.binary and counts.labels else ""
        log.info("%s: %s %s%s", split, f"{counts.rows:,}", task.noun, positive)
    if task.verdict_split == "validation":
        reason = "test has no labels" if "test" in task.predicted_splits else "the data has no test split"
        log.info(
            "%s, so verdicts use validation. If train.keep is best, validation scores are slightly optimistic, because "
            "validation also chooses the epoch.",
            reason,
        )
    for warning in card.warnings:
        log.warning("%s", warning)


def main(params: Params) -> None:
    download(RAW, params.data)


if __name__ == "__main__":
    run_stage("download", main)
