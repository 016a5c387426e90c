"""The learning curves: losses and scores of each epoch, and a verdict on them in words."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pipeline.evaluation.metrics import METRICS

# What counts as a change, as a share of the scale: of a score, or of the lowest loss or error. One of MRPC's 408
# validation pairs moves accuracy by 0.25 points: half a point is a pair or two, two points are more than a few.
_GAIN = 0.005
_SWING = 0.02
_RISE_LOSS = 0.05
_SWING_LOSS = 0.1


class Epoch(NamedTuple):
    """train_loss: mean of the losses logged in the epoch, None without any. scores: on validation, with `loss`."""

    number: int
    train_loss: float | None
    scores: dict[str, float]


class Chosen(NamedTuple):
    """The metric that chooses the epoch. scale: of what counts as a change; see `_GAIN`."""

    title: str
    sign: int
    values: list[float]
    scale: float
    shown: Callable[[float], str]

    @property
    def best(self) -> int:
        """The index of the best epoch."""
        return max(range(len(self.values)), key=lambda at: self.sign * self.values[at])


class Reading(NamedTuple):
    """A verdict on a curve in a word or two, and the numbers behind it."""

    name: str
    text: str


def epochs(history: Iterable[Mapping[str, str]], metrics: Iterable[str]) -> list[Epoch]:
    """The epochs of `metrics/plots/history.csv`. history: its rows, text by column."""
    rows, names = list(history), ("loss", *metrics)
    logged: dict[int, list[float]] = {}
    for row in rows:
        if row["split"] == "train":
            logged.setdefault(math.ceil(float(row["epoch"])), []).append(float(row["loss"]))
    means = {number: sum(losses) / len(losses) for number, losses in logged.items()}
    return [
        Epoch(number, means.get(number), {name: float(row[name]) for name in names})
        for row in rows
        if row["split"] == "validation"
        for number in [round(float(row["epoch"]))]
    ]


def read(epochs: Sequence[Epoch], metric: str, asked: int, degenerate: bool) -> list[Reading]:
    """Judge the curves. Several verdicts may hold.

    epochs: those that ran; metric: that chooses the epoch, or "loss"; asked: how many were to run.
    One prediction: `degenerate`, the kept model predicts the same for all of validation; the curves are not judged.
    Too short: there is one epoch only.
    Overfitting from epoch n: validation loss is lowest after epoch n - 1 and ends more than 5 % above that, while train
    loss falls.
    Still improving: the last epoch has the best score, by more than 0.5 points, and the lowest validation loss.
    Erratic: from one epoch to the next, the score worsens by more than 2 points, and later improves by more than 2; or
    validation loss rises by more than a tenth of its lowest value, and later falls by more than that.
    Levelled off: none of these.
    Stopped early: fewer epochs ran than were asked for. Comes on top of the others.
    """
    chosen = _chosen(epochs, metric)
    if degenerate:
        found = [Reading("One prediction", "The kept model predicts the same for all of validation.")]
    elif len(epochs) == 1:
        found = [Reading("Too short", "One epoch says nothing about where the curves go.")]
    else:
        found = [*_overfitting(epochs), *_still_improving(epochs, chosen), *_erratic(epochs, chosen)]
        found = found or [_levelled_off(epochs, chosen)]
    return [*found, *_stopped_early(epochs, chosen, asked)]


def _chosen(epochs: Sequence[Epoch], metric: str) -> Chosen:
    values = [epoch.scores[metric] for epoch in epochs]
    if metric == "loss":
        return Chosen("validation loss", -1, values, min(values), "{:.3f}".format)
    of = METRICS[metric]
    return Chosen(f"validation {of.title}", of.sign, values, min(values) if of.kind == "error" else 1, of.shown)


def _overfitting(epochs: Sequence[Epoch]) -> list[Reading]:
    last, best = epochs[-1], min(epochs, key=lambda epoch: epoch.scores["loss"])
    still_learning = best.train_loss is not None and last.train_loss is not None and last.train_loss < best.train_loss
    if not still_learning or last.scores["loss"] <= best.scores["loss"] * (1 + _RISE_LOSS):
        return []
    text = (
        f"Validation loss is lowest after epoch {best.number}, {best.scores['loss']:.3f}, and ends at "
        f"{last.scores['loss']:.3f}, while train loss falls from {best.train_loss:.3f} to {last.train_loss:.3f}."
    )
    return [Reading(f"Overfitting from epoch {best.number + 1}", text)]


def _still_improving(epochs: Sequence[Epoch], chosen: Chosen) -> list[Reading]:
    *earlier, last = (chosen.sign * value for value in chosen.values)
    lowest_loss = epochs[-1].scores["loss"] < min(epoch.scores["loss"] for epoch in epochs[:-1])
    if last - max(earlier) <= _GAIN * chosen.scale or not lowest_loss:
        return []
    text = (
        f"The last epoch, {epochs[-1].number}, has the best {chosen.title}, {chosen.shown(chosen.values[-1])} after "
        f"{chosen.shown(chosen.sign * max(earlier))}, and the lowest validation loss: more epochs may give more."
    )
    return [Reading("Still improving", text)]


def _erratic(epochs: Sequence[Epoch], chosen: Chosen) -> list[Reading]:
    losses = [epoch.scores["loss"] for epoch in epochs]
    swings = []
    if chosen.title != "validation loss" and _falls_and_rises(
        [chosen.sign * value for value in chosen.values], _SWING * chosen.scale
    ):
        by = "2 points" if chosen.scale == 1 else "2 %"
        swings.append(f"{chosen.title} worsens and improves by more than {by} from epoch to epoch")
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


def _levelled_off(epochs: Sequence[Epoch], chosen: Chosen) -> Reading:
    title = chosen.title[0].upper() + chosen.title[1:]
    best = chosen.shown(chosen.values[chosen.best])
    text = (
        f"{title} is best after epoch {epochs[chosen.best].number}, {best}, and ends "
        f"at {chosen.shown(chosen.values[-1])}; validation loss neither climbs nor swings."
    )
    return Reading("Levelled off", text)


def _stopped_early(epochs: Sequence[Epoch], chosen: Chosen, asked: int) -> list[Reading]:
    if len(epochs) >= asked:
        return []
    best = epochs[chosen.best].number
    text = f"Training ended after epoch {len(epochs)} of {asked}: {chosen.title} was best after epoch {best}."
    return [Reading("Stopped early", text)]
