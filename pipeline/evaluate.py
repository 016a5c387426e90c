"""Compute scores with confidence intervals, calibration, and plot data."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any

from pipeline.cli import run_stage

import numpy as np

from pipeline.core.messages import UserError, log
from pipeline.core.output import rounded, write_details, write_json, write_text
from pipeline.core.parquet import read_split, to_numpy
from pipeline.core.paths import LINEAR, METRICS_DIR, PREDICTIONS, RAW
from pipeline.core.task import TRAIN, Task, read_task
from pipeline.evaluation.diagnostics import PLOTS, best_threshold, constant_predictions, diagnostics, plots
from pipeline.evaluation.metrics import METRICS, PROBABILITY_DECIMALS, Values, loss, scores, with_compared_metrics
from pipeline.evaluation.predictions import Predictions, count_changed, load_predictions
from pipeline.evaluation.signature import as_line, signature
from pipeline.evaluation.uncertainty import MIN_CHANGED, Interval, difference, jackknife, score_intervals
from pipeline.params import Params


def evaluate(raw: Path, predictions: Path, linear: Path, metrics: Path, names: list[str] | None = None) -> None:
    """Write evaluation.json and diagnostics.json to `metrics`, and the plots to `metrics/plots`.

    evaluation.json has, for each split with labels, the metrics by which models are compared, the loss, and the metrics
    of a linear model and of a constant baseline, which always predicts the majority class or the mean of train.
    diagnostics.json has all metrics and more: see `diagnostics.diagnostics`. For each split, it has the 95% `intervals`
    of the model's metrics, and `gain_over_linear`: by how much each metric is higher than that of the linear model,
    with its 95% interval. It also has the `constant_prediction` of the constant baseline. With two classes, it has the
    `threshold` with the best F1 on validation. A number that is undefined, such as the precision of a class that is
    never predicted, is null, and so is a bound at infinity.

    Args:
        raw: The output of the stage download.
        predictions: The output of the stage predict.
        linear: The output of the stage baseline.
        metrics: The directory to write to.
        names: The metrics by which models are compared. None means the default metrics of the task.

    Raises:
        UserError: Predictions are missing, or those of the two models are about different examples, or a metric does
            not apply to the task.
    """
    task = with_compared_metrics(read_task(predictions, "predict"), names)
    splits = {split: load_predictions(predictions, split, task) for split in task.scored_splits}
    details: dict[str, Any] = {"metrics": task.metrics, "signature": signature(predictions, task, splits)}
    threshold = None
    if task.binary:
        validation = splits["validation"]
        assert validation.probability is not None
        # The threshold will be compared with the rounded probabilities of new predictions.
        probability = validation.probability[:, 1].round(PROBABILITY_DECIMALS)
        threshold = details["threshold"] = best_threshold(validation.labels, probability)
    train_labels = to_numpy(read_split(raw, TRAIN, "download")["label"])
    [constant], _ = constant_predictions(task, train_labels, 1)
    details["constant_prediction"] = constant.tolist()
    evaluation = {}
    points: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for split, examples in splits.items():
        linear_examples = _load_linear(linear, split, task, examples)
        evaluation[split], intervals = _score(task, split, examples, linear_examples, train_labels)
        details[split] = diagnostics(task, examples, threshold)
        details[split]["intervals"] = {name: _finite(interval) for name, interval in intervals.items()}
        details[split]["gain_over_linear"] = _gains(task, linear_examples, examples)
        for name, rows in plots(task, examples).items():
            points[name] += [(split, *row) for row in rows]
    log.info("score signature: %s", as_line(details["signature"]))
    for name, header in PLOTS.items():
        _write_csv(metrics / "plots" / f"{name}.csv", ("split", *header), points[name])
    write_details(metrics / "diagnostics.json", details)
    write_json(metrics / "evaluation.json", evaluation)


def _load_linear(directory: Path, split: str, task: Task, examples: Predictions) -> Predictions:
    """Read the predictions of the linear model for the same examples."""
    linear = load_predictions(directory, split, task, "baseline")
    if not np.array_equal(linear.idx, examples.idx):
        raise UserError(
            f'{directory}/{split}.parquet and the predictions are about different {task.noun}. Run "dvc repro".'
        )
    return linear


def _gains(task: Task, linear: Predictions, model: Predictions) -> dict[str, dict[str, float]] | None:
    """Return by how much each metric of the model is higher than that of the linear model, with 95% intervals.

    Returns None if the two models differ in too few examples for an interval.
    """
    if count_changed(task, [linear], [model]) < MIN_CHANGED:
        return None
    gains = {}
    for name in task.metrics:
        a, b = (jackknife(name, run.labels, run.predicted, run.probability)[np.newaxis] for run in (linear, model))
        gain = difference(a, b, same_seeds=True)
        gains[name] = {"value": gain.value, "low": gain.low, "high": gain.high}
    return gains


def _finite(interval: Interval) -> dict[str, float | None]:
    """Return an interval for JSON, which has no infinity. Only the error of a single example has no upper bound."""
    return {name: bound if isfinite(bound) else None for name, bound in interval._asdict().items()}


def _score(
    task: Task, split: str, examples: Predictions, linear: Predictions, train_labels: Values
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Score a split, log the result, and return its entry for evaluation.json and the intervals of the metrics."""
    guesses = constant_predictions(task, train_labels, len(examples.labels))
    values = scores(task.metrics, examples.labels, examples.predicted, examples.probability)
    intervals = score_intervals(task.metrics, examples.labels, examples.predicted, examples.probability)
    guessed = scores(task.metrics, examples.labels, *guesses)
    linear_scores = scores(task.metrics, examples.labels, linear.predicted, linear.probability)
    single = task.problem_type == "single_label_classification"
    log.info(
        "%s (%s %s): %s, with 95%% intervals. A linear model gives %s, and always predicting %s gives %s.",
        split,
        f"{len(examples.labels):,}",
        task.noun,
        ", ".join(_format_score(name, values[name], intervals[name]) for name in task.metrics),
        _format_scores(linear_scores),
        f'"{task.labels[guesses[0][0]]}"' if single else f"the {task.constant_baseline} of train",
        _format_scores(guessed),
    )
    entries = {
        **values,
        "loss": loss(task.problem_type, examples.logits, examples.labels),
        **{f"linear_{name}": score for name, score in linear_scores.items()},
        **{f"{task.constant_baseline}_{name}": score for name, score in guessed.items()},
        "n": len(examples.labels),
    }
    return entries, intervals


def _format_scores(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {METRICS[name].format_for_log(value)}" for name, value in values.items())


def _format_score(name: str, value: float, interval: Interval) -> str:
    format_score = METRICS[name].format_for_log
    return f"{name} {format_score(value)} ({format_score(interval.low)} to {format_score(interval.high)})"


def _write_csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[rounded(cell) if isinstance(cell, float) else cell for cell in row] for row in rows])
    write_text(path, out.getvalue())


def main(params: Params) -> None:
    evaluate(RAW, PREDICTIONS, LINEAR, METRICS_DIR, params.evaluate.metrics)


if __name__ == "__main__":
    run_stage("evaluate", main)
