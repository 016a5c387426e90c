"""Read the outputs of the other stages that the report shows, and check that they belong together."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.data_card import LEAKAGE, DataCard, read_data_card
from pipeline.core.messages import UserError
from pipeline.core.output import parse_details
from pipeline.core.parquet import read_split, to_numpy
from pipeline.core.paths import PROVENANCE, TOKENIZATION, read_json, read_output, require
from pipeline.core.task import TRAIN, Task, read_task
from pipeline.evaluation.predictions import Predictions, load_predictions

# What people call `Task.constant_baseline`.
BASELINES = {"majority": "majority class of train", "mean": "mean of the labels of train"}
_PLOTS = ("precision_recall", "reliability", "residuals", "roc")


@dataclass(frozen=True, kw_only=True)
class Results:
    """The data, the predictions, and the content of the files that the report shows.

    Attributes:
        data_name: The name of the data, for people.
        split_type: The parameter data.split.type.
        task: The task, with the metrics by which models are compared.
        rows: The text columns, the slice columns and the column `core.data_card.LEAKAGE`, keyed by scored split. A
            missing value of a slice column is an empty text. If predict.max_samples is set, only the first rows.
        predictions: The predictions for these rows, keyed by scored split.
        evaluation, diagnostics, training: The content of evaluation.json, diagnostics.json and train.json in `metrics`.
        history: The rows of history.csv.
        plots: The CSV files that evaluate writes, keyed by the name of the file.
        lengths: Statistics of the tokenized rows, keyed by split.
        tokenization: How the texts were tokenized. The content of tokenization.json.
        provenance: The data, base model, code, parameters and environment of the model.
    """

    data_name: str
    split_type: str
    task: Task
    card: DataCard
    rows: dict[str, pd.DataFrame]
    predictions: dict[str, Predictions]
    evaluation: dict[str, Any]
    diagnostics: dict[str, Any]
    training: dict[str, Any]
    history: pd.DataFrame
    plots: dict[str, pd.DataFrame]
    lengths: dict[str, Any]
    tokenization: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def sample_size(self) -> int | None:
        """The number of rows in the random sample of train that the model learned from. None if it had all rows."""
        size: int | None = self.provenance["parameters"]["max_train_samples"]
        return None if size is None or size >= self.card.splits[TRAIN].rows else size


def load_results(
    raw: Path, tokenized: Path, predictions: Path, metrics: Path, data_name: str, split_type: str
) -> Results:
    """Read the outputs of the other stages.

    Raises:
        UserError: An output is missing or does not fit the others.
    """
    task = read_task(raw, "download")
    predicted = {split: load_predictions(predictions, split, task) for split in task.scored_splits}
    diagnostics = _read_details(metrics / "diagnostics.json", "evaluate")
    task = replace(task, metrics=diagnostics["metrics"])
    return Results(
        data_name=data_name,
        split_type=split_type,
        task=task,
        card=read_data_card(raw),
        rows={split: _read_rows(raw, split, task, predicted[split]) for split in task.scored_splits},
        predictions=predicted,
        evaluation=read_json(metrics / "evaluation.json", "evaluate"),
        diagnostics=diagnostics,
        training=_read_details(metrics / "train.json", "train"),
        history=pd.read_csv(require(metrics / "plots" / "history.csv", "train")),
        plots={name: pd.read_csv(require(metrics / "plots" / f"{name}.csv", "evaluate")) for name in _PLOTS},
        lengths=read_json(tokenized / "lengths.json", "tokenize"),
        tokenization=read_json(tokenized / TOKENIZATION, "tokenize"),
        provenance=read_json(predictions / PROVENANCE, "predict"),
    )


def _read_rows(raw: Path, split: str, task: Task, predictions: Predictions) -> pd.DataFrame:
    """Read as many rows of a split as there are predictions, and check that both are about the same rows."""
    rows = read_split(raw, split, "download").slice(0, len(predictions.labels))
    same_labels = np.array_equal(predictions.labels, to_numpy(rows["label"]))
    if not same_labels or not np.array_equal(predictions.idx, to_numpy(rows["idx"])):
        raise UserError(f'{raw}/{split}.parquet does not match the predictions of {split}. Run "dvc repro predict".')
    return rows.select([*task.text_columns, *task.slice_columns, LEAKAGE]).to_pandas().fillna("")


def _read_details(path: Path, producer: str) -> dict[str, Any]:
    return read_output(path, producer, lambda file: parse_details(file.read_text(encoding="utf-8")))


def never_predicted(diagnostics: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the classes or labels that the model never predicts, each with the number of examples that have it.

    Classes or labels without examples are not included.

    Args:
        diagnostics: The entry of a split in diagnostics.json.
    """
    classes = enumerate(diagnostics.get("classes", []))
    return [(label, scores["n"]) for label, scores in classes if scores["n"] and scores["precision"] is None]
