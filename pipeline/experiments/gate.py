"""Verdicts that a script can act on: is a candidate better than the baseline, or as good but for a margin?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.evaluation.metrics import METRICS, Values
from pipeline.evaluation.uncertainty import Difference, holm, paired_differences
from pipeline.experiments.comparison import Comparison, Contrast

Outcome = Literal["better", "equivalent", "not worse", "undecided", "worse"]
STATUS: dict[Outcome, int] = {"better": 0, "equivalent": 0, "not worse": 0, "undecided": 3, "worse": 4}
_LEVEL = 0.05
_MOST_RUNS = 100


@dataclass(frozen=True)
class Decision:
    """What is known of a candidate, on the split and in the metric on which verdicts rest.

    outcome: better; equivalent, within the margin on both sides; not worse, by the margin or more; worse; undecided.
    p: of no difference, two-sided. p_worse: of a loss by the margin or more. Both are adjusted for the number of
    candidates. runs: a side, that would settle it in four of five cases if the true difference is that which was
    found; None where 100 would not, and for two single runs, which cannot tell.
    """

    outcome: Outcome
    p: float
    p_worse: float
    runs: int | None


def decide(comparisons: Sequence[Comparison], margin: float) -> list[Decision]:
    """Judge several candidates against one baseline. margin: in points, or of an error in its units.

    The chance that any of them is wrongly called better, worse or no worse is 5 % (Holm 1979); equivalence is two
    one-sided tests (Schuirmann 1987).
    """
    name = comparisons[0].task.metrics[0]
    gains = [_gain(name, _judged(of).difference[name]) for of in comparisons]
    return _decide(gains, [_judged(of).p or 0.0 for of in comparisons], _as_share(name, margin))


def judge(name: str, labels: Values, a: Values, b: Values, margin: float) -> Outcome:
    """Judge the predictions of one run by those of another, in one metric. a, b: shape (1, n) or (1, n, labels)."""
    found = paired_differences([name], labels, a, b, same_seeds=False)[name]
    [decision] = _decide([_gain(name, found)], [0.0], _as_share(name, margin))
    return decision.outcome


def _as_share(name: str, margin: float) -> float:
    return margin if METRICS[name].kind == "error" else margin / 100


def _gain(name: str, difference: Difference) -> Difference:
    """Above 0 where B is better."""
    return replace(difference, value=METRICS[name].sign * difference.value)


def _decide(gains: Sequence[Difference], tested: Sequence[float], margin: float) -> list[Decision]:
    """tested: p-values of further tests of no difference, which must agree."""
    different = [
        max(min(1.0, 2 * replace(gain, value=abs(gain.value)).p(0)), p) for gain, p in zip(gains, tested, strict=True)
    ]
    worse = [gain.p(-margin) for gain in gains]
    more = [replace(gain, value=-gain.value).p(-margin) for gain in gains]
    return [
        Decision(_outcome(gain, *of), p=of[0], p_worse=of[1], runs=_runs_to_settle(gain, margin))
        for gain, *of in zip(gains, *map(holm, (different, worse, more)), strict=True)
    ]


def _judged(comparison: Comparison) -> Contrast:
    return comparison.splits[comparison.task.verdict_split]


def _outcome(gain: Difference, different: float, worse: float, more: float) -> Outcome:
    if different < _LEVEL and gain.value > 0:
        return "better"
    if worse < _LEVEL:
        return "equivalent" if more < _LEVEL else "not worse"
    return "worse" if different < _LEVEL else "undecided"


def _runs_to_settle(gain: Difference, margin: float) -> int | None:
    """With so many, either the difference is seen, or that it is not a loss by the margin."""
    if gain.runs == 1:
        return None
    for runs in range(gain.runs, _MOST_RUNS + 1):
        power = gain.reach(0.8, runs)
        sees = gain.reach(0.975, runs) + power <= abs(gain.value)
        if sees or gain.reach(0.95, runs) + power <= gain.value + margin:
            return runs
    return None
