"""Cross-validation: score each labeled row of train and validation with a model that has not seen it."""

import re
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output, write_json
from pipeline.core.text import aligned
from pipeline.evaluation.diagnostics import constant_predictions
from pipeline.evaluation.metrics import METRICS, scores
from pipeline.evaluation.signature import as_line
from pipeline.evaluation.uncertainty import score_caveats, score_intervals
from pipeline.experiments.comparison import compare
from pipeline.experiments.identity import FOLD_KEY, identity, load_overridden_params
from pipeline.experiments.render import SCORE_UNITS
from pipeline.experiments.running import Experiment, run_group
from pipeline.experiments.sides import FOLD_SPLIT, OUT_OF_FOLD, Side, describe_degenerate_runs, fold_scores, read_side

FOLDS = Path("folds")


def run_folds(k: int, overrides: list[str], jobs: int) -> None:
    """Run the folds that are not finished, `jobs` at a time, and write and print the scores over all rows.

    predictions.parquet and scores.json are written to `folds/<name of the fold group>`.

    Raises:
        UserError: predict.max_samples is set, a text column has the name of a column of predictions.parquet, or a run
            failed. The runs that had already started are finished first.
    """
    params = load_overridden_params(overrides, FOLD_KEY)
    if params.predict.max_samples is not None:
        raise UserError("predict.max_samples must be null, so that the models predict all rows of their folds.")
    for name in params.data.text_column_names:
        if name == "fold" or re.fullmatch("logit_[0-9]+", name):
            raise UserError(
                f'predictions.parquet has a column "{name}" of its own. Rename the text column in your data.'
            )
    group = f"folds-{identity(overrides, FOLD_KEY)}-{k}"
    experiments = [
        Experiment(f"{group}-{number}", overrides, f"{FOLD_KEY}={number}/{k}", f"fold {number} of {k}")
        for number in range(1, k + 1)
    ]
    run_group(group, experiments, jobs)
    side = read_side(group, params)
    directory = FOLDS / group
    _write_predictions(directory / "predictions.parquet", side)
    linear_side = read_side(group, params, linear=True)
    content = _score_folds(side, linear_side)
    write_json(directory / "scores.json", content)
    print("\n".join(_summary(content, side, linear_side, directory)))


def _write_predictions(path: Path, side: Side) -> None:
    """Write a row for each labeled row, ordered by `idx`.

    The columns are `idx`, `fold`, the text columns, `label`, `prediction`, and `logit_0`, `logit_1` and so on.
    """
    [run] = side.runs
    pooled = run.predictions[OUT_OF_FOLD]
    idx_by_fold = [fold.predictions[FOLD_SPLIT].idx for fold in side.folds]
    fold_numbers = np.repeat(np.arange(len(idx_by_fold)) + 1, [len(idx) for idx in idx_by_fold])
    columns = {
        "idx": pooled.idx,
        "fold": fold_numbers[np.argsort(np.concatenate(idx_by_fold))],
        **dict(zip(run.task.text_columns, zip(*run.texts[OUT_OF_FOLD], strict=True), strict=True)),
        "label": list(pooled.labels),
        "prediction": list(pooled.predicted),
        **{f"logit_{output}": column for output, column in enumerate(pooled.logits.T)},
    }
    with atomic_output(path) as draft:
        pq.write_table(pa.table(columns), draft)


def _score_folds(side: Side, linear_side: Side) -> dict[str, Any]:
    """Return the content of scores.json."""
    [run] = side.runs
    [linear_run] = linear_side.runs
    pooled, linear, task = run.predictions[OUT_OF_FOLD], linear_run.predictions[OUT_OF_FOLD], run.task
    arguments = pooled.labels, pooled.predicted, pooled.probability
    values, intervals = scores(task.metrics, *arguments), score_intervals(task.metrics, *arguments)
    linear_values = scores(task.metrics, linear.labels, linear.predicted, linear.probability)
    # The models of all folds together learn from the same rows that they predict.
    constant = constant_predictions(task, pooled.labels, len(pooled.labels))
    guesses = scores(task.metrics, pooled.labels, *constant)
    metrics = {
        name: {
            "value": values[name],
            "low": intervals[name].low,
            "high": intervals[name].high,
            "folds": fold_scores(name, side.folds).tolist(),
            "linear": linear_values[name],
            task.constant_baseline: guesses[name],
        }
        for name in task.metrics
    }
    return {"n": len(pooled.idx), "metrics": metrics}


def _summary(content: dict[str, Any], side: Side, linear_side: Side, directory: Path) -> list[str]:
    """Return the lines of the table of scores, and what to type next."""
    [run] = side.runs
    pooled, task = run.predictions[OUT_OF_FOLD], run.task
    header = ["", "all rows", "95% confidence interval", "mean of folds", "std. dev.", "lowest", "highest"]
    rows = [[*header, "linear", task.constant_baseline]]
    for name, entry in content["metrics"].items():
        metric, folds = METRICS[name], entry["folds"]
        statistics = [mean(folds), stdev(folds), min(folds), max(folds)]
        statistics += [entry["linear"], entry[task.constant_baseline]]
        rows.append([
            f"{OUT_OF_FOLD} {metric.title}",
            metric.format(entry["value"], 2),
            f"{metric.format(entry['low'], 2)} to {metric.format(entry['high'], 2)}",
            *(metric.format(value, 2) for value in statistics),
        ])  # fmt: skip
    return [
        *aligned(rows, "right"),
        SCORE_UNITS,
        f"These are the {content['n']:,} labeled {task.noun} of train and validation. Each one was predicted by a "
        "model that was not trained on it.",
        "The interval reflects the choice of the rows that these models predict, but not of the rows that they learned "
        "from.",
        describe_gain(linear_side, side),
        *score_caveats(task.metrics, task, OUT_OF_FOLD, pooled.labels, split_type=run.split_parameters.get("type")),
        *([f"Warning: {warning}."] if (warning := describe_degenerate_runs(side, OUT_OF_FOLD)) else []),
        f"Signature: {as_line(run.signature)}",
        f"Predictions: {directory / 'predictions.parquet'}",
        f"To compare with another group: python -m pipeline.compare {side.name} OTHER",
    ]


def describe_gain(linear_side: Side, side: Side) -> str:
    """Return a sentence about the difference from the linear model."""
    try:
        return f"Difference from the linear model: {compare(linear_side, side).difference_phrase}"
    except UserError as error:  # The metric is not defined in a fold.
        return f"Warning: These scores cannot be compared with the linear model. {error}"
