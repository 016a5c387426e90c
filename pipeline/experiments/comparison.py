"""Compare the predictions of two sides, each a run or a group of runs over seeds: differences with their intervals."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.paths import SCORED
from pipeline.core.percent import points
from pipeline.evaluation.metrics import Floats, score
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.uncertainty import SCORES, Difference, mcnemar, paired_differences
from pipeline.experiments.revisions import Run

_SEED = "train.seed"


class Side(NamedTuple):
    """A or B: one run, or a group of them over seeds."""

    name: str
    runs: list[Run]


@dataclass(frozen=True)
class Example:
    """A pair that one side gets right and the other wrong; probabilities are those of its label, means over runs."""

    idx: int
    label: str
    probability_a: float
    probability_b: float
    sentence1: str
    sentence2: str


@dataclass(frozen=True)
class Contrast:
    """One split: scores of both sides (means over runs), B minus A, and the pairs that changed, by B's confidence.

    A group gets a pair right where the probability of its label, the mean over runs, is more than a half.
    """

    n: int
    a: dict[str, float]
    b: dict[str, float]
    difference: dict[str, Difference]
    fixed: list[Example]
    broken: list[Example]
    mcnemar: float | None  # None: groups, for which the test is not defined


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`."""

    a: str
    b: str
    seeds: str | None  # None: two runs
    splits: dict[str, Contrast]
    parameters: dict[str, tuple[Any, Any]]  # those that differ
    environment: dict[str, tuple[Any, Any]]
    code: dict[str, tuple[Any, Any]]  # files by their hashes, the list of packages among them
    better: str | None  # A or B; None: no evidence, or two runs, which cannot tell
    verdict: str
    caveats: list[str]  # sentences that belong to the verdict


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs, or two groups.

    They differ where the interval of the difference in test accuracy excludes 0, and for two runs McNemar's p is below
    0.05: with a handful of changed pairs, the interval alone is too narrow. On test, since validation has chosen the
    epoch and is optimistic. Of two groups that differ, one is better; of two runs, another seed might swap them.
    Raises UserError where the sides were scored on different data, where one is a group and the other a run, and where
    a group is not of one configuration over seeds.
    """
    if min(len(a.runs), len(b.runs)) == 1 < max(len(a.runs), len(b.runs)):
        group, run = (a, b) if len(a.runs) > 1 else (b, a)
        raise UserError(
            f"{group.name} is a group of {len(group.runs)} runs, {run.name} is one run; "
            f"compare it with {group.runs[0].name}, or run it over seeds too (python -m pipeline.seeds)"
        )
    a, b = _by_seed(a), _by_seed(b)
    _require_same_data([*a.runs, *b.runs])
    seeds_a, seeds_b = ([_seed(run) for run in side.runs] for side in (a, b))
    splits = {
        split: _contrast(
            a.runs[0].sentences[split],
            *([run.predictions[split] for run in side.runs] for side in (a, b)),
            same_seeds=seeds_a == seeds_b,
        )
        for split in SCORED
    }
    parameters = _changes(*([run.parameters for run in side.runs] for side in (a, b)))
    environment = _changes(*([run.environment for run in side.runs] for side in (a, b)))
    code = _changes(*([run.code for run in side.runs] for side in (a, b)))
    kinds = {"parameters": parameters, "environment": environment, "code or packages": code}
    differ_in = [kind for kind, changes in kinds.items() if changes]
    groups, higher = len(a.runs) > 1, _higher(splits["test"])
    if _identical(a, b):
        also = f"whatever else differs ({', '.join(differ_in)})" if differ_in else "and so are the parameters"
        verdict, caveats = f"no difference: the predictions are identical, {also}", []
    else:
        verdict, caveats = _verdict(splits["test"], higher), _caveats(differ_in, groups=groups)
    return Comparison(
        a=_title(a),
        b=_title(b),
        seeds=_seeds(seeds_a, seeds_b) if groups else None,
        splits=splits,
        parameters=parameters,
        environment=environment,
        code=code,
        better=higher if groups else None,
        verdict=verdict,
        caveats=caveats,
    )


def _seed(run: Run) -> int:
    return int(run.parameters[_SEED])


def _by_seed(side: Side) -> Side:
    """Sort the runs by seed. Raises UserError where they are not one configuration."""
    ordered = sorted(side.runs, key=_seed)
    if fault := next(_faults(ordered), None):
        raise UserError(
            f'{side.name} is not one configuration over seeds: {fault}; remove what does not belong ("dvc exp remove") '
            'and run "python -m pipeline.seeds" again'
        )
    return Side(side.name, ordered)


def _faults(ordered: list[Run]) -> Iterator[str]:
    for one, two in pairwise(ordered):
        if _seed(one) == _seed(two):
            yield f"{one.name} and {two.name} have one {_SEED}, {_seed(one)}"
        of_one, of_two = (run.parameters | run.environment | run.code for run in (one, two))
        for key, (old, new) in _changes([of_one], [of_two]).items():
            if key != _SEED:
                yield f"{one.name} and {two.name} differ in {key}, {old} and {new}"


def _require_same_data(every: list[Run]) -> None:
    first, *others = every
    for other in others:
        for split in SCORED:
            one, two = first.predictions[split], other.predictions[split]
            for what, same in (
                ("idx", np.array_equal(one.idx, two.idx)),
                ("labels", np.array_equal(one.labels, two.labels)),
                ("sentences", first.sentences[split] == other.sentences[split]),
            ):
                if not same:
                    raise UserError(
                        f"{first.name} and {other.name} were scored on different data: the {what} of {split} differ "
                        f"({len(one.idx)} and {len(two.idx)} pairs); compare runs on the same pairs"
                    )


def _contrast(
    sentences: list[tuple[str, str]], a: list[Predictions], b: list[Predictions], *, same_seeds: bool
) -> Contrast:
    pairs = a[0]  # all runs have scored the same
    predicted_a, predicted_b = (np.stack([run.predicted for run in side]) for side in (a, b))
    of_class_1 = (np.mean([run.probability for run in side], axis=0) for side in (a, b))
    of_label_a, of_label_b = (np.where(pairs.labels == 1, of, 1 - of) for of in of_class_1)
    if len(a) == 1:
        right_a, right_b = (side[0] == pairs.labels for side in (predicted_a, predicted_b))
    else:
        right_a, right_b = of_label_a > 0.5, of_label_b > 0.5

    def examples(changed: NDArray[np.bool_], sureness: Floats) -> list[Example]:
        at = np.flatnonzero(changed)
        return [
            Example(
                idx=int(pairs.idx[i]),
                label=pairs.classes[pairs.labels[i]],
                probability_a=round(float(of_label_a[i]), 6),
                probability_b=round(float(of_label_b[i]), 6),
                sentence1=sentences[i][0],
                sentence2=sentences[i][1],
            )
            for i in at[np.argsort(-sureness[at], kind="stable")]
        ]

    scores_a, scores_b = ([score(pairs.labels, run) for run in side] for side in (predicted_a, predicted_b))
    fixed, broken = examples(~right_a & right_b, of_label_b), examples(right_a & ~right_b, -of_label_b)
    return Contrast(
        n=len(pairs.labels),
        a=_mean(scores_a),
        b=_mean(scores_b),
        difference=paired_differences(pairs.labels, predicted_a, predicted_b, same_seeds=same_seeds),
        fixed=fixed,
        broken=broken,
        mcnemar=mcnemar(len(broken), len(fixed)) if len(a) == len(b) == 1 else None,
    )


def _mean(scores: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([of[name] for of in scores])) for name in SCORES}


def _higher(test: Contrast) -> str | None:
    """The side with the higher test accuracy, A or B; None: no evidence of a difference."""
    accuracy = test.difference["accuracy"]
    if accuracy.low <= 0 <= accuracy.high or (test.mcnemar is not None and test.mcnemar >= 0.05):
        return None
    return "B" if accuracy.value > 0 else "A"


def _verdict(test: Contrast, higher: str | None) -> str:
    accuracy = test.difference["accuracy"]
    found = f"95 % interval {points(accuracy.low, 1)} to {points(accuracy.high, 1)} points"
    if test.mcnemar is not None:
        found += f", McNemar's p = {test.mcnemar:.2g}"
    if higher is None:
        return f"no evidence of a difference: {found}"
    what = "these two models differ" if test.mcnemar is not None else f"B is {'better' if higher == 'B' else 'worse'}"
    return f"{what}: {points(accuracy.value, 1)} points of test accuracy, {found}"


def _caveats(differ_in: list[str], *, groups: bool) -> list[str]:
    caveats = []
    if not groups:
        caveats.append(
            "Two runs say nothing about other seeds. To see which configuration is better, "
            "run each over seeds (python -m pipeline.seeds --n 5 -S key=value), and compare the groups."
        )
    if made_with := [kind for kind in differ_in if kind != "parameters"]:
        caveats.append(f"A and B were not made alike ({', '.join(made_with)}): that may explain the difference.")
    return caveats


def _identical(a: Side, b: Side) -> bool:
    return len(a.runs) == len(b.runs) and all(
        np.array_equal(of_a.predictions[split].probability, of_b.predictions[split].probability)
        for of_a, of_b in zip(a.runs, b.runs, strict=True)
        for split in SCORED
    )


def _changes(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """The entries that differ between two sides; where the runs of a group differ, the list of theirs."""

    def of(side: list[dict[str, Any]], key: str) -> Any:
        values = [entries.get(key, "-") for entries in side]
        return values[0] if all(value == values[0] for value in values) else values

    return {key: (of(a, key), of(b, key)) for key in sorted(set(chain(*a, *b))) if of(a, key) != of(b, key)}


def _title(side: Side) -> str:
    commit = side.runs[0].commit
    if len(side.runs) > 1 or commit is None or commit.startswith(side.name):
        return side.name
    return f"{side.name} ({commit[:7]})"


def _seeds(a: Iterable[int], b: Iterable[int]) -> str:
    of_a, of_b = (", ".join(map(str, seeds)) for seeds in (a, b))
    return f"{of_a} of both, paired" if of_a == of_b else f"{of_a} of A, {of_b} of B, not paired"
