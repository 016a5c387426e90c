"""Compare two sides, each a run or a group of runs: differences of their scores with intervals, and a verdict."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.task import LEAKAGE, Task
from pipeline.evaluation.intervals import MIN_CHANGED, Difference, difference, fold_difference, jackknife
from pipeline.evaluation.metrics import METRICS, Floats, Metric, is_defined
from pipeline.evaluation.predictions import Predictions, count_changed, label_probability
from pipeline.experiments.launch import SEED
from pipeline.experiments.runs import Side, changes

LEAKED = "scored rows that are also in train"
SCORE_UNITS = "Scores are in percent. Errors such as RMSE have their own units."
MIN_SEEDS = 5  # With fewer seeds, the variance between them is too uncertain to say which difference is detected.


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        split, metric, difference: What the verdict is about.
        scores: A row for each split and metric, starting with those of the verdict. "a" and "b" are the means over runs
            or folds, and the other columns are those of `Difference`. "detectable" is None if it is unknown.
        changed: The number of examples that changed, see `predictions.count_changed`.
        fixed, broken: See `_changed_examples`.
    """

    a: Side
    b: Side
    split: str
    metric: Metric
    difference: Difference
    scores: pd.DataFrame
    changed: int
    identical: bool
    differences: dict[str, tuple[Any, Any]]
    fixed: pd.DataFrame
    broken: pd.DataFrame

    @property
    def gain(self) -> list[float]:
        """The 95% confidence interval of how much better B is, for errors too. Infinite if too few examples changed."""
        if self.changed < MIN_CHANGED:
            return [-np.inf, np.inf]
        return sorted(self.metric.sign * bound for bound in (self.difference.low, self.difference.high))

    @property
    def better(self) -> str | None:
        """A or B. None without evidence, and for two single runs, because another seed might reverse them."""
        low, high = self.gain
        if low <= 0 <= high or self.a.kind == "single run":
            return None
        return "B" if low > 0 else "A"

    @property
    def verdict(self) -> str:
        if self.identical:
            return "no difference: the predictions are identical"
        value, low, high = map(self.metric.format_difference, self.difference[:3])
        unit = "" if self.metric.is_error else " points"
        score = f"{self.split} {self.metric.title} (95% confidence interval: {low} to {high}{unit})"
        if self.changed < MIN_CHANGED:
            score += f": only {self.changed} {self.a.task.noun} changed, and at least {MIN_CHANGED} are needed"
        if self.gain[0] <= 0 <= self.gain[1]:
            return f"no evidence of a difference in {score}"
        subject = {"A": "B is worse", "B": "B is better", None: "these two models differ"}[self.better]
        return f"{subject}: {value} {'in' if self.metric.is_error else 'points of'} {score}"

    def gate(self, margin: float) -> str:
        """Say whether the interval rules out that B is worse by `margin` points (or units of an error)."""
        low, high = self.gain
        if self.identical or low > -(margin if self.metric.is_error else margin / 100):
            return "passes"
        return "fails" if high < 0 else "undecided"


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs, two seed groups, or two fold groups. The verdict is about the first metric."""
    task, [split, *others] = a.task, a.task.verdict_split_first
    task_a, task_b = (replace(side.task, slice_columns=[]) for side in (a, b))  # Slices only affect the report.
    if task_a != task_b or a.kind != b.kind or _examples(a, split) != _examples(b, split):
        requirement = f"two runs, two seed groups or two fold groups with the same task and the same {split}"
        raise UserError(f"{a.name} and {b.name} cannot be compared. Compare {requirement} {task.noun} and labels.")
    metric = METRICS[task.metrics[0]]
    if not all(is_defined(task.metrics[0], task, predictions.labels) for predictions in a.scored(split).values()):
        raise UserError(f"{metric.title} is undefined for these {split} labels. Set another one in evaluate.metrics.")
    splits = [split, *(name for name in others if _examples(a, name) == _examples(b, name))]
    scores = pd.DataFrame(_compare_scores(a, b, part, name) for part in splits for name in task.metrics)
    gap = Difference(*scores.loc[0, list(Difference._fields)])
    runs_a, runs_b = ([run.predictions[split] for run in side.runs] for side in (a, b))
    identical = np.array_equal([run.logits for run in runs_a], [run.logits for run in runs_b])
    changed = 0 if identical else count_changed(task, runs_a, runs_b)
    if changed < MIN_CHANGED or min(len(a.runs), len(b.runs)) < MIN_SEEDS:
        scores["detectable"] = None
    fixed, broken = _changed_examples(task, runs_a, runs_b)
    return Comparison(a, b, split, metric, gap, scores, changed, identical, _changes(a, b, split), fixed, broken)


def _examples(side: Side, split: str) -> list[Any]:
    """Return the ids, labels and texts of a split, or of each fold. The runs of a seed group have the same ones."""
    parts = [fold.predictions["test"] for fold in side.folds] or [side.runs[0].predictions[split]]
    texts = side.task.text_columns
    return [[part.idx.tolist(), part.labels.tolist(), part.rows[texts].to_numpy().tolist()] for part in parts]


def _compare_scores(a: Side, b: Side, split: str, metric: str) -> dict[str, Any]:
    scores_a, scores_b = (np.array([part.score(metric) for part in side.scored(split).values()]) for side in (a, b))
    left, right = (np.stack([jackknife(metric, run.predictions[split]) for run in side.runs]) for side in (a, b))
    if a.folds:
        result = fold_difference(left[0], right[0], scores_b - scores_a)
    else:
        result = difference(left, right, same_seeds=a.seeds == b.seeds)
    return {"split": split, "metric": metric, "a": scores_a.mean(), "b": scores_b.mean(), **result._asdict()}


def _changes(a: Side, b: Side, split: str) -> dict[str, tuple[Any, Any]]:
    """Return what differs between the sides, including their seeds and how many of the scored rows train also has."""
    model_a, model_b = (side.runs[0].origin.get("model") for side in (a, b))
    if model_a != model_b:  # Almost everything differs, because other stages lead to a simple model.
        return {"model": (model_a, model_b)}
    origins = []
    for side in (a, b):
        leaked = int((side.runs[0].predictions[split].rows[LEAKAGE] == 2).sum())
        origins.append(side.runs[0].origin | {SEED: ", ".join(map(str, side.seeds)), LEAKED: leaked})
    return changes(*origins)


def _changed_examples(task: Task, a: list[Predictions], b: list[Predictions]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the examples that more runs of B than of A get right, and those that fewer do, largest changes first.

    For a regression, these are the examples whose predictions are closer to the label in B, and those farther from it.
    The columns a and b are the mean probability of the label (or of exactly these labels), or the mean prediction.
    """
    (quality_a, value_a), (quality_b, value_b) = (np.mean([_quality(run) for run in runs], axis=0) for runs in (a, b))
    examples = pd.DataFrame({"idx": a[0].idx, "a": value_a, "b": value_b, "gain": quality_b - quality_a})
    examples["label"] = [task.format_label(label, separator=", ", if_empty="none") for label in a[0].labels]
    examples["texts"] = a[0].rows[task.text_columns].to_numpy().tolist()
    examples = examples.sort_values(["gain", "b"], ascending=False)  # the most confident ones among equal gains
    return examples[examples["gain"] > 0], examples[examples["gain"] < 0][::-1]


def _quality(run: Predictions) -> tuple[Floats, Floats]:
    """Return whether each prediction is right (or minus the error of a regression), and the value to show."""
    if run.probability is None:
        return -np.abs(run.predicted - run.labels), run.predicted
    return run.is_correct.astype(float), label_probability(run.probability, run.labels)
