"""Download a corpus or read your files, and show what was read before anything is trained on it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import ClassLabel, Dataset, Features, List, Value

from pipeline.cli import run_stage
from pipeline.core.messages import log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import RAW, SOURCE
from pipeline.core.task import LEAKAGE, TRAIN, Task
from pipeline.params import DataParams, Params
from pipeline.sources.data_card import DATA_CARD
from pipeline.sources.examination import examine, prepare
from pipeline.sources.loading import load_corpus


def download(out: Path, params: DataParams) -> None:
    """Write a Parquet file for each split, and task.json, source.json and data_card.json next to them.

    The columns are the text columns, `label`, `idx` and the slice columns. A split whose labels are unknown
    has no `label`. The splits other than train have the column `LEAKAGE`.

    Raises:
        UserError: The data cannot be fetched, or it does not match `params`.
    """
    corpus = prepare(load_corpus(params), params)
    task = corpus.task
    leakage, card, lines = examine(corpus)
    for line in lines:
        log.info("%s", line)
    for warning in card.warnings:
        log.warning("%s", warning)
    if "test" in task.unlabeled_splits:
        log.info("Test has no labels, so verdicts use validation, which is optimistic if it also chooses the epoch.")
    with atomic_output(out) as draft:
        draft.mkdir()
        for split in task.splits:
            _write_split(draft / f"{split}.parquet", corpus.splits[split], task, leakage.get((split, TRAIN)))
        task.write(draft)
        write_json(draft / DATA_CARD, asdict(card))
        write_json(draft / SOURCE, {"task": task.name, **corpus.origin})


def _write_split(path: Path, rows: pd.DataFrame, task: Task, leakage: pd.DataFrame | None) -> None:
    """Write the rows of a split. With the same versions of pyarrow and datasets, the same rows give the same bytes.

    Args:
        leakage: Which rows are also in train, and which share a text with it. None for train.
    """
    features = dict.fromkeys(task.text_columns, Value("string"))
    if "label" in rows:
        features["label"] = _label_feature(task)
    features |= {"idx": Value("int32")} | dict.fromkeys(task.slice_columns, Value("string"))
    if leakage is not None:
        rows = rows.assign(**{LEAKAGE: np.maximum(2 * leakage["rows"], leakage["texts"])})
        features[LEAKAGE] = Value("int8")
    Dataset.from_pandas(rows[list(features)], features=Features(features), preserve_index=False).to_parquet(path)


def _label_feature(task: Task) -> Any:
    """Return the type of a column that holds the labels."""
    if task.is_single_label:
        return ClassLabel(names=task.labels)
    if task.is_multi_label:
        return List(Value("int64"), length=len(task.labels))
    return Value("float64")


def main(params: Params) -> None:
    download(RAW, params.data)


if __name__ == "__main__":
    run_stage("download", main)
