"""The verdict that a script can act on: is a candidate at least as good as the baseline, except for a margin?"""

from typing import Literal, NamedTuple

from pipeline.experiments.comparison import FEWEST_CHANGED, Comparison

Outcome = Literal["passes", "undecided", "fails"]
STATUS: dict[Outcome, int] = {"passes": 0, "undecided": 3, "fails": 4}


class Decision(NamedTuple):
    """The outcome for B, and its reason, which completes the sentence "The gate passes B: ..."."""

    outcome: Outcome
    reason: str


def decide(comparison: Comparison, margin: float) -> Decision:
    """Judge B by the 95% interval of the difference that the verdict is about.

    Args:
        margin: the loss that is accepted, in points, or in the units of an error.
    """
    metric, changed = comparison.metric, comparison.judged.changed
    low, high = comparison.difference.low, comparison.difference.high
    if metric.sign < 0:  # Less is better: the gain is minus the difference.
        low, high = -high, -low
    accepted = margin if metric.scale == "error" else margin / 100
    loss = f"{margin:g}{'' if metric.scale == 'error' else ' points'} or more"
    if comparison.identical:
        return Decision("passes", "its predictions are those of A")
    if changed < FEWEST_CHANGED:
        return Decision("undecided", f"too few {comparison.task.noun} changed to judge it ({changed})")
    if low > -accepted:
        return Decision("passes", "it is better" if low > 0 else f"it does not lose {loss}")
    if high < 0:
        return Decision("fails", "it is worse")
    return Decision("undecided", f"it may lose {loss}")
