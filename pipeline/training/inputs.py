"""What a training run is given and what it leaves, whichever engine runs it."""

from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from pipeline.core.messages import log
from pipeline.core.tables import read_split
from pipeline.core.timing import Stopwatch
from pipeline.evaluation.metrics import cross_entropy, paraphrase_metric
from pipeline.modeling.batching import longest_first
from pipeline.modeling.loading import load_classifier, load_tokenizer
from pipeline.params import TrainParams


@dataclass(frozen=True)
class TrainInputs:
    """The pairs, validation's longest first; the pretrained model under a new head; its tokenizer."""

    training: Dataset
    validation: Dataset
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_inputs(tokenized: Path, pretrained: Path, params: TrainParams) -> TrainInputs:
    """Read the tokenized pairs and the pretrained model. Raises UserError where one of them does not load."""
    training = read_split(tokenized, "train", "tokenize").remove_columns("idx")
    if params.max_train_samples is not None:
        training = training.select(range(min(params.max_train_samples, len(training))))
    validation = longest_first(read_split(tokenized, "validation", "tokenize").remove_columns("idx"))
    names = training.features["labels"].names
    set_seed(params.seed)  # before the model: its new head is drawn at random
    model = load_classifier(
        pretrained,
        id2label=dict(enumerate(names)),
        label2id={name: label for label, name in enumerate(names)},
    )
    return TrainInputs(training, validation, model, load_tokenizer(pretrained))


def validation_scores(logits: "np.ndarray[Any, Any]", labels: "np.ndarray[Any, Any]") -> dict[str, float]:
    """Accuracy, F1, loss, and how many `classes` were given. logits: shape (n, 2). labels: shape (n,)."""
    predictions = logits.argmax(-1)
    scores = paraphrase_metric().compute(predictions=predictions, references=labels)
    # The loss too: Trainer's own mean weighs every batch alike, however few pairs it has.
    return {**scores, "loss": cross_entropy(logits, labels), "classes": len(set(predictions.tolist()))}


def log_epoch(history: list[dict[str, Any]], epochs: int) -> None:
    """Tell of the epoch whose scores are the last entry of `history`, named as in Trainer's log.

    Its train loss is the mean of what was logged in it, as in the report.
    """
    *before, scores = history
    losses = [entry["loss"] for entry in takewhile(lambda entry: "loss" in entry, reversed(before))]
    log.info(
        "epoch %d/%d: train loss %s, validation loss %.4f, accuracy %.4f, f1 %.4f",
        round(scores["epoch"]), epochs, f"{sum(losses) / len(losses):.4f}" if losses else "-",
        scores["eval_loss"], scores["eval_accuracy"], scores["eval_f1"],
    )  # fmt: skip


@dataclass(frozen=True)
class TrainResult:
    """What a run leaves.

    weights: of the whole model, also where each process held a part of it. history: an entry for each logged step and
    each scoring of validation, named as in Trainer's log. train_loss: mean over all steps.
    """

    weights: dict[str, Any]
    history: list[dict[str, Any]]
    train_loss: float
    watch: Stopwatch
