"""Compute scores with confidence intervals, calibration, and plot data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.cli import run_stage
from pipeline.core.messages import UserError, log
from pipeline.core.output import write_details, write_json, write_text
from pipeline.core.parquet import read_rows, to_numpy
from pipeline.core.paths import BASELINES, METRICS_DIR, PREDICTIONS, RAW, require
from pipeline.core.task import TRAIN, Task, read_task
from pipeline.evaluation.diagnostics import PLOTS, best_threshold, constant_predictions, diagnostics, plots
from pipeline.evaluation.intervals import MIN_CHANGED, difference, jackknife, score_interval
from pipeline.evaluation.metrics import with_compared_metrics
from pipeline.evaluation.predictions import Predictions, count_changed, load_predictions
from pipeline.modeling.outputs import loss
from pipeline.params import Params


def evaluate(raw: Path, predictions: Path, baselines: Path, metrics: Path, names: Sequence[str] | None = None) -> None:
    """Write evaluation.json and diagnostics.json to `metrics`, and the plots to `metrics/plots`.

    evaluation.json has, for each split with labels, the metrics by which models are compared, the loss, and the metrics
    of simpler models: those of the stage baseline and a constant one, which always predicts the majority class or the
    mean of train. diagnostics.json has more: all metrics, 95% `intervals`, and `gain_over_linear` and
    `gain_over_frozen`, the differences between the model and these models with their intervals. With two classes, it
    has the `threshold` with the best F1 on validation. A number that is undefined, such as the precision of a class
    that is never predicted, is null.

    Args:
        raw, predictions, baselines: The outputs of the stages download, predict and baseline.
        metrics: The directory to write to.
        names: The metrics by which models are compared. None means the default metrics of the task.
    """
    task = with_compared_metrics(read_task(predictions), names)
    train_labels = to_numpy(read_rows(raw, TRAIN)["label"])
    splits = {split: load_predictions(predictions, split, task) for split in task.scored_splits}
    threshold = best_threshold(splits["validation"]) if task.is_binary else None
    details: dict[str, Any] = {"metrics": task.metrics, "threshold": threshold}
    directories = [path for path in sorted(require(baselines).iterdir()) if path.is_dir()]
    evaluation = {}
    for split, examples in splits.items():
        simpler = {path.name: load_predictions(path, split, task) for path in directories}
        if any(not np.array_equal(model.idx, examples.idx) for model in simpler.values()):
            raise UserError(f'{baselines} and {predictions} have different {split} {task.noun}. Run "dvc repro".')
        constant = constant_predictions(task, train_labels, examples)
        intervals = {name: score_interval(name, task, examples) for name in task.metrics}
        evaluation[split] = _scores(task, examples, simpler | {task.constant_baseline: constant})
        details["constant_prediction"] = constant.predicted[0].tolist()
        details[split] = diagnostics(task, examples, threshold) | {
            "intervals": {name: interval._asdict() for name, interval in intervals.items()},
            **{f"gain_over_{name}": _gains(task, model, examples) for name, model in simpler.items()},
        }
        texts = ["{} {:.4g} ({:.4g} to {:.4g})".format(name, *interval) for name, interval in intervals.items()]
        log.info("%s (%s %s): %s, with 95%% intervals", split, f"{len(examples):,}", task.noun, ", ".join(texts))
    _write_plots(metrics / "plots", {split: plots(task, examples) for split, examples in splits.items()})
    write_details(metrics / "diagnostics.json", details)
    write_json(metrics / "evaluation.json", evaluation)


def _scores(task: Task, examples: Predictions, simpler: Mapping[str, Predictions]) -> dict[str, float]:
    """Return the entry of a split in evaluation.json."""
    models = {"": examples} | {f"{name}_": model for name, model in simpler.items()}
    scores = {f"{prefix}{name}": model.score(name) for prefix, model in models.items() for name in task.metrics}
    return scores | {"loss": loss(task.problem_type, examples.logits, examples.labels), "n": len(examples)}


def _gains(task: Task, simple: Predictions, model: Predictions) -> dict[str, dict[str, float]] | None:
    """Return the gain in each metric with its interval, or None if the predictions differ in too few examples."""
    if count_changed(task, [simple], [model]) < MIN_CHANGED:
        return None
    gains = {}
    for name in task.metrics:
        a, b = (jackknife(name, examples)[np.newaxis] for examples in (simple, model))
        gain = difference(a, b, same_seeds=True)
        gains[name] = {"value": gain.value, "low": gain.low, "high": gain.high}
    return gains


def _write_plots(directory: Path, tables: dict[str, dict[str, pd.DataFrame]]) -> None:
    """Write the CSV files for `dvc plots`. `tables` are keyed by split and plot."""
    for name, columns in PLOTS.items():
        parts = [plots[name].assign(split=split) for split, plots in tables.items() if name in plots]
        table = pd.concat(parts) if parts else pd.DataFrame(columns=[*columns, "split"])
        text = table[["split", *columns]].to_csv(index=False, float_format="%.6g", lineterminator="\n")
        write_text(directory / f"{name}.csv", text)


def main(params: Params) -> None:
    evaluate(RAW, PREDICTIONS, BASELINES, METRICS_DIR, params.evaluate.metrics)


if __name__ == "__main__":
    run_stage("evaluate", main)
