"""The learning curves: losses and scores of each epoch, and a verdict on them in words."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from pipeline.evaluation.metrics import SCORES

LOSSES = {
    "single_label_classification": "cross-entropy (nats)",
    "multi_label_classification": "binary cross-entropy (nats)",
    "regression": "squared error",
}

# What counts as a change of a proportion or a correlation. One of MRPC's 408 validation pairs moves accuracy by 0.25
# points: half a point is a pair or two, and two points are more than a few hard pairs that flip.
_GAIN = 0.005
_SWING = 0.02
# The same for an error or the loss, as a proportion of its lowest value.
_GAIN_ERROR = 0.02
_SWING_ERROR = 0.1
_RISE_LOSS = 0.05


class Epoch(NamedTuple):
    """An epoch that ran.

    Attributes:
        number: counts from 1.
        train_loss: the mean of the losses that were logged in it; None if there are none.
        scores: the metrics and the `loss` on validation after it.
    """

    number: int
    train_loss: float | None
    scores: dict[str, float]


class CurveVerdict(NamedTuple):
    """A verdict on the curves in a word or two, and the numbers behind it."""

    name: str
    text: str


def epochs(history: Iterable[Mapping[str, str]], names: Iterable[str]) -> list[Epoch]:
    """Read the epochs from the rows of history.csv, each as text by column. names: the metrics to take."""
    train_losses = defaultdict(list)
    validated = []
    for row in history:
        if row["split"] == "train":
            train_losses[math.ceil(float(row["epoch"]))].append(float(row["loss"]))
        else:
            scores = {name: float(row[name]) for name in ("loss", *names)}
            validated.append((round(float(row["epoch"])), scores))
    return [
        Epoch(number, fmean(train_losses[number]) if number in train_losses else None, scores)
        for number, scores in validated
    ]


def judge(
    epochs: Sequence[Epoch], name: str, planned: int, degenerate: bool, examples: str = "", error: float = 0
) -> list[CurveVerdict]:
    """Judge the curves.

    - One answer: the kept model predicts the same for all of validation. The curves are not judged.
    - Too short: there is only one epoch.
    - Overfitting from epoch n: validation loss is lowest after epoch n - 1 and ends more than 5% above that, while
      train loss falls. "Perhaps" if the rise is less than two standard errors: other examples might show no rise.
    - Still improving: the last epoch has the best score, by more than 0.5 points, and the lowest validation loss.
    - Erratic: from one epoch to the next, the score gets worse by more than 2 points, and later better by more than
      that; or validation loss rises by more than a tenth of its lowest value, and later falls by more than that.
    - Levelled off: none of these.
    - Stopped early: fewer epochs ran than were planned. This comes in addition to another verdict.

    An error or the loss changes by a proportion of its lowest value instead: 2% instead of 0.5 points, and 10%
    instead of 2 points.

    Args:
        epochs: the epochs that ran.
        name: the metric that chose the epoch, or the loss.
        planned: the number of epochs that were to run.
        degenerate: whether the kept model predicts the same for all of validation.
        examples: how many examples validation has, as "408 pairs".
        error: the standard error of the mean validation loss.
    """
    if degenerate:
        verdicts = [CurveVerdict("One answer", "The kept model predicts the same for all of validation.")]
    elif len(epochs) == 1:
        verdicts = [CurveVerdict("Too short", "One epoch says nothing about where the curves go.")]
    else:
        verdicts = [*_overfitting(epochs, examples, error), *_still_improving(epochs, name), *_erratic(epochs, name)]
        verdicts = verdicts or [_levelled_off(epochs, name)]
    return [*verdicts, *_stopped_early(epochs, name, planned)]


def _overfitting(epochs: Sequence[Epoch], examples: str, error: float) -> list[CurveVerdict]:
    last, best = epochs[-1], _best(epochs, "loss")
    still_learning = best.train_loss is not None and last.train_loss is not None and last.train_loss < best.train_loss
    if not still_learning or last.scores["loss"] <= best.scores["loss"] * (1 + _RISE_LOSS):
        return []
    rise = last.scores["loss"] - best.scores["loss"]
    doubtful = rise < 2 * error
    text = (
        f"Validation loss is lowest after epoch {best.number}, {best.scores['loss']:.3f}, and ends at "
        f"{last.scores['loss']:.3f}, while train loss falls from {best.train_loss:.3f} to {last.train_loss:.3f}. "
        f"The rise of {rise:.3f} is {'less' if doubtful else 'more'} than two standard errors of a mean loss over "
        f"{examples or 'these examples'} ({error:.3f} each){', so it may be chance' if doubtful else ''}."
    )
    return [CurveVerdict(f"{'Perhaps overfitting' if doubtful else 'Overfitting'} from epoch {best.number + 1}", text)]


def _still_improving(epochs: Sequence[Epoch], name: str) -> list[CurveVerdict]:
    *earlier, last = epochs
    gain = SCORES[name].sign * (last.scores[name] - _best(earlier, name).scores[name])
    if gain <= _change(earlier, name, _GAIN, _GAIN_ERROR) or _best(epochs, "loss") is not last:
        return []
    by = f"{gain:.3f}" if _is_error(name) else f"{100 * gain:.1f} points"
    text = (
        f"The last epoch, {last.number}, has the best validation {SCORES[name].title}, by {by}"
        f"{'' if name == 'loss' else ', and the lowest validation loss'}: more epochs may give more."
    )
    return [CurveVerdict("Still improving", text)]


def _erratic(epochs: Sequence[Epoch], name: str) -> list[CurveVerdict]:
    swings = []
    if name != "loss" and _swings(epochs, name):
        much = "a tenth" if _is_error(name) else "2 points"
        swings.append(f"validation {SCORES[name].title} gets worse and better by more than {much} from epoch to epoch")
    if _swings(epochs, "loss"):
        swings.append("validation loss rises and falls by more than a tenth")
    if not swings:
        return []
    text = " and ".join(swings).replace("validation", "Validation", 1)
    return [CurveVerdict("Erratic", f"{text}: a lower learning rate or a longer warm-up may help.")]


def _swings(epochs: Sequence[Epoch], name: str) -> bool:
    """Return whether the score gets much worse and later much better."""
    much = _change(epochs, name, _SWING, _SWING_ERROR)
    steps = [SCORES[name].sign * (after.scores[name] - before.scores[name]) for before, after in pairwise(epochs)]
    first_fall = next((number for number, step in enumerate(steps) if step < -much), len(steps))
    return any(step > much for step in steps[first_fall:])


def _levelled_off(epochs: Sequence[Epoch], name: str) -> CurveVerdict:
    best, last = _best(epochs, name), epochs[-1]
    best_score, last_score = (SCORES[name].format(epoch.scores[name]) for epoch in (best, last))
    text = (
        f"Validation {SCORES[name].title} is best after epoch {best.number}, {best_score}, and ends at {last_score}; "
        "validation loss neither climbs nor swings."
    )
    return CurveVerdict("Levelled off", text)


def _stopped_early(epochs: Sequence[Epoch], name: str, planned: int) -> list[CurveVerdict]:
    if len(epochs) >= planned:
        return []
    best = _best(epochs, name).number
    ended = f"Training ended after epoch {len(epochs)} of {planned}"
    text = f"{ended}: validation {SCORES[name].title} was best after epoch {best}."
    return [CurveVerdict("Stopped early", text)]


def _best(epochs: Sequence[Epoch], name: str) -> Epoch:
    return max(epochs, key=lambda epoch: SCORES[name].sign * epoch.scores[name])


def _is_error(name: str) -> bool:
    return SCORES[name].scale == "error"


def _change(epochs: Sequence[Epoch], name: str, difference: float, proportion: float) -> float:
    """Return what counts as a change: a difference in a score, or a proportion of the lowest value of an error."""
    return proportion * _best(epochs, name).scores[name] if _is_error(name) else difference
