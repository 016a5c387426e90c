"""Compare two sides, each a run or a group of runs: differences of their scores with intervals, and a verdict."""

import json
import shutil
import textwrap
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.data_card import LEAKAGE
from pipeline.core.messages import UserError, printable
from pipeline.core.task import Task
from pipeline.core.text import code, escaped, format_number, listing, quoted
from pipeline.evaluation.intervals import MIN_CHANGED, caveats, difference, fold_difference, jackknife
from pipeline.evaluation.metrics import METRICS, Floats, Metric, is_defined
from pipeline.evaluation.predictions import Predictions, count_changed, format_label, label_probability
from pipeline.experiments.groups import SCORE_UNITS
from pipeline.experiments.launch import SEED, STAGES
from pipeline.experiments.runs import BASELINE, LINEAR_STAGES, WORKSPACE, Side, changes

_EXAMPLES = 3  # of the fixed examples, and of the broken ones
_MAX_CHARACTERS = 500  # of each text of an example
_LEAKED = "scored rows that are also in train"
_MIN_SEEDS = 5  # With fewer seeds, the variance between them is too uncertain to say which difference is detected.
_DETECTABLE = "A true difference as large as in the last column is detected about 80% of the time."


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        scores: A row for each split and metric, starting with the one that the verdict is about. "a" and "b" are the
            means over runs or folds, and "value", "low", "high" and "detectable" are those of `intervals.Difference`.
            "detectable" is None if it is not known.
        changed: The number of examples that changed, see `predictions.count_changed`.
        identical: Whether the models' outputs are equal to the last bit.
        changes: What differs between A and B, such as "train.lr", with the values in A and in B.
        fixed, broken: The examples that only B (fixed) or only A (broken) gets right, see `_changed_examples`.
        notes: Sentences to show next to the verdict.
    """

    a: Side
    b: Side
    scores: pd.DataFrame
    changed: int
    identical: bool
    changes: dict[str, tuple[Any, Any]]
    fixed: pd.DataFrame
    broken: pd.DataFrame
    notes: list[str]

    @property
    def split(self) -> str:
        """The split that the verdict is about."""
        return str(self.scores["split"][0])

    @property
    def metric(self) -> Metric:
        """The metric that the verdict is about."""
        return METRICS[self.scores["metric"][0]]

    @property
    def gain(self) -> tuple[float, float]:
        """The 95% confidence interval of how much better B is, also if lower scores are better."""
        ends = self.metric.sign * self.scores["low"][0], self.metric.sign * self.scores["high"][0]
        return min(ends), max(ends)

    @property
    def better(self) -> str | None:
        """A or B. None without evidence, and for two single runs, because another seed might reverse them."""
        low, high = self.gain
        if self.changed < MIN_CHANGED or low <= 0 <= high or _kind(self.a) == "single run":
            return None
        return "B" if low > 0 else "A"

    @property
    def verdict(self) -> str:
        if self.identical:
            return "no difference: the predictions are identical"
        value, low, high = map(self.metric.format_difference, self.scores.loc[0, ["value", "low", "high"]])
        interval = f"(95% confidence interval: {low} to {high}{'' if self.metric.is_error else ' points'})"
        score = f"{self.split} {self.metric.title}"
        if self.changed < MIN_CHANGED:
            return f"no evidence of a difference in {score} {interval}: {self._too_few}"
        if self.gain[0] <= 0 <= self.gain[1]:
            return f"no evidence of a difference in {score} {interval}"
        subject = {"A": "B is worse", "B": "B is better", None: "these two models differ"}[self.better]
        return f"{subject}: {value} {'in' if self.metric.is_error else 'points of'} {score} {interval}"

    @property
    def _too_few(self) -> str:
        return f"only {self.changed} {self.a.task.noun} changed, and at least {MIN_CHANGED} are needed"

    def gate(self, margin: float) -> tuple[str, str]:
        """Say whether the interval rules out that B is worse by `margin` points (or units of an error), and why."""
        low, high = self.gain
        if self.identical:
            return "passes", "its predictions are identical to those of A"
        if self.changed < MIN_CHANGED:
            return "undecided", self._too_few
        if low > -(margin if self.metric.is_error else margin / 100):
            return "passes", "it is better" if low > 0 else f"it is not worse by {margin:g} or more"
        return ("fails", "it is worse") if high < 0 else ("undecided", f"it may be worse by {margin:g} or more")


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs, two seed groups, or two fold groups.

    The sides differ if the interval of the difference in the task's first metric excludes 0, and if at least
    MIN_CHANGED examples changed. The verdict is about test, because validation usually chose the epoch. If the test
    labels are not available, it is about validation.

    Raises:
        UserError: The sides are of different kinds, they were scored on different data, or the metric is not defined
            for the labels.
    """
    task = a.task
    split, *rest = sorted(a.runs[0].predictions, key=lambda name: name != task.verdict_split)
    _require_comparable(a, b, split)
    splits = [split, *(name for name in rest if _have_same_examples(a, b, name))]
    scores = pd.DataFrame(_compare_scores(a, b, name, metric) for name in splits for metric in task.metrics)
    runs_a, runs_b = ([run.predictions[split] for run in side.runs] for side in (a, b))
    changed = count_changed(task, runs_a, runs_b)
    outputs_a, outputs_b = ([run.predictions[name].logits for run in side.runs for name in splits] for side in (a, b))
    identical = len(a.runs) == len(b.runs) and all(map(np.array_equal, outputs_a, outputs_b))
    if identical or changed < MIN_CHANGED or min(len(a.runs), len(b.runs)) < _MIN_SEEDS:
        scores["detectable"] = None
    differing = _changes(a, b, split)
    result = Comparison(a, b, scores, changed, identical, differing, *_changed_examples(task, runs_a, runs_b), notes=[])
    return replace(result, notes=_notes(result))


def _kind(side: Side) -> str:
    return "fold group" if side.folds else "seed group" if len(side.runs) > 1 else "single run"


def _require_comparable(a: Side, b: Side, split: str) -> None:
    names, task = f"{a.name} and {b.name}", a.task
    if _kind(a) != _kind(b):
        raise UserError(f"{a.name} is a {_kind(a)}, but {b.name} is a {_kind(b)}. Compare two of the same kind.")
    # Slices only affect the report.
    if differing := changes(*(asdict(replace(side.task, slice_columns=[])) for side in (a, b))):
        raise UserError(f"{names} have different tasks: {differing}. Compare runs of the same task.")
    folds_a, folds_b = ([fold.predictions["test"] for fold in side.folds] for side in (a, b))
    same_folds = [fold.idx.tolist() for fold in folds_a] == [fold.idx.tolist() for fold in folds_b]
    if not same_folds or not _have_same_examples(a, b, split):
        raise UserError(
            f"{names} were scored on different {split} {task.noun}, with other texts, labels or folds. Compare runs on "
            f"the same {task.noun}."
        )
    scored = folds_a or [a.runs[0].predictions[split]]
    if not all(is_defined(task.metrics[0], task, examples.labels) for examples in scored):
        title = METRICS[task.metrics[0]].title
        raise UserError(f"{title} is not defined for these {split} labels. Set another metric in evaluate.metrics.")


def _have_same_examples(a: Side, b: Side, split: str) -> bool:
    """Return whether a split has the same texts and labels on both sides. The runs of a group have the same data."""
    left, right = (side.runs[0].predictions[split] for side in (a, b))
    columns = a.task.text_columns
    same_labels = np.array_equal(left.idx, right.idx) and np.array_equal(left.labels, right.labels)
    return same_labels and left.rows[columns].equals(right.rows[columns])


def _compare_scores(a: Side, b: Side, split: str, metric: str) -> dict[str, Any]:
    left, right = (np.stack([jackknife(metric, run.predictions[split]) for run in side.runs]) for side in (a, b))
    if a.folds:
        scores_a, scores_b = (
            np.array([fold.predictions["test"].score(metric) for fold in side.folds]) for side in (a, b)
        )
        result = fold_difference(left[0], right[0], scores_b - scores_a)
    else:
        scores_a, scores_b = left[:, 0], right[:, 0]
        result = difference(left, right, same_seeds=a.seeds == b.seeds)
    return {"split": split, "metric": metric, "a": scores_a.mean(), "b": scores_b.mean(), **result._asdict()}


def _changes(a: Side, b: Side, split: str) -> dict[str, tuple[Any, Any]]:
    """Return what differs between the sides, including their seeds and how many of the scored rows train also has."""
    if BASELINE in (a.name, b.name):  # Almost everything differs, because other stages lead to the linear model.
        return changes(*({"model": side.runs[0].origin.get("model.checkpoint", "linear model")} for side in (a, b)))
    left, right = (
        side.runs[0].origin
        | {SEED: ", ".join(map(str, side.seeds))}
        | {_LEAKED: int((side.runs[0].predictions[split].rows[LEAKAGE] == 2).sum())}
        for side in (a, b)
    )
    return changes(left, right)


def _notes(result: Comparison) -> list[str]:
    """Return sentences that say how to read the verdict, and warnings of results that are not what they seem to be."""
    notes, a, b, metric = [], result.a, result.b, result.metric
    seeds, examples = min(len(a.runs), len(b.runs)), f"{result.split} {a.task.noun}"
    command = f"python -m pipeline.seeds --n {_MIN_SEEDS} -S ..."
    if _kind(a) == "single run" and not result.identical and BASELINE not in (a.name, b.name):
        notes.append(f"Two single runs say nothing about other seeds. Compare two seed groups instead ({command}).")
    elif 1 < seeds < _MIN_SEEDS and result.changed >= MIN_CHANGED:
        size = metric.format(result.scores["high"][0] - result.scores["value"][0])
        notes.append(
            f"With {seeds} seeds per side, a difference below {size}{'' if metric.is_error else ' points'} could not "
            f"have been seen. To see smaller ones, run each group with more seeds ({command})."
        )
    # The keys of code and of the environment, see `runs.Run.origin`.
    causes = [key for key in result.changes if key.startswith(("pipeline", "environment.", "compute.lock"))]
    if causes and not result.identical:
        notes.append(f"A and B differ in {listing(causes)}, which may explain the difference.")
    # The intervals of folds are measured between the folds, which contain whole groups.
    split_type = None if a.folds else a.runs[0].origin.get("data.split.type")
    labels = a.runs[0].predictions[result.split].labels
    notes += caveats(a.task.metrics[:1], a.task, result.split, labels, split_type)
    for side in (a, b):
        if outdated := _outdated_stages(side.name):
            notes.append(
                f"Warning: the results of {side.name} are older than params.yaml, the code or the data. They lack the "
                f'changes to these stages: {", ".join(outdated)}. Run "dvc repro".'
            )
        if names := side.degenerate(result.split):
            notes.append(f"Warning: the same prediction for all {examples} in {listing(names)}.")
    before, after = result.changes.get(_LEAKED, (0, 0))
    if after > before:
        notes.append(
            f"Warning: train has {after:,} of the {examples} in B, and only {before:,} in A. A model that has seen the "
            "answers scores too high."
        )
    return notes


def _outdated_stages(name: str) -> list[str]:
    """Return the stages that have to run again before the predictions in the workspace are up to date."""
    stages = {WORKSPACE: STAGES, BASELINE: LINEAR_STAGES}.get(name)
    if stages is None:
        return []
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with closing(Repo()) as repo:
            status = repo.status()
    except DvcException as error:  # For example, "dvc repro" is running.
        raise UserError(f"dvc status: {error}") from None
    return [stage for stage in stages if stage in status]


def _changed_examples(
    task: Task, a: Sequence[Predictions], b: Sequence[Predictions]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the examples that B fixed, and those that it broke. Those that B is most confident about come first.

    For groups, the mean prediction over runs decides which side is right. For a regression, the examples are those
    whose prediction is closer to the label in B, or farther from it, with the largest changes first.

    Returns:
        Frames with the columns idx, label, a, b and texts. a and b are the mean probabilities of the label (with
        several labels, of this exact combination of labels), or the mean predictions of a regression.
    """
    (quality_a, mean_a), (quality_b, mean_b) = _mean_prediction(a), _mean_prediction(b)
    gain = quality_b - quality_a
    order = np.lexsort((-mean_b, -gain))
    labels = [format_label(task, label, separator=", ", if_empty="none") for label in a[0].labels]
    texts = list(a[0].rows[task.text_columns].itertuples(index=False, name=None))
    examples = pd.DataFrame({"idx": a[0].idx, "label": labels, "a": mean_a, "b": mean_b, "texts": texts})
    return examples.iloc[order[gain[order] > 0]], examples.iloc[order[gain[order] < 0][::-1]]


def _mean_prediction(runs: Sequence[Predictions]) -> tuple[Floats, Floats]:
    """Return 1 for each example whose mean prediction is right (minus the error of a regression), and the mean."""
    labels, probabilities = runs[0].labels, [run.probability for run in runs if run.probability is not None]
    if not probabilities:
        predicted = np.mean([run.predicted for run in runs], axis=0)
        return -np.abs(predicted - labels), predicted
    mean = np.mean(probabilities, axis=0)
    is_right = mean.argmax(axis=1) == labels if labels.ndim == 1 else ((mean > 0.5) == labels).all(axis=1)
    return is_right.astype(float), label_probability(mean, labels)


def as_text(result: Comparison) -> str:
    """Format a comparison for a terminal."""
    width = min(shutil.get_terminal_size().columns, 120)
    lines = [*_header(result), "", *_score_table(result).to_string().split("\n"), "", *_legend(result), ""]
    lines += _change_table(result).to_string().split("\n")
    for heading, examples in _example_tables(result).items():
        lines += ["", heading]
        for row in examples.to_dict("records"):
            lines.append(f"  {row['idx']}  label {row['label']}: {row['A']} in A, {row['B']} in B")
            for text in row["texts"]:
                lines += textwrap.wrap(text, width, initial_indent="    - ", subsequent_indent="      ")
    return "\n".join(map(printable, [*lines, "", f"Verdict: {result.verdict}", *result.notes]))


def as_markdown(result: Comparison) -> str:
    """Format a comparison for a pull request on GitHub."""
    verdict = result.verdict[0].upper() + result.verdict[1:]
    parts = [f"**{verdict}**", *map(escaped, [*result.notes, *_header(result)])]
    parts += [_score_table(result).to_markdown(disable_numparse=True), *_legend(result)]
    parts.append(_change_table(result).map(code).rename(index=code).to_markdown(disable_numparse=True))
    for heading, examples in _example_tables(result).items():
        examples["label"] = examples["label"].map(code)
        examples["texts"] = ["<br>".join(map(code, texts)) for texts in examples["texts"]]
        table = examples.to_markdown(index=False, disable_numparse=True)
        parts.append(f"<details>\n<summary>{heading}</summary>\n\n{table}\n\n</details>")
    return "\n\n".join(parts)


def as_json(result: Comparison) -> str:
    """Format a comparison for scripts, with all fixed and broken examples. Scores are fractions, not percentages."""
    content = {
        "a": result.a.name, "b": result.b.name, "verdict": result.verdict, "better": result.better,
        "notes": result.notes, "scores": result.scores.to_dict("records"), "changes": result.changes,
        "changed": result.changed, "fixed": result.fixed.to_dict("records"), "broken": result.broken.to_dict("records"),
    }  # fmt: skip
    # JSON has no NaN and no Infinity. pandas writes them as null, also in nested values.
    text = pd.Series(content).to_json(double_precision=15, default_handler=str)
    return json.dumps(json.loads(text), indent=2)


def _header(result: Comparison) -> list[str]:
    lines = []
    for title, side in (("A", result.a), ("B", result.b)):
        runs = f" of {len(side.folds or side.runs)} runs" if side.folds or len(side.runs) > 1 else ""
        lines.append(f"{title}: {side.name} ({_kind(side)}{runs})")
    return lines


def _legend(result: Comparison) -> list[str]:
    return [SCORE_UNITS] if result.scores["detectable"][0] is None else [SCORE_UNITS, _DETECTABLE]


def _score_table(result: Comparison) -> pd.DataFrame:
    rows = {}
    for score in result.scores.to_dict("records"):
        metric = METRICS[score["metric"]]
        value, low, high = (metric.format_difference(score[name], 2) for name in ("value", "low", "high"))
        cells = {"A": metric.format(score["a"], 2), "B": metric.format(score["b"], 2), "B - A": value}
        cells |= {"95% interval": f"{low} to {high}"}
        cells |= {} if score["detectable"] is None else {"detectable": metric.format(score["detectable"], 2)}
        rows[f"{score['split']} {metric.title}"] = cells
    return pd.DataFrame.from_dict(rows, orient="index")


def _change_table(result: Comparison) -> pd.DataFrame:
    rows = {
        key: [value[:60] if isinstance(value, str) else quoted(value) for value in values]
        for key, values in result.changes.items()
    }
    table = pd.DataFrame.from_dict(rows or {"nothing": ["", ""]}, orient="index", columns=["A", "B"])
    return table.rename_axis(columns="A and B differ in")


def _example_tables(result: Comparison) -> dict[str, pd.DataFrame]:
    """Return the first fixed and the first broken examples by their heading, with formatted numbers."""
    is_regression, total = result.a.task.problem_type == "regression", len(result.a.runs[0].predictions[result.split])
    quantity = (
        f"{'mean ' if len(result.a.runs) > 1 else ''}{'prediction' if is_regression else 'probability of the label'}"
    )
    tables = {}
    for title, examples in {"Better in B": result.fixed, "Worse in B": result.broken}.items():
        first = examples.head(_EXAMPLES).rename(columns={"a": "A", "b": "B"})
        for name in "AB":
            first[name] = first[name].map(format_number if is_regression else "{:.2f}".format)
        first["texts"] = [[textwrap.shorten(text, _MAX_CHARACTERS) for text in texts] for texts in first["texts"]]
        count = f"{len(examples):,} of {total:,} {result.split} {result.a.task.noun}"
        tables[f"{title}: {count}, with the {quantity}"] = first
    return tables
