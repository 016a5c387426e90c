"""Compare the predictions of two sides, each a run or a group of runs over seeds: differences with their intervals."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluation.metrics import METRICS, Floats, Values, compared_by
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.signature import Signature, joined
from pipeline.evaluation.uncertainty import Difference, difference, jackknife
from pipeline.experiments.identity import SEED
from pipeline.experiments.revisions import Run

# With fewer changed examples, an interval may be too narrow: see tests/test_uncertainty.py.
FEWEST_CHANGED = 10
OPTIMISTIC = (
    "There are no test labels: this rests on validation. The epoch is chosen on validation too, so its scores are "
    "slightly optimistic."
)


class Side(NamedTuple):
    """A or B: one run, or a group of them over seeds."""

    name: str
    runs: list[Run]


@dataclass(frozen=True)
class Example:
    """A row that changed between A and B.

    a, b: the probability of its label, of several labels that of exactly these; of a regression the prediction. Means
    over runs.
    """

    idx: int
    label: str
    a: float
    b: float
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Contrast:
    """One split: scores of both sides (means over runs), B minus A, and the rows that changed.

    fixed, broken: those that only B, or only A, gets right, by B's confidence; a group where the mean probability over
    runs does. Of a regression: those whose prediction is closer to the label, or further from it, in B; furthest first.
    changed: how many rows the two sides answer differently, on average over runs.
    """

    n: int
    a: dict[str, float]
    b: dict[str, float]
    difference: dict[str, Difference]
    fixed: list[Example]
    broken: list[Example]
    changed: int


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`."""

    a: str
    b: str
    signatures: tuple[Signature, Signature]  # of A and of B
    task: Task
    seeds: str | None  # None: two runs
    splits: dict[str, Contrast]
    parameters: dict[str, tuple[Any, Any]]  # those that differ
    environment: dict[str, tuple[Any, Any]]
    code: dict[str, tuple[Any, Any]]  # files by their hashes, the list of packages among them
    better: str | None  # A or B; None: no evidence, or two runs, which cannot tell
    verdict: str
    identical: bool  # the outputs of the models, to the last bit
    degenerate: list[str]  # of each side that has such runs, their names
    caveats: list[str]  # sentences that belong to the verdict


def judged_by(run: Run, metrics: list[str] | None) -> Run:
    """The run with other metrics to compare it by, see `metrics.compared_by`."""
    task = compared_by(run.task, metrics)
    return run._replace(task=task, signature={**run.signature, "metrics": "+".join(task.metrics)})


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs, or two groups.

    They differ if the interval of the difference in the task's first metric excludes 0, and at least FEWEST_CHANGED
    rows changed. This is judged on test, since validation has chosen the epoch and is optimistic; on validation if the
    labels of test are not known. If two groups differ, one is better; with two runs, another seed might swap them.
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
    task = a.runs[0].task
    seeds_a, seeds_b = ([_seed(run) for run in side.runs] for side in (a, b))
    splits = {
        split: _contrast(
            task,
            a.runs[0].texts[split],
            *([run.predictions[split] for run in side.runs] for side in (a, b)),
            same_seeds=seeds_a == seeds_b,
        )
        for split in task.scored
    }
    parameters = _changes(*([run.parameters for run in side.runs] for side in (a, b)))
    environment = _changes(*([run.environment for run in side.runs] for side in (a, b)))
    code = _changes(*([run.code for run in side.runs] for side in (a, b)))
    kinds = {"parameters": parameters, "environment": environment, "code or packages": code}
    differ_in = [kind for kind, changes in kinds.items() if changes]
    judged = splits[task.verdict_split]
    groups, better = len(a.runs) > 1, _better(task, judged)
    if identical := _identical(a, b):
        also = f"whatever else differs ({', '.join(differ_in)})" if differ_in else "and so are the parameters"
        verdict, caveats = f"no difference: the predictions are identical, {also}", []
    else:
        verdict = _verdict(task, judged, better, groups=groups)
        caveats = _caveats(task, differ_in, groups=groups)
    degenerate = [text for side in (a, b) if (text := _degenerate(side, task))]
    return Comparison(
        a=_title(a),
        b=_title(b),
        signatures=(_signature(a), _signature(b)),
        task=task,
        seeds=_seeds(seeds_a, seeds_b) if groups else None,
        splits=splits,
        parameters=parameters,
        environment=environment,
        code=code,
        better=better if groups else None,
        verdict=verdict,
        identical=identical,
        degenerate=degenerate,
        caveats=[*caveats, *(f"Warning: {text}." for text in degenerate)],
    )


def _seed(run: Run) -> int:
    return int(run.parameters[SEED])


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
            yield f"{one.name} and {two.name} have one {SEED}, {_seed(one)}"
        of_one, of_two = (run.parameters | run.environment | run.code for run in (one, two))
        for key, (old, new) in _changes([of_one], [of_two]).items():
            if key != SEED:
                yield f"{one.name} and {two.name} differ in {key}, {old} and {new}"


def _require_same_data(every: list[Run]) -> None:
    first, *others = every
    for other in others:
        if first.task != other.task:
            raise UserError(
                f"{first.name} and {other.name} are of different tasks: {_differing(first.task, other.task)}; "
                "compare runs of the same task"
            )
        for split in first.task.scored:
            one, two = first.predictions[split], other.predictions[split]
            for what, same in (
                ("idx", np.array_equal(one.idx, two.idx)),
                ("labels", np.array_equal(one.labels, two.labels)),
                ("texts", first.texts[split] == other.texts[split]),
            ):
                if not same:
                    raise UserError(
                        f"{first.name} and {other.name} were scored on different data: the {what} of {split} differ "
                        f"({len(one.idx)} and {len(two.idx)} {first.task.noun}); compare runs on the same rows"
                    )


def _differing(one: Task, other: Task) -> str:
    of_one, of_other = asdict(one), asdict(other)
    return ", ".join(f"{key} {of_one[key]} and {of_other[key]}" for key in of_one if of_one[key] != of_other[key])


def _contrast(
    task: Task, texts: list[tuple[str, ...]], a: list[Predictions], b: list[Predictions], *, same_seeds: bool
) -> Contrast:
    rows = a[0]  # all runs have scored the same
    (good_a, shown_a), (good_b, shown_b) = (_judged(task, side) for side in (a, b))
    sureness = good_b - good_a if task.problem_type == "regression" else shown_b

    def examples(changed: NDArray[np.bool_], sureness: Floats) -> list[Example]:
        at = np.flatnonzero(changed)
        return [
            Example(
                idx=int(rows.idx[i]),
                label=_label(task, rows.labels[i]),
                a=round(float(shown_a[i]), 6),
                b=round(float(shown_b[i]), 6),
                texts=texts[i],
            )
            for i in at[np.argsort(-sureness[at], kind="stable")]
        ]

    sides = {
        name: [
            np.stack([jackknife(name, run.labels, run.predicted, run.probability) for run in side]) for side in (a, b)
        ]
        for name in task.metrics
    }
    correct_a, correct_b = (np.mean([run.labels == run.predicted for run in side], axis=0) for side in (a, b))
    changed = (correct_a != correct_b).reshape(len(rows.labels), -1).any(axis=1)
    return Contrast(
        n=len(rows.labels),
        a={name: float(jackknives[:, 0].mean()) for name, (jackknives, _) in sides.items()},
        b={name: float(jackknives[:, 0].mean()) for name, (_, jackknives) in sides.items()},
        difference={name: difference(*both, same_seeds=same_seeds) for name, both in sides.items()},
        fixed=examples(good_b > good_a, sureness),
        broken=examples(good_b < good_a, -sureness),
        changed=len(rows.labels) if task.problem_type == "regression" else int(changed.sum()),
    )


def _judged(task: Task, side: list[Predictions]) -> tuple[Floats, Floats]:
    """How good a side is on each row, shape (n,): 1 if right, else 0, or minus the error; and `Example.a` or `.b`."""
    labels = side[0].labels
    if task.problem_type == "regression":
        predicted = np.mean([run.predicted for run in side], axis=0)
        return -np.abs(predicted - labels), predicted
    mean = np.mean([run.probability for run in side if run.probability is not None], axis=0)
    if task.problem_type == "single_label_classification":
        of_label = np.take_along_axis(mean, labels[:, None], axis=1)[:, 0]
        right = mean.argmax(axis=1) == labels
    else:
        of_label = np.where(labels == 1, mean, 1 - mean).prod(axis=1)
        right = ((mean > 0.5) == labels).all(axis=1)
    return (side[0].right if len(side) == 1 else right).astype(float), of_label


def _label(task: Task, label: Values) -> str:
    if task.problem_type == "regression":
        return f"{label:g}"
    if task.problem_type == "single_label_classification":
        return task.labels[label]
    return ", ".join(name for name, on in zip(task.labels, label, strict=True) if on) or "none"


def _better(task: Task, judged: Contrast) -> str | None:
    """The side with the better score, A or B; None: no evidence of a difference."""
    result = judged.difference[task.metrics[0]]
    if judged.changed < FEWEST_CHANGED or not (result.low > 0 or result.high < 0):
        return None
    return "B" if METRICS[task.metrics[0]].sign * result.value > 0 else "A"


def _verdict(task: Task, judged: Contrast, better: str | None, *, groups: bool) -> str:
    metric, result = METRICS[task.metrics[0]], judged.difference[task.metrics[0]]
    unit = "" if metric.scale == "error" else " points"
    interval = f"95% interval {metric.format_difference(result.low)} to {metric.format_difference(result.high)}{unit}"
    score = f"{task.verdict_split} {metric.title}"
    if better is None:
        few = f"; only {judged.changed} {task.noun} changed" if judged.changed < FEWEST_CHANGED else ""
        return f"no evidence of a difference in {score}: {interval}{few}"
    subject = f"B is {'better' if better == 'B' else 'worse'}" if groups else "these two models differ"
    return f"{subject}: {metric.format_difference(result.value)}{f'{unit} of' if unit else ' in'} {score}, {interval}"


def _caveats(task: Task, differ_in: list[str], *, groups: bool) -> list[str]:
    caveats = [OPTIMISTIC] if task.verdict_split == "validation" else []
    if not groups:
        caveats.append(
            "Two runs say nothing about other seeds. To see which configuration is better, "
            "run each over seeds (python -m pipeline.seeds --n 5 -S key=value), and compare the groups."
        )
    if made_with := [kind for kind in differ_in if kind != "parameters"]:
        caveats.append(f"A and B were not made alike ({', '.join(made_with)}): that may explain the difference.")
    return caveats


def _degenerate(side: Side, task: Task) -> str:
    """Name the runs of a side that give one answer to everything; empty if there are none."""
    split = task.verdict_split
    names = [run.name for run in side.runs if len(np.unique(run.predictions[split].predicted, axis=0)) == 1]
    if not names:
        return ""
    runs = f" in {len(names)} of {len(side.runs)} runs ({', '.join(names)})" if len(side.runs) > 1 else ""
    return f"{side.name} is degenerate{runs}, with one prediction for all {split} {task.noun}"


def _identical(a: Side, b: Side) -> bool:
    return len(a.runs) == len(b.runs) and all(
        np.array_equal(of_a.predictions[split].logits, of_b.predictions[split].logits)
        for of_a, of_b in zip(a.runs, b.runs, strict=True)
        for split in of_a.task.scored
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


def _signature(side: Side) -> Signature:
    return joined({run.name: run.signature for run in side.runs})


def _seeds(a: Iterable[int], b: Iterable[int]) -> str:
    of_a, of_b = (", ".join(map(str, seeds)) for seeds in (a, b))
    return f"{of_a} of both, paired" if of_a == of_b else f"{of_a} of A, {of_b} of B, not paired"
