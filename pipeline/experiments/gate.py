"""The gate, a verdict for scripts: is B at least as good as A, up to a margin?"""

from typing import Literal, NamedTuple

from pipeline.evaluation.uncertainty import MIN_CHANGED
from pipeline.experiments.comparison import Comparison

Outcome = Literal["passes", "undecided", "fails"]
STATUS: dict[Outcome, int] = {"passes": 0, "undecided": 3, "fails": 4}


class Decision(NamedTuple):
    """The outcome for B, and its reason, which completes the sentence "The gate passes B: ..."."""

    outcome: Outcome
    reason: str


def decide(comparison: Comparison, margin: float) -> Decision:
    """Judge B by the 95% confidence interval of the difference that the verdict is about.

    Args:
        margin: The smallest drop to reject, in points, or in the units of an error.
    """
    metric, changed = comparison.metric, comparison.verdict_comparison.changed
    low, high = comparison.difference.low, comparison.difference.high
    if metric.sign < 0:  # Lower is better, so the gain is minus the difference.
        low, high = -high, -low
    smallest_rejected_drop = margin if metric.is_error else margin / 100
    unit = " point" if margin == 1 else " points"
    if metric.is_error:
        unit = ""
    drop = f"{margin:g}{unit} or more"
    if comparison.identical:
        return Decision("passes", "its predictions are identical to those of A")
    if changed < MIN_CHANGED:
        counts = f"{changed}, but at least {MIN_CHANGED} are needed"
        return Decision("undecided", f"too few {comparison.task.noun} changed to judge it ({counts})")
    if low > -smallest_rejected_drop:
        return Decision("passes", "it is better" if low > 0 else f"it is not worse by {drop}")
    if high < 0:
        return Decision("fails", "it is worse")
    return Decision("undecided", f"it may be worse by {drop}")
