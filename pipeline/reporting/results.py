"""Read the outputs of the other stages that the report and the model card show."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.core.paths import PROVENANCE, TOKENIZATION, read_json, read_output, read_record
from pipeline.core.task import TRAIN, Task, read_task
from pipeline.evaluation.predictions import Predictions, load_predictions
from pipeline.sources.data_card import DataCard, read_data_card

# What people call the simple models and `Task.constant_baseline`, by their prefix in evaluation.json.
MODEL_TITLES = {
    "linear": "linear model", "frozen": "frozen model", "majority": "majority class", "mean": "mean of train",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Results:
    """The data, the predictions, and the content of the files that the report shows.

    Attributes:
        data_name, split_type: The name of the data for people, and the parameter data.split.type.
        task: The task, with the metrics by which models are compared.
        predictions: The predictions of each scored split, with the one that verdicts are based on first.
        evaluation, diagnostics, training: The content of evaluation.json, diagnostics.json and train.json.
        history: The rows of history.csv.
        tokenization, provenance: The content of these files, in data/tokenized and data/predictions.
    """

    data_name: str
    split_type: str
    task: Task
    card: DataCard
    predictions: dict[str, Predictions]
    evaluation: dict[str, Any]
    diagnostics: dict[str, Any]
    training: dict[str, Any]
    history: pd.DataFrame
    tokenization: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def is_sample(self) -> bool:
        """Whether the model was trained on a random sample of train."""
        size = self.provenance["parameters"]["max_train_samples"]
        return size is not None and size < self.card.splits[TRAIN].rows

    @property
    def split(self) -> str:
        """The split that the report is about: the one that verdicts are based on."""
        return self.task.verdict_split

    @property
    def scored(self) -> Predictions:
        """The predictions of `split`."""
        return self.predictions[self.split]

    @property
    def details(self) -> dict[str, Any]:
        """The diagnostics of `split`."""
        return self.diagnostics[self.split]  # type: ignore[no-any-return]

    @property
    def classes(self) -> pd.DataFrame:
        """The number of examples and the scores of each class or label of `split`."""
        scores = pd.DataFrame(self.details["classes"], self.task.labels, dtype=float)
        return scores[["n", "precision", "recall", "f1"]]

    def simpler_scores(self, split: str, metric: str) -> dict[str, float]:
        """Return the scores of the models that are simpler than the fine-tuned one, by what people call them."""
        scores = {title: self.evaluation[split].get(f"{model}_{metric}") for model, title in MODEL_TITLES.items()}
        return {title: score for title, score in scores.items() if score is not None}


def load_results(raw: Path, tokenized: Path, predictions: Path, metrics: Path, name: str, split_type: str) -> Results:
    """Read the outputs of the other stages. Raises UserError if one is missing or damaged."""
    [diagnostics] = read_record(metrics / "diagnostics.json", tuple[dict[str, Any]])
    [training] = read_record(metrics / "train.json", tuple[dict[str, Any]])
    task = replace(read_task(predictions), metrics=diagnostics["metrics"])
    return Results(
        data_name=name, split_type=split_type, task=task, card=read_data_card(raw),
        predictions={split: load_predictions(predictions, split, task) for split in task.verdict_split_first},
        evaluation=read_json(metrics / "evaluation.json"), diagnostics=diagnostics,
        training=training, provenance=read_json(predictions / PROVENANCE),
        history=read_output(metrics / "plots" / "history.csv", pd.read_csv),
        tokenization=read_json(tokenized / TOKENIZATION),
    )  # fmt: skip
