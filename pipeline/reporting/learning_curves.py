"""The learning curves: losses and scores of each epoch, and a verdict on them in words."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pipeline.core.percent import percent

# What counts as a change. One of MRPC's 408 validation pairs moves accuracy by 0.25 points: half a point is a pair or
# two, and two points are more than a few hard pairs that flip.
_GAIN_F1 = 0.005
_RISE_LOSS = 0.05
_SWING_F1 = 0.02
_SWING_LOSS = 0.1


class Epoch(NamedTuple):
    """train_loss: mean of the losses logged in the epoch, None without any. The rest: on validation after it."""

    number: int
    train_loss: float | None
    validation_loss: float
    accuracy: float
    f1: float


class Reading(NamedTuple):
    """A verdict on a curve in a word or two, and the numbers behind it."""

    name: str
    text: str


def epochs(history: Iterable[Mapping[str, str]]) -> list[Epoch]:
    """The epochs of `metrics/plots/history.csv`. history: its rows, text by column."""
    rows = list(history)
    logged: dict[int, list[float]] = {}
    for row in rows:
        if row["split"] == "train":
            logged.setdefault(math.ceil(float(row["epoch"])), []).append(float(row["loss"]))
    means = {number: sum(losses) / len(losses) for number, losses in logged.items()}
    return [
        Epoch(number, means.get(number), float(row["loss"]), float(row["accuracy"]), float(row["f1"]))
        for row in rows
        if row["split"] == "validation"
        for number in [round(float(row["epoch"]))]
    ]


def read(epochs: Sequence[Epoch], asked: int, degenerate: bool) -> list[Reading]:
    """Judge the curves. epochs: those that ran; asked: how many were to run. Several verdicts may hold.

    One class: `degenerate`, the kept model gives every validation pair the same class; the curves are not judged.
    Too short: there is one epoch only.
    Overfitting from epoch n: validation loss is lowest after epoch n - 1 and ends more than 5 % above that, while train
    loss falls.
    Still improving: the last epoch has the best validation F1, by more than 0.5 points, and the lowest validation loss.
    Erratic: from one epoch to the next, validation F1 falls by more than 2 points, and later rises by more than 2; or
    validation loss rises by more than a tenth of its lowest value, and later falls by more than that.
    Levelled off: none of these.
    Stopped early: fewer epochs ran than were asked for. Comes on top of the others.
    """
    if degenerate:
        found = [Reading("One class", "The kept model gives every validation pair the same class.")]
    elif len(epochs) == 1:
        found = [Reading("Too short", "One epoch says nothing about where the curves go.")]
    else:
        found = [*_overfitting(epochs), *_still_improving(epochs), *_erratic(epochs)] or [_levelled_off(epochs)]
    return [*found, *_stopped_early(epochs, asked)]


def _overfitting(epochs: Sequence[Epoch]) -> list[Reading]:
    last, best = epochs[-1], min(epochs, key=lambda epoch: epoch.validation_loss)
    still_learning = best.train_loss is not None and last.train_loss is not None and last.train_loss < best.train_loss
    if not still_learning or last.validation_loss <= best.validation_loss * (1 + _RISE_LOSS):
        return []
    text = (
        f"Validation loss is lowest after epoch {best.number}, {best.validation_loss:.3f}, and ends at "
        f"{last.validation_loss:.3f}, while train loss falls from {best.train_loss:.3f} to {last.train_loss:.3f}."
    )
    return [Reading(f"Overfitting from epoch {best.number + 1}", text)]


def _still_improving(epochs: Sequence[Epoch]) -> list[Reading]:
    *earlier, last = epochs
    gain = last.f1 - max(epoch.f1 for epoch in earlier)
    if gain <= _GAIN_F1 or last.validation_loss >= min(epoch.validation_loss for epoch in earlier):
        return []
    text = (
        f"The last epoch, {last.number}, has the best validation F1, by {100 * gain:.1f} points, and the lowest "
        "validation loss: more epochs may give more."
    )
    return [Reading("Still improving", text)]


def _erratic(epochs: Sequence[Epoch]) -> list[Reading]:
    losses = [epoch.validation_loss for epoch in epochs]
    swings = []
    if _falls_and_rises([epoch.f1 for epoch in epochs], _SWING_F1):
        swings.append("validation F1 falls and rises by more than 2 points from epoch to epoch")
    if _falls_and_rises([-loss for loss in losses], _SWING_LOSS * min(losses)):
        swings.append("validation loss rises and falls by more than a tenth")
    if not swings:
        return []
    text = " and ".join(swings)
    return [Reading("Erratic", f"{text[0].upper()}{text[1:]}: a lower learning rate or a longer warm-up may help.")]


def _falls_and_rises(values: Sequence[float], swing: float) -> bool:
    steps = [after - before for before, after in pairwise(values)]
    fell = next((at for at, step in enumerate(steps) if step < -swing), len(steps))
    return any(step > swing for step in steps[fell:])


def _levelled_off(epochs: Sequence[Epoch]) -> Reading:
    best, last = max(epochs, key=lambda epoch: epoch.f1), epochs[-1]
    text = (
        f"Validation F1 is best after epoch {best.number}, {percent(best.f1)}, and ends at {percent(last.f1)}; "
        "validation loss neither climbs nor swings."
    )
    return Reading("Levelled off", text)


def _stopped_early(epochs: Sequence[Epoch], asked: int) -> list[Reading]:
    if len(epochs) >= asked:
        return []
    best = max(epochs, key=lambda epoch: epoch.f1)
    text = f"Training ended after epoch {len(epochs)} of {asked}: validation F1 was best after epoch {best.number}."
    return [Reading("Stopped early", text)]
