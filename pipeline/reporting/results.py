"""The results that the report shows: what the other stages wrote, read and checked."""

import csv
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.data_card import LEAKAGE, DataCard, read_data_card
from pipeline.core.details import parse_details
from pipeline.core.messages import UserError
from pipeline.core.paths import require
from pipeline.core.task import Task, read_task
from pipeline.evaluation.metrics import Ints, Values
from pipeline.evaluation.predictions import Predictions, load_predictions

# By the stage that writes them.
_DETAILS = {"evaluate": ("diagnostics", "intervals"), "train": ("environment", "train")}
_PLOTS = {"evaluate": ("precision_recall", "reliability", "residuals", "roc"), "train": ("history",)}


@dataclass(frozen=True)
class Rows:
    """The n rows of a split that were scored.

    texts: of each text column, n. labels: as `metrics.Values`. leakage: see `data_card.LEAKAGE`, shape (n,), None for
    data without. columns: by name the values of the user's slice columns.
    """

    texts: list[list[str]]
    labels: Values
    leakage: Ints | None
    columns: dict[str, list[str]]


@dataclass(frozen=True)
class Results:
    """The data, the predictions, and the content of the files that the report shows.

    rows, predictions: of the scored splits. metrics: JSON files by name. plots: rows of CSV files by name, each of them
    text by column. baseline: an earlier evaluation.json, None where it is of other rows. lengths: of the tokenized
    rows. provenance: data, checkpoint, parameters and environment. evaluation_md5: of evaluation.json, as DVC records
    it in dvc.lock.
    """

    task: Task
    card: DataCard
    rows: dict[str, Rows]
    predictions: dict[str, Predictions]
    metrics: dict[str, dict[str, Any]]
    plots: dict[str, list[dict[str, str]]]
    baseline: dict[str, Any] | None
    lengths: dict[str, Any]
    provenance: dict[str, Any]
    evaluation_md5: str


def load_results(raw: Path, tokenized: Path, classifier: Path, predictions: Path, metrics: Path) -> Results:
    """Read the outputs of the other stages. Raises UserError where one is missing or does not fit the others."""
    task = read_task(raw, "download")
    predicted = {split: load_predictions(predictions, split, task) for split in task.scored}
    rows = {split: _rows(raw, split, task, len(of.labels)) for split, of in predicted.items()}
    for split, of in predicted.items():
        if not np.array_equal(of.labels, rows[split].labels):
            raise UserError(f'{predictions / split}.parquet is not of the rows in {raw}; run "dvc repro predict"')
    content = {"evaluation": _read_json(metrics / "evaluation.json", "evaluate")} | {
        name: _read_details(metrics / f"{name}.json", stage) for stage, names in _DETAILS.items() for name in names
    }
    plots = {
        name: _read_csv(metrics / "plots" / f"{name}.csv", stage) for stage, names in _PLOTS.items() for name in names
    }
    return Results(
        task=task,
        card=read_data_card(raw),
        rows=rows,
        predictions=predicted,
        metrics=content,
        plots=plots,
        baseline=_read_baseline(metrics / "baseline.json", content["evaluation"], task),
        lengths=_read_json(tokenized / "lengths.json", "tokenize"),
        provenance=_read_json(classifier / "provenance.json", "train"),
        evaluation_md5=hashlib.md5((metrics / "evaluation.json").read_bytes(), usedforsecurity=False).hexdigest(),
    )


def _rows(raw: Path, split: str, task: Task, n: int) -> Rows:
    """The first n rows of a split: predict.max_samples may have left out the others."""
    from pipeline.core.tables import read_split, to_numpy

    table = read_split(raw, split, "download").slice(0, n)
    return Rows(
        texts=[table[column].to_pylist() for column in task.text_columns],
        labels=to_numpy(table["label"]),
        leakage=to_numpy(table[LEAKAGE]) if LEAKAGE in table.column_names else None,
        columns={name: table[name].to_pylist() for name in task.slice_columns},
    )


def _read_json(path: Path, producer: str) -> dict[str, Any]:
    try:
        return dict(json.loads(require(path, producer).read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise UserError(f'{path} is not a JSON object; run "dvc repro -f {producer}"') from None


def _read_details(path: Path, producer: str) -> dict[str, Any]:
    try:
        return parse_details(require(path, producer).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f'{path} is {error}; run "dvc repro -f {producer}"') from None


def _read_csv(path: Path, producer: str) -> list[dict[str, str]]:
    with require(path, producer).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _read_baseline(path: Path, evaluation: dict[str, Any], task: Task) -> dict[str, Any] | None:
    """The committed baseline, None where it is of other data: its scores then say nothing about these."""
    of_data = ["n", *(f"{task.baseline}_{name}" for name in task.metrics)]  # where one of these differs, the data do
    try:
        baseline = json.loads(path.read_text(encoding="utf-8"))
        same = all(
            baseline.get(split, {}).get(key) == evaluation[split][key] for split in task.scored for key in of_data
        )
        return baseline if same else None
    except (OSError, ValueError, AttributeError):
        raise UserError(f"{path} is not an evaluation.json; replace it with that of the run to compare with") from None
