"""The sides of a comparison: a single run, a seed group, or a fold group with the predictions of all its folds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.messages import UserError
from pipeline.evaluation.metrics import (
    METRICS,
    PROBABILITY_DECIMALS,
    Floats,
    logits_to_probabilities,
    scores,
    with_compared_metrics,
)
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.signature import Signature, digest
from pipeline.experiments.identity import SEED_KEY
from pipeline.experiments.revisions import Run, read_runs
from pipeline.params import Params, load_params

OUT_OF_FOLD = "out-of-fold"  # the name of the only split of a pooled run
FOLD_SPLIT = "test"  # the split that holds the fold, see `sources.folds`
ON_VALIDATION = (
    "No test labels are available, so the validation scores are used instead. With train.keep: best, they are slightly "
    "optimistic, because validation also chose the epoch."
)


class Side(NamedTuple):
    """A or B: a single run, a seed group or a fold group.

    Attributes:
        runs: For a fold group, a single run with the predictions of all folds.
        folds: The runs of the folds. Empty unless this is a fold group.
    """

    name: str
    runs: list[Run]
    folds: Sequence[Run] = ()

    @property
    def title(self) -> str:
        """The name. If it is a branch, tag or experiment, the commit follows."""
        commit = self.runs[0].commit
        if len(self.runs) > 1 or commit is None or commit.startswith(self.name):
            return self.name
        return f"{self.name} ({commit[:7]})"

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the runs. A seed group has a list of seeds."""
        first = self.runs[0].parameters  # The other runs differ from it only in the seed.
        return first | {SEED_KEY: self.seeds} if len(self.runs) > 1 else first

    @property
    def signature(self) -> Signature:
        return self.runs[0].signature | {"seed": ",".join(map(str, self.seeds))}


def read_side(name: str, params: Params | None = None, seeds: int | None = None, *, linear: bool = False) -> Side:
    """Read a run or a group, with the metrics that `evaluate.metrics` names.

    Args:
        params: Parameters with `evaluate.metrics`. None means params.yaml.
        seeds: The highest seed to read from a seed group. None means all seeds.
        linear: Whether to read the predictions of the linear model instead of those of the fine-tuned model.

    Raises:
        UserError: The run does not exist, a result is incomplete, or a fold of a fold group is missing.
    """
    metrics = (params or load_params()).evaluate.metrics
    runs = [with_metrics(run, metrics) for run in read_runs(name, seeds, linear=linear)]
    is_group = runs[0].name != name  # The runs of a group have its name and a number.
    if is_group and name.startswith("folds-"):
        return Side(name, [_pooled_run(name, runs)], runs)
    return Side(name, runs)


def with_metrics(run: Run, names: list[str] | None) -> Run:
    """Return the run with the metrics that it is to be compared by. See `metrics.with_compared_metrics`."""
    task = with_compared_metrics(run.task, names)
    return run._replace(task=task, signature={**run.signature, "metrics": "+".join(task.metrics)})


def _pooled_run(name: str, runs: Sequence[Run]) -> Run:
    """Return a run with the predictions of all folds of train and validation, in the order of the examples' ids.

    Args:
        name: The name of the fold group.
        runs: The runs of all folds.

    Raises:
        UserError: A fold is missing.
    """
    first = runs[0]
    k = int(first.split_parameters["fold"].partition("/")[2])
    finished = {run.split_parameters["fold"] for run in runs}
    if missing := [fold for number in range(1, k + 1) if (fold := f"{number}/{k}") not in finished]:
        raise UserError(f'{name}: these folds have not run: {", ".join(missing)}. Repeat "python -m pipeline.folds".')
    predictions = [run.predictions[FOLD_SPLIT] for run in runs]
    order = np.argsort(np.concatenate([fold.idx for fold in predictions]))
    columns = {
        name: np.concatenate([getattr(fold, name) for fold in predictions])[order]
        for name in ("idx", "labels", "predicted", "logits")
    }
    probability = logits_to_probabilities(first.task.problem_type, columns["logits"])
    pooled = Predictions(**columns, probability=probability)
    texts = [text for run in runs for text in run.texts[FOLD_SPLIT]]
    signature = {entry: value for entry, value in first.signature.items() if entry not in first.predictions}
    return first._replace(
        name=name,
        commit=None,
        parameters=first.parameters | {"data.split": first.parameters["data.split"] | {"fold": f"{k} folds"}},
        task=replace(first.task, predicted_splits=[OUT_OF_FOLD]),
        signature=signature | {OUT_OF_FOLD: f"{len(order)}@{digest([run.signature[FOLD_SPLIT] for run in runs])}"},
        predictions={OUT_OF_FOLD: pooled},
        texts={OUT_OF_FOLD: [texts[row] for row in order]},
    )


def fold_scores(metric: str, runs: Sequence[Run]) -> Floats:
    """Return the score of each fold, shape (k,)."""
    folds = [run.predictions[FOLD_SPLIT] for run in runs]
    return np.array([scores([metric], fold.labels, fold.predicted, fold.probability)[metric] for fold in folds])


def describe_degenerate_runs(side: Side, split: str) -> str:
    """Describe the runs of a side with the same prediction for all examples of a split, although the labels differ.

    If the models are compared by a ranking metric, such as ROC AUC, the probabilities must be the same, too.

    A fold may be so small that a good model has the same prediction for all of it. So the examples of a fold and of the
    validation split of its run count together. The description is empty if there are no such runs.
    """
    task, runs = side.runs[0].task, side.folds or side.runs
    splits = [FOLD_SPLIT, "validation"] if side.folds else [split]
    is_ranking = METRICS[task.metrics[0]].is_ranking
    names = [run.name for run in runs if _is_degenerate([run.predictions[name] for name in splits], is_ranking)]
    if not names:
        return ""
    count = f" in {len(names)} of {len(runs)} runs ({', '.join(names)})" if len(runs) > 1 else ""
    examples = f"{task.noun} of the fold and of validation" if side.folds else f"{split} {task.noun}"
    return f"{side.name} is degenerate{count}, with the same prediction for all {examples}"


def _is_degenerate(splits: Sequence[Predictions], is_ranking: bool) -> bool:
    predicted = np.concatenate([split.predicted for split in splits])
    if is_ranking:
        predicted = np.concatenate([split.probability for split in splits]).round(PROBABILITY_DECIMALS)
    labels = np.concatenate([split.labels for split in splits])
    return len(np.unique(predicted, axis=0)) == 1 and len(np.unique(labels, axis=0)) > 1
