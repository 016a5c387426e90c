"""Compare two sides, each a run or a group of runs: differences of their scores with intervals, and a verdict."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipeline.core.messages import UserError, log
from pipeline.core.output import rounded
from pipeline.core.task import Task
from pipeline.evaluation.metrics import METRICS, Floats, Metric, Values, is_defined
from pipeline.evaluation.predictions import Predictions, count_changed, format_label, label_probability
from pipeline.evaluation.signature import Signature
from pipeline.evaluation.uncertainty import (
    MIN_CHANGED,
    Difference,
    difference,
    fold_difference,
    jackknife,
    score_caveats,
)
from pipeline.experiments.revisions import BASELINE, Run
from pipeline.experiments.sides import FOLD_SPLIT, ON_VALIDATION, Side, describe_degenerate_runs, fold_scores

# With fewer seeds, the variance between them is too uncertain to say which difference would be detected.
_MIN_SEEDS = 5
_LINEAR_MODEL = "The linear model does not depend on a seed, but the other model does."
_TWO_RUNS = (
    "Two single runs say nothing about other seeds. To find out which configuration is better, run each one with "
    "several seeds (python -m pipeline.seeds --n 5 -S key=value) and compare the two seed groups."
)


@dataclass(frozen=True)
class ChangedExample:
    """An example that changed between A and B.

    Attributes:
        a, b: The probability of its label (with several labels, of this exact combination of labels), or the prediction
            of a regression. Seed groups have the mean over runs.
    """

    idx: int
    label: str
    a: float
    b: float
    texts: tuple[str, ...]


@dataclass(frozen=True)
class SplitComparison:
    """The scores of one split, and the examples that changed.

    Attributes:
        n: The number of examples.
        a, b: The mean scores over runs or folds, keyed by metric.
        difference: The score of B minus that of A, keyed by metric.
        fixed, broken: The examples that only B (fixed) or only A (broken) gets right, those that B is most confident
            about first. For seed groups, the mean probability over runs decides which side is right. For a regression,
            they are the examples whose prediction is closer to the label in B (fixed) or farther from it (broken),
            the largest change first.
        changed: See `count_changed`.
    """

    n: int
    a: dict[str, float]
    b: dict[str, float]
    difference: dict[str, Difference]
    fixed: list[ChangedExample]
    broken: list[ChangedExample]
    changed: int


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        a, b: The titles of the sides.
        signatures: The score signatures of A and B.
        seeds: A phrase about the seeds of both sides. None for two single runs, and for two fold groups.
        folds: The number of folds. None unless both sides are fold groups.
        splits: Keyed by split, starting with the one that the verdict is about.
        changes: The "parameters", and except for the linear model also the "environment" and the "code" that differ,
            with the values in A and in B.
        identical: Whether the models' outputs are equal to the last bit.
        interval_caveats: Sentences that say why the intervals may be too narrow.
        degenerate: A sentence, without a period, about each side that has runs with a single prediction for all
            examples.
    """

    a: str
    b: str
    signatures: tuple[Signature, Signature]
    task: Task
    seeds: str | None
    folds: int | None
    splits: dict[str, SplitComparison]
    changes: dict[str, dict[str, tuple[Any, Any]]]
    identical: bool
    interval_caveats: list[str]
    degenerate: list[str]

    @property
    def metric(self) -> Metric:
        """The metric that the verdict is about."""
        return METRICS[self.task.metrics[0]]

    @property
    def verdict_split(self) -> str:
        """The name of the split that the verdict is about."""
        return next(iter(self.splits))

    @property
    def verdict_comparison(self) -> SplitComparison:
        """The split that the verdict is about."""
        return self.splits[self.verdict_split]

    @property
    def single_runs(self) -> bool:
        """Whether both sides are single runs, so that another seed might reverse them."""
        return self.seeds is None and self.folds is None

    @property
    def difference(self) -> Difference:
        """The difference that the verdict is about."""
        return self.verdict_comparison.difference[self.task.metrics[0]]

    @property
    def detectable(self) -> float | None:
        """The true difference that is detected about 80% of the time, or None if it is not known.

        The power for fold groups has not been simulated.
        """
        too_few_seeds = self.seeds is not None and self.difference.runs < _MIN_SEEDS
        if self.identical or self.folds or too_few_seeds or self.verdict_comparison.changed < MIN_CHANGED:
            return None
        return self.difference.detectable

    @property
    def significant(self) -> bool:
        if self.verdict_comparison.changed < MIN_CHANGED:
            return False
        return self.difference.low > 0 or self.difference.high < 0

    @property
    def better_side(self) -> str | None:
        """A or B. None without evidence, and for two single runs."""
        if not self.significant or self.single_runs:
            return None
        return "B" if self.metric.sign * self.difference.value > 0 else "A"

    @property
    def score(self) -> str:
        """The name of the score that the verdict is about, such as "test accuracy"."""
        return f"{self.verdict_split} {self.metric.title}"

    @property
    def score_suffix(self) -> str:
        """The words after the value of a difference, such as "points of test accuracy" or "in test RMSE"."""
        return f"{'in' if self.metric.is_error else 'points of'} {self.score}"

    @property
    def interval(self) -> str:
        """The 95% confidence interval of the difference that the verdict is about."""
        low, high = (self.metric.format_difference(end) for end in (self.difference.low, self.difference.high))
        return f"95% confidence interval: {low} to {high}{'' if self.metric.is_error else ' points'}"

    @property
    def difference_phrase(self) -> str:
        """The difference that the verdict is about, such as "+1.2 points of test accuracy", with its interval."""
        value = self.metric.format_difference(self.difference.value)
        return f"{value} {self.score_suffix} ({self.interval})"

    @property
    def verdict(self) -> str:
        if self.identical:
            differing = [title for title, entries in self.changes.items() if entries]
            suffix = "and so are the parameters"
            if differing:
                suffix = f"although A and B differ in {' and '.join(differing)}"
            return f"no difference: the predictions are identical, {suffix}"
        if not self.significant:
            verdict = f"no evidence of a difference in {self.score} ({self.interval})"
            if self.verdict_comparison.changed >= MIN_CHANGED:
                return verdict
            changed = self.verdict_comparison.changed
            noun = self.task.singular_noun if changed == 1 else self.task.noun
            return f"{verdict}, because A and B differ on {changed} {noun}, and at least {MIN_CHANGED} are needed"
        subject = {"A": "B is worse", "B": "B is better", None: "these two models differ"}[self.better_side]
        return f"{subject}: {self.difference_phrase}"

    @property
    def caveats(self) -> list[str]:
        """Sentences to show next to the verdict."""
        caveats = []
        if not self.identical:
            if self.verdict_split == "validation":
                caveats.append(ON_VALIDATION)
            if self.single_runs:
                caveats.append(_LINEAR_MODEL if BASELINE in (self.a, self.b) else _TWO_RUNS)
            if origins := [name for name in ("environment", "code") if self.changes.get(name)]:
                caveats.append(f"A and B differ in {' and '.join(origins)}, which may explain the difference.")
            caveats += self.interval_caveats
        return [*caveats, *(f"Warning: {text}." for text in self.degenerate)]


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs, two seed groups, or two fold groups.

    The sides differ if the interval of the difference in the task's first metric excludes 0, and if at least
    MIN_CHANGED examples changed. The verdict is about test, because with train.keep: best the epoch was chosen on
    validation, which makes the validation scores optimistic. If the test labels are not available, it is about
    validation. If two groups differ, one of them is better. If two single runs differ, another seed might still reverse
    them.

    Raises:
        UserError: The sides were scored on different data, only one of them is a group, the signatures of the runs of
            a group differ, or the metric is not defined for the labels.
    """
    if bool(a.folds) != bool(b.folds):
        group, single = (a, b) if a.folds else (b, a)
        raise UserError(
            f"{group.name} is a fold group, but {single.name} is not. Compare it with another fold group "
            "(python -m pipeline.folds)."
        )
    groups = len(a.runs) > 1
    if groups != (len(b.runs) > 1):
        group, single = (a, b) if groups else (b, a)
        remedy = "" if single.name == BASELINE else ", or run it with several seeds too (python -m pipeline.seeds)"
        raise UserError(
            f"{group.name} is a seed group of {len(group.runs)} runs, but {single.name} is a single run. Compare "
            f"{single.name} with {group.runs[0].name}{remedy}."
        )
    a, b = (side._replace(runs=sorted(side.runs, key=lambda run: run.seed)) for side in (a, b))
    for side in (a, b):
        _require_same_signature(side)
    for fold_a, fold_b in zip(a.folds, b.folds, strict=False):
        _require_same_examples(fold_a, fold_b)

    first = a.runs[0]
    task = first.task
    splits = _common_splits([*a.runs, *b.runs])
    for run in a.folds or a.runs[:1]:
        _require_defined(run, FOLD_SPLIT if a.folds else splits[0])
    return Comparison(
        a=a.title,
        b=b.title,
        signatures=(a.signature, b.signature),
        task=task,
        seeds=_seeds(a.seeds, b.seeds) if groups else None,
        folds=len(a.folds) or None,
        splits={split: _compare_split(split, a, b) for split in splits},
        changes=_all_changes(a, b),
        identical=_identical(a, b),
        # The intervals of folds are measured between the folds, which contain whole groups.
        interval_caveats=score_caveats(
            task.metrics[:1],
            task,
            splits[0],
            first.predictions[splits[0]].labels,
            split_type=None if a.folds else first.split_parameters.get("type"),
        ),
        degenerate=[phrase for side in (a, b) if (phrase := describe_degenerate_runs(side, splits[0]))],
    )


def _require_same_signature(side: Side) -> None:
    """Raise UserError if the runs of a group differ in anything except their seed or fold."""
    runs = side.folds or side.runs
    first = runs[0]
    varied = list(first.predictions) if side.folds else ["seed"]
    command = "folds" if side.folds else "seeds"
    for run in runs[1:]:
        expected = first.signature | {entry: run.signature[entry] for entry in varied}
        if changes := _changes(expected, run.signature):
            raise UserError(
                f"{side.name}: its runs {first.name} and {run.name} differ in {_describe_changes(changes)}. Remove the "
                f'runs of this group ("dvc exp remove"), and run "python -m pipeline.{command}" again.'
            )


def _common_splits(runs: Sequence[Run]) -> list[str]:
    """Return the splits whose examples are the same in all runs. The split of the verdict comes first.

    Raises:
        UserError: The runs have different tasks, or different examples in the split of the verdict.
    """
    first, *rest = runs
    for run in rest:
        _require_same_examples(first, run)
    splits = []
    for split in first.task.verdict_split_first:
        if all(_have_same_examples(first, run, split) for run in rest):
            splits.append(split)
        else:
            log.warning("%s is left out, because its %s or their labels differ", split, first.task.noun)
    return splits


def _require_same_examples(left: Run, right: Run) -> None:
    """Raise UserError if two runs have different tasks, or different examples in the split of the verdict."""
    names = f"{left.name} and {right.name}"
    tasks = [asdict(replace(run.task, slice_columns=[])) for run in (left, right)]  # Slices only affect the report.
    if tasks[0] != tasks[1]:
        differences = _describe_changes(_changes(*tasks))
        raise UserError(f"{names} have different tasks: {differences}. Compare runs of the same task.")
    noun = left.task.noun
    split = left.task.verdict_split_first[0]
    if not _have_same_examples(left, right, split):
        left_count, right_count = (f"{len(run.texts[split]):,}" for run in (left, right))
        detail = f"{left.name} has {left_count}, and {right.name} has {right_count}"
        if left_count == right_count:
            detail = f"Both have {left_count}, but their texts, labels or order differ"
        raise UserError(f"{names} were scored on different {split} {noun}. {detail}. Compare runs on the same {noun}.")


def _have_same_examples(left: Run, right: Run, split: str) -> bool:
    """Return whether the examples of a split have the same texts and the same labels in two runs."""
    a, b = left.predictions[split], right.predictions[split]
    same_labels = np.array_equal(a.idx, b.idx) and np.array_equal(a.labels, b.labels)
    return same_labels and left.texts[split] == right.texts[split]


def _require_defined(run: Run, split: str) -> None:
    """Raise UserError if the labels of a split do not allow a perfect score, for example because all are the same."""
    name = run.task.metrics[0]
    if not is_defined(name, run.task, run.predictions[split].labels):
        raise UserError(
            f"{METRICS[name].title} is not defined for these {split} labels, because a class is missing or all labels "
            "are the same. Compare by another metric (evaluate.metrics in params.yaml)."
        )


def _all_changes(a: Side, b: Side) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return `Comparison.changes`. For the linear model, only the names of the models are compared."""
    first_a, first_b = a.runs[0], b.runs[0]
    if BASELINE in (a.name, b.name):
        return {"parameters": {"model": (a.signature["checkpoint"], b.signature["checkpoint"])}}
    return {
        "parameters": _changes(a.parameters, b.parameters),
        "environment": _changes(first_a.environment, first_b.environment),
        "code": _changes({"training code": first_a.code}, {"training code": first_b.code}),
    }


def _changes(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the entries that differ, by key. The value of a missing entry is a dash."""
    pairs = {key: (a.get(key, "-"), b.get(key, "-")) for key in sorted(a.keys() | b.keys())}
    return {key: (left, right) for key, (left, right) in pairs.items() if left != right}


def _describe_changes(changes: dict[str, tuple[Any, Any]]) -> str:
    """Format the result of `_changes` for a message."""
    return ", ".join(f"{key} ({left} and {right})" for key, (left, right) in changes.items())


def _compare_split(split: str, side_a: Side, side_b: Side) -> SplitComparison:
    task, texts = side_a.runs[0].task, side_a.runs[0].texts[split]
    same_seeds = side_a.seeds == side_b.seeds
    a, b = ([run.predictions[split] for run in side.runs] for side in (side_a, side_b))
    scores_a, scores_b, differences = {}, {}, {}
    for metric in task.metrics:
        jackknives_a, jackknives_b = (
            np.stack([jackknife(metric, run.labels, run.predicted, run.probability) for run in runs]) for runs in (a, b)
        )
        if side_a.folds:
            values_a, values_b = (fold_scores(metric, side.folds) for side in (side_a, side_b))
            differences[metric] = fold_difference(jackknives_a[0], jackknives_b[0], values_b - values_a)
        else:
            values_a, values_b = jackknives_a[:, 0], jackknives_b[:, 0]
            differences[metric] = difference(jackknives_a, jackknives_b, same_seeds=same_seeds)
        scores_a[metric] = float(values_a.mean())
        scores_b[metric] = float(values_b.mean())
    fixed, broken = _fixed_and_broken(task, a, b, texts)
    return SplitComparison(
        n=len(a[0].idx),
        a=scores_a,
        b=scores_b,
        difference=differences,
        fixed=fixed,
        broken=broken,
        changed=count_changed(task, a, b),
    )


def _fixed_and_broken(
    task: Task, a: Sequence[Predictions], b: Sequence[Predictions], texts: Sequence[tuple[str, ...]]
) -> tuple[list[ChangedExample], list[ChangedExample]]:
    """Return the fixed and the broken examples of a split. See `SplitComparison`."""
    (quality_a, mean_a), (quality_b, mean_b) = _mean_predictions(task, a), _mean_predictions(task, b)
    gain = quality_b - quality_a
    examples = a[0]

    def changed_examples(rows: Values) -> list[ChangedExample]:
        return [
            ChangedExample(
                idx=int(examples.idx[row]),
                label=format_label(task, examples.labels[row], separator=", ", if_empty="none"),
                a=rounded(float(mean_a[row])),
                b=rounded(float(mean_b[row])),
                texts=texts[row],
            )
            for row in rows
        ]

    best_first = np.argsort(-gain if task.problem_type == "regression" else -mean_b, kind="stable")
    worst_first = best_first[::-1]
    return changed_examples(best_first[gain[best_first] > 0]), changed_examples(worst_first[gain[worst_first] < 0])


def _mean_predictions(task: Task, runs: Sequence[Predictions]) -> tuple[Floats, Floats]:
    """Average the predictions of the runs of a side.

    Returns:
        Two arrays of shape (n,). The first has the quality of the mean prediction for each example: 1 if it is correct
        and 0 if not, or minus the error of a regression. The second has the mean itself, as in `ChangedExample.a`.
    """
    labels = runs[0].labels
    if task.problem_type == "regression":
        predicted = np.mean([run.predicted for run in runs], axis=0)
        return -np.abs(predicted - labels), predicted
    mean = np.mean([run.probability for run in runs if run.probability is not None], axis=0)
    if task.problem_type == "single_label_classification":
        correct = mean.argmax(axis=1) == labels
    else:
        correct = ((mean > 0.5) == labels).all(axis=1)
    if len(runs) == 1:
        correct = runs[0].is_correct  # The rounded probabilities of two classes may be equal.
    return correct.astype(float), label_probability(mean, labels)


def _identical(a: Side, b: Side) -> bool:
    return len(a.runs) == len(b.runs) and all(
        np.array_equal(run_a.predictions[split].logits, run_b.predictions[split].logits)
        for run_a, run_b in zip(a.runs, b.runs, strict=True)
        for split in run_a.task.scored_splits
    )


def _seeds(a: list[int], b: list[int]) -> str:
    seeds_a, seeds_b = (", ".join(map(str, seeds)) for seeds in (a, b))
    return f"{seeds_a} in both A and B, paired by seed" if a == b else f"{seeds_a} in A and {seeds_b} in B, not paired"
