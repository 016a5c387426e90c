"""Download a corpus or read your files, and show what was read before anything is trained on it."""

from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from pipeline.cli import run_stage

import numpy as np
import pandas as pd
from datasets import Dataset, Features, Value

from pipeline.core.data_card import DATA_CARD, LEAKAGE, DataCard
from pipeline.core.dataset_files import label_feature
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import RAW, SOURCE
from pipeline.core.task import TRAIN, Task
from pipeline.params import DataParams, Params
from pipeline.sources.card import describe, make_card
from pipeline.sources.corpus import Corpus, describe_rows
from pipeline.sources.duplicates import flag_leakage, hash_rows
from pipeline.sources.folds import take_fold
from pipeline.sources.loading import load_corpus


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


def download(out: Path, params: DataParams) -> None:
    """Write a Parquet file for each split, and task.json, source.json and data_card.json next to them.

    The columns are the text columns, `label`, `idx` and the slice columns. A split whose labels are unknown
    has no `label`. The splits other than train have the column `LEAKAGE`.

    Raises:
        UserError: The data cannot be fetched, or it does not match `params`.
    """
    corpus = load_corpus(params)
    task, splits, leakage, card, lines = examine(corpus, params)
    for line in lines:
        log.info("%s", line)
    for warning in card.warnings:
        log.warning("%s", warning)
    if task.verdict_split == "validation":
        log.info("Test has no labels, so verdicts use validation, which is optimistic if it also chooses the epoch.")
    with atomic_output(out) as draft:
        draft.mkdir()
        for split in task.splits:
            _write_split(draft / f"{split}.parquet", splits[split], task, leakage.get((split, TRAIN)))
        task.write(draft)
        write_json(draft / DATA_CARD, asdict(card))
        write_json(draft / SOURCE, {"task": task.name, **corpus.origin})


def examine(corpus: Corpus, params: DataParams) -> Examined:
    """Take a fold, drop leaked rows, and count what a user should see before training. See `download`."""
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
    if task.problem_type == "single_label_classification" and splits[TRAIN]["label"].nunique() < 2:
        raise UserError(f"train would have only one class. {remedy}")


def _write_split(path: Path, rows: pd.DataFrame, task: Task, leakage: pd.DataFrame | None) -> None:
    """Write the rows of a split. With the same versions of pyarrow and datasets, the same rows give the same bytes.

    Args:
        leakage: Which rows are also in train, and which share a text with it. None for train.
    """
    features = dict.fromkeys(task.text_columns, Value("string"))
    if "label" in rows:
        features["label"] = label_feature(task)
    features |= {"idx": Value("int32")} | dict.fromkeys(task.slice_columns, Value("string"))
    if leakage is not None:
        rows = rows.assign(**{LEAKAGE: np.maximum(2 * leakage["rows"], leakage["texts"])})
        features[LEAKAGE] = Value("int8")
    Dataset.from_pandas(rows[list(features)], features=Features(features), preserve_index=False).to_parquet(path)


def main(params: Params) -> None:
    download(RAW, params.data)


if __name__ == "__main__":
    run_stage("download", main)
