"""The training curves: the losses and scores of each epoch, and findings about them in words."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from pipeline.evaluation.metrics import SCORES

LOSSES = {
    "single_label_classification": "cross-entropy (nats)",
    "multi_label_classification": "binary cross-entropy (nats)",
    "regression": "squared error",
}

# The smallest gain of a score, from 0 to 1, that counts. One of MRPC's 408 validation pairs moves accuracy by 0.25
# points, so half a point is two pairs.
_MIN_GAIN = 0.005
# The same for an error or the loss, in proportion to its lowest value, and the smallest rise that can be overfitting.
_MIN_RELATIVE_GAIN = 0.02
_MIN_LOSS_INCREASE = 0.05


class Finding(NamedTuple):
    """A finding about the curves.

    Attributes:
        name: The name of the finding, such as "Still improving".
        text: Sentences with the evidence and the advice.
    """

    name: str
    text: str


def epochs(history: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of history.csv for validation, one for each epoch, indexed by its number from 1.

    The additional column "train_loss" is the mean of the losses logged during the epoch, or NaN if none were logged.
    """
    is_train = history["split"] == "train"
    train, validated = history[is_train], history[~is_train]
    train_losses = train["loss"].groupby(np.ceil(train["epoch"])).mean()
    return validated.set_index(validated["epoch"].round().astype(int)).assign(train_loss=train_losses)


def describe_curves(epochs: pd.DataFrame, name: str, planned: int, degenerate: bool) -> list[Finding]:
    """Return the findings about the curves.

    - Constant predictions: The kept model gives the same prediction for every validation example. Only "Stopped early"
      can follow.
    - Too short: There is only one epoch.
    - Overfitting from epoch n: The validation loss is lowest after epoch n - 1 and ends more than 5% above that value,
      while the training loss falls.
    - Still improving: The last epoch has the best score, by more than 0.5 points, and the lowest validation loss.
    - Leveled off: None of these.
    - Stopped early: Fewer epochs ran than were planned. This finding comes in addition to another one.

    If the score is an error or the loss, a gain is measured in proportion to its lowest value: 2% instead of 0.5
    points.

    Args:
        epochs: The epochs that ran, at least one.
        name: The metric by which the epoch was chosen, or "loss".
        planned: The number of epochs that were planned.
        degenerate: Whether the kept model gives the same prediction for every validation example.
    """
    if degenerate:
        text = (
            "The kept model gives the same prediction for every validation example, so its scores mean nothing. Try "
            "another learning rate, more epochs or another seed."
        )
        findings = [Finding("Constant predictions", text)]
    elif len(epochs) == 1:
        findings = [Finding("Too short", "A single epoch shows no trend. Train for more epochs to see one.")]
    else:
        findings = [_overfitting(epochs) or _still_improving(epochs, name) or _leveled_off(epochs, name)]
    if len(epochs) < planned:
        text = (
            f"Early stopping ended the training after epoch {len(epochs)} of {planned}, because the validation "
            f"{SCORES[name].title} had not improved since epoch {_best(epochs, name).name}. To train longer, raise "
            "train.early_stopping_patience."
        )
        findings.append(Finding("Stopped early", text))
    return findings


def _overfitting(epochs: pd.DataFrame) -> Finding | None:
    last, best = epochs.iloc[-1], _best(epochs, "loss")
    still_learning = last.train_loss < best.train_loss  # False if one of them was not logged
    if not still_learning or last.loss <= best.loss * (1 + _MIN_LOSS_INCREASE):
        return None
    show = SCORES["loss"].format
    text = (
        f"After epoch {best.name}, the validation loss rises from {show(best.loss)} to {show(last.loss)}, while the "
        f"training loss falls from {show(best.train_loss)} to {show(last.train_loss)}. Train for fewer epochs, or add "
        "training data."
    )
    return Finding(f"Overfitting from epoch {best.name + 1}", text)


def _still_improving(epochs: pd.DataFrame, name: str) -> Finding | None:
    last, best = epochs.iloc[-1], _best(epochs[:-1], name)[name]
    gain = SCORES[name].sign * (last[name] - best)
    smallest_gain = _MIN_RELATIVE_GAIN * best if SCORES[name].is_error else _MIN_GAIN
    if gain <= smallest_gain or _best(epochs, "loss").name != last.name:
        return None
    lead = f"{SCORES[name].format(gain)}{'' if SCORES[name].is_error else ' points'}"
    text = (
        f"The last epoch ({last.name}) has the best validation {SCORES[name].title}, by {lead}"
        f"{'' if name == 'loss' else ', and the lowest validation loss'}. More epochs may improve the model further."
    )
    return Finding("Still improving", text)


def _leveled_off(epochs: pd.DataFrame, name: str) -> Finding:
    best, last = _best(epochs, name), epochs.iloc[-1]
    best_score, last_score = (
        f"{SCORES[name].format(epoch[name])}{'' if SCORES[name].is_error else '%'}" for epoch in (best, last)
    )
    metric = f"The validation {SCORES[name].title}"
    if best.name == last.name:
        trend = f"{metric} is best after the last of {last.name} epochs ({best_score})."
    else:
        trend = f"{metric} is best after epoch {best.name} of {last.name} ({best_score}), and ends at {last_score}."
    return Finding("Leveled off", f"{trend} More epochs will probably not help much.")


def _best(epochs: pd.DataFrame, name: str) -> pd.Series:
    return epochs.loc[(SCORES[name].sign * epochs[name]).idxmax()]
