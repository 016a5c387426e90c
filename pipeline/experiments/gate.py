"""Verdicts that a script can act on: is a candidate better than the baseline, or as good but for a margin?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from pipeline.evaluation.metrics import METRICS, Values
from pipeline.evaluation.uncertainty import Difference, Turned, holm, paired_differences, turned
from pipeline.experiments.comparison import Comparison

Outcome = Literal["better", "equivalent", "not worse", "undecided", "worse"]
STATUS: dict[Outcome, int] = {"better": 0, "equivalent": 0, "not worse": 0, "undecided": 3, "worse": 4}
_LEVEL = 0.05
_NONE = 1e-9  # of a rate
MOST_RUNS = 100


@dataclass(frozen=True)
class Decision:
    """What is known of a candidate, on the split and in the metric on which verdicts rest.

    outcome: better; equivalent, within the margin on both sides; not worse, by the margin or more; worse; undecided.
    p: under no difference, two-sided. p_worse: under a loss by the margin. Both are adjusted for the number of
    candidates. runs: a side, more than there are, that would settle it in four of five cases if the true difference is
    that which was found; None where 100 would not, and for two single runs, which cannot tell. ruled_out: the smallest
    loss that the rows rule out, as a share, if no answer differs between the sides; else None.
    """

    outcome: Outcome
    p: float
    p_worse: float
    runs: int | None
    ruled_out: float | None


class _Case(NamedTuple):
    """A candidate: what it gains on the baseline, which is above 0 where it is better.

    tested: the p-value of a further test of no difference, which must agree. unseen: the chance that a change by the
    margin shows in no row. Where none shows, there is no variance to test with, and that chance is the p-value.
    n: rows. turned: of two single runs of a classifier.
    """

    gain: Difference
    tested: float
    unseen: float
    n: int
    turned: Turned | None

    @property
    def varies(self) -> bool:
        """Whether any answer differs between the sides."""
        return self.gain.models > 0 or self.gain.seeds > 0

    @property
    def p_different(self) -> float:
        return max(min(1.0, 2 * replace(self.gain, value=abs(self.gain.value)).p(0)), self.tested)

    def p_loss(self, margin: float) -> float:
        return self._p(self.gain.value, margin, self.turned)

    def p_gain(self, margin: float) -> float:
        other_way = self.turned and self.turned._replace(wrong=self.turned.right, right=self.turned.wrong)
        return self._p(-self.gain.value, margin, other_way)

    def _p(self, value: float, margin: float, turned: Turned | None) -> float:
        p = replace(self.gain, value=value).p(-margin) if self.varies else self.unseen
        return max(p, _p_of_counts(turned, margin)) if turned else p

    def ruled_out(self, level: float) -> float | None:
        """The loss whose p-value is `level` if no answer differs, with 0.05 about 3 rows (the rule of three)."""
        if self.varies:
            return None
        unseen = -math.expm1(math.log(level) / self.n)
        return max(unseen, -math.log(level) * self.turned.worth) if self.turned else unseen


def _p_of_counts(turned: Turned, margin: float) -> float:
    """The p-value of a loss by the margin, where so many answers turned wrong and so many right.

    The normal distribution lets up to one such loss in five pass where few answers turn. Here both counts are
    Poisson's, the difference is Skellam's, and the rate at which answers turn right is the most likely one under such a
    loss.
    """
    from scipy.stats import poisson, skellam

    wrong, right = turned.wrong, turned.right
    loss = margin / turned.worth  # in answers, at least
    slope = 2 * loss - wrong - right
    rate = (math.sqrt(slope**2 + 8 * right * loss) - slope) / 4
    return float(skellam.cdf(wrong - right, rate + loss, rate) if rate > _NONE else poisson.cdf(wrong, loss))


def decide(comparisons: Sequence[Comparison], margin: float) -> list[Decision]:
    """Judge several candidates against one baseline. margin: in points, or of an error in its units.

    The chance that any of them is wrongly called better or worse is at most 5 %, and so is the chance that any which
    loses by the margin passes as not worse or equivalent (Holm 1979, for each). Equivalence is two one-sided tests
    (Schuirmann 1987).
    """
    name = comparisons[0].task.metrics[0]
    share = _as_share(name, margin)
    cases = []
    for comparison in comparisons:
        judged = comparison.splits[comparison.task.verdict_split]
        unseen = 0.0 if comparison.identical else _unseen(share, judged.n)
        answers = None if comparison.identical else judged.turned
        cases.append(_Case(_gain(name, judged.difference[name]), judged.p or 0.0, unseen, judged.n, answers))
    return _decide(cases, share)


def judge(name: str, labels: Values, a: Values, b: Values, margin: float) -> Outcome:
    """Judge the predictions of one run by those of another, in one metric. a, b: shape (1, n) or (1, n, labels)."""
    share, n = _as_share(name, margin), len(labels)
    found = paired_differences([name], labels, a, b, same_seeds=False)[name]
    answers = None if "regression" in METRICS[name].of else turned(name, labels, a[0], b[0])
    [decision] = _decide([_Case(_gain(name, found), 0.0, _unseen(share, n), n, answers)], share)
    return decision.outcome


def _as_share(name: str, margin: float) -> float:
    return margin if METRICS[name].kind == "error" else margin / 100


def _unseen(margin: float, n: int) -> float:
    """The chance that a model which errs in `margin` more of all rows does so in none of n."""
    return max(0.0, 1 - margin) ** n


def _gain(name: str, difference: Difference) -> Difference:
    return replace(difference, value=METRICS[name].sign * difference.value)


def _decide(cases: Sequence[_Case], margin: float) -> list[Decision]:
    different = holm([case.p_different for case in cases])
    loss = holm([case.p_loss(margin) for case in cases])
    gain = holm([case.p_gain(margin) for case in cases])
    return [
        Decision(
            _outcome(case.gain, *of),
            p=of[0],
            p_worse=of[1],
            runs=_runs_to_settle(case.gain, margin, len(cases)) if case.varies else None,
            ruled_out=case.ruled_out(_LEVEL / len(cases)),
        )
        for case, *of in zip(cases, different, loss, gain, strict=True)
    ]


def _outcome(found: Difference, different: float, loss: float, gain: float) -> Outcome:
    if different < _LEVEL and found.value > 0:
        return "better"
    if loss < _LEVEL:  # also where a loss is sure, but smaller than the margin
        return "equivalent" if gain < _LEVEL else "not worse"
    return "worse" if different < _LEVEL else "undecided"


def _runs_to_settle(gain: Difference, margin: float, candidates: int) -> int | None:
    """With so many, either the difference is seen, or that it is not a loss by the margin.

    Of several candidates each is held to the strictest of Holm's levels.
    """
    level = _LEVEL / candidates
    if gain.runs == 1:
        return None
    for runs in range(gain.runs + 1, MOST_RUNS + 1):
        power = gain.reach(0.8, runs)
        sees = gain.reach(1 - level / 2, runs) + power <= abs(gain.value)
        if sees or gain.reach(1 - level, runs) + power <= gain.value + margin:
            return runs
    return None
