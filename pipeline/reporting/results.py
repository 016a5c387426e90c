"""The results that the report shows: what the other stages wrote, read and checked."""

import csv
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.details import parse_details
from pipeline.core.messages import UserError
from pipeline.core.paths import require
from pipeline.core.task import Task, read_task
from pipeline.evaluation.metrics import Ints
from pipeline.evaluation.predictions import Predictions, load_predictions

# By the stage that writes them.
_DETAILS = {"evaluate": ("diagnostics", "intervals"), "train": ("environment", "train")}
_PLOTS = {"evaluate": ("precision_recall", "reliability", "roc"), "train": ("history",)}


@dataclass(frozen=True)
class Pairs:
    """The n pairs of a split: their sentences, and their labels, shape (n,)."""

    first: list[str]
    second: list[str]
    labels: Ints

    def first_of(self, n: int) -> "Pairs":
        """The first n pairs."""
        return Pairs(self.first[:n], self.second[:n], self.labels[:n])


@dataclass(frozen=True)
class Results:
    """The data, the predictions, and the content of the files that the report shows.

    pairs: of every split. predictions: of the scored splits, or of their first pairs.
    metrics: JSON files by name. plots: rows of CSV files by name, each row text by column. baseline: an earlier
    evaluation.json, None where it is of other pairs. lengths: of the tokenized pairs. provenance: data, checkpoint,
    parameters and environment.
    evaluation_md5: of evaluation.json, as DVC records it in dvc.lock.
    """

    task: Task
    pairs: dict[str, Pairs]
    predictions: dict[str, Predictions]
    metrics: dict[str, dict[str, Any]]
    plots: dict[str, list[dict[str, str]]]
    baseline: dict[str, Any] | None
    lengths: dict[str, Any]
    provenance: dict[str, Any]
    evaluation_md5: str


def load_results(raw: Path, tokenized: Path, classifier: Path, predictions: Path, metrics: Path) -> Results:
    """Read the outputs of the other stages. Raises UserError where one is missing or does not fit the others."""
    from pipeline.core.tables import read_split, to_numpy

    task = read_task(raw, "download")
    tables = {split: read_split(raw, split, "download") for split in task.splits}
    pairs = {split: Pairs(*_sentences(of, task), to_numpy(of["label"])) for split, of in tables.items()}
    predicted = {split: load_predictions(predictions, split, task) for split in task.scored}
    for split in task.scored:
        labels = predicted[split].labels  # of the first pairs alone, where predict.max_samples is set
        if not np.array_equal(labels, pairs[split].labels[: len(labels)]):
            raise UserError(f'{predictions / split}.parquet is not of the pairs in {raw}; run "dvc repro predict"')
    content = {"evaluation": _read_json(metrics / "evaluation.json", "evaluate")} | {
        name: _read_details(metrics / f"{name}.json", stage) for stage, names in _DETAILS.items() for name in names
    }
    plots = {
        name: _read_csv(metrics / "plots" / f"{name}.csv", stage) for stage, names in _PLOTS.items() for name in names
    }
    return Results(
        task=task,
        pairs=pairs,
        predictions=predicted,
        metrics=content,
        plots=plots,
        baseline=_read_baseline(metrics / "baseline.json", content["evaluation"], task),
        lengths=_read_json(tokenized / "lengths.json", "tokenize"),
        provenance=_read_json(classifier / "provenance.json", "train"),
        evaluation_md5=hashlib.md5((metrics / "evaluation.json").read_bytes(), usedforsecurity=False).hexdigest(),
    )


def _sentences(rows: Any, task: Task) -> tuple[list[str], list[str]]:
    first, second = (rows[column].to_pylist() for column in task.text_columns)
    return first, second


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
        same = all(baseline[split][key] == evaluation[split][key] for split in task.scored for key in of_data)
        return baseline if same else None
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(f"{path} is not an evaluation.json; replace it with that of the run to compare with") from None
