"""The results that the report shows: what the other stages wrote, read and checked."""

import csv
import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.data_card import LEAKAGE, DataCard, read_data_card
from pipeline.core.details import parse_details
from pipeline.core.messages import UserError
from pipeline.core.parquet import read_split, to_numpy
from pipeline.core.paths import PROVENANCE, SETTINGS, require
from pipeline.core.task import Task, read_task
from pipeline.evaluation.metrics import Ints
from pipeline.evaluation.predictions import Predictions, load_predictions

# By the stage that writes them.
_DETAILS = {"evaluate": ("diagnostics", "intervals"), "train": ("train",)}
_PLOTS = {"evaluate": ("precision_recall", "reliability", "residuals", "roc"), "train": ("history",)}


@dataclass(frozen=True)
class Rows:
    """The n scored rows of a split.

    texts: n of each text column. leakage: shape (n,), see `core.data_card`. columns: the n values of each slice column.
    """

    texts: list[list[str]]
    leakage: Ints
    columns: dict[str, list[str | None]]


@dataclass(frozen=True)
class Results:
    """The data, the predictions, and the content of the files that the report shows.

    task: with the metrics by which models are compared. rows, predictions: of the scored splits, or of their first
    rows.
    metrics: JSON files by name. plots: rows of CSV files by name, each row text by column. baseline: an earlier
    evaluation.json, None where it is of other data. lengths: of the tokenized rows. max_length: in tokens, to
    which rows were cut. provenance: data, checkpoint, parameters and environment.
    evaluation_md5: of evaluation.json, as DVC records it in dvc.lock.
    """

    task: Task
    card: DataCard
    rows: dict[str, Rows]
    predictions: dict[str, Predictions]
    metrics: dict[str, dict[str, Any]]
    plots: dict[str, list[dict[str, str]]]
    baseline: dict[str, Any] | None
    lengths: dict[str, Any]
    max_length: int
    provenance: dict[str, Any]
    evaluation_md5: str


def load_results(raw: Path, tokenized: Path, classifier: Path, predictions: Path, metrics: Path) -> Results:
    """Read the outputs of the other stages. Raises UserError where one is missing or does not fit the others."""
    task = read_task(raw, "download")
    predicted = {split: load_predictions(predictions, split, task) for split in task.scored}
    content = {"evaluation": _read_json(metrics / "evaluation.json", "evaluate")} | {
        name: _read_details(metrics / f"{name}.json", stage) for stage, names in _DETAILS.items() for name in names
    }
    task = replace(task, metrics=content["diagnostics"]["metrics"])
    plots = {
        name: _read_csv(metrics / "plots" / f"{name}.csv", stage) for stage, names in _PLOTS.items() for name in names
    }
    return Results(
        task=task,
        card=read_data_card(raw),
        rows={split: _read_rows(raw, split, task, of) for split, of in predicted.items()},
        predictions=predicted,
        metrics=content,
        plots=plots,
        baseline=_read_baseline(metrics / "baseline.json", content["evaluation"], task),
        lengths=_read_json(tokenized / "lengths.json", "tokenize"),
        max_length=_read_json(classifier / SETTINGS, "train")["max_length"],
        provenance=_read_json(classifier / PROVENANCE, "train"),
        evaluation_md5=hashlib.md5((metrics / "evaluation.json").read_bytes(), usedforsecurity=False).hexdigest(),
    )


def _read_rows(raw: Path, split: str, task: Task, of: Predictions) -> Rows:
    """The rows of these predictions: the first of the split, where predict.max_samples is set."""
    rows = read_split(raw, split, "download").slice(0, len(of.labels))
    if not np.array_equal(of.labels, to_numpy(rows["label"])) or not np.array_equal(of.idx, to_numpy(rows["idx"])):
        raise UserError(f'the predictions of {split} are not of the rows in {raw}; run "dvc repro predict"')
    return Rows(
        texts=[rows[column].to_pylist() for column in task.text_columns],
        leakage=to_numpy(rows[LEAKAGE]),
        columns={column: rows[column].to_pylist() for column in task.slice_columns},
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
        baseline: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = {split: baseline.get(split, {}) for split in task.scored}
        return (
            known
            if all(of.get(key) == evaluation[split][key] for split, of in known.items() for key in of_data)
            else None
        )
    except (OSError, ValueError, AttributeError):
        raise UserError(f"{path} is not an evaluation.json; replace it with that of the run to compare with") from None


def never_predicted(predictions: Predictions, classes: int) -> list[tuple[int, int]]:
    """Return the classes or labels that examples have and the model never predicts, with the number of examples."""
    if predictions.probability is None:
        return []
    actual, predicted = (
        values.sum(axis=0) if values.ndim == 2 else np.bincount(values, minlength=classes)
        for values in (predictions.labels, predictions.predicted)
    )
    return [(int(label), int(actual[label])) for label in np.flatnonzero((actual > 0) & (predicted == 0))]
