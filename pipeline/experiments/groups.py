"""Groups of runs: seeds, folds, and the sizes of a learning curve. Each size is a seed group."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core.data_card import read_data_card
from pipeline.core.messages import UserError
from pipeline.core.paths import RAW, SOURCE, read_json
from pipeline.core.task import TRAIN
from pipeline.evaluation.intervals import BOUNDS, MIN_EXAMPLES, Interval, difference, jackknife, score_interval
from pipeline.evaluation.metrics import METRICS, Floats
from pipeline.experiments.launch import FOLD, SEED, group_name, require_experiments, split_overrides
from pipeline.experiments.power_law import MIN_SIZES, plausible_curves, predicted_errors
from pipeline.experiments.runs import Side, hash_record, read_side
from pipeline.params import load_params

SCORE_UNITS = "Scores are in percent. Errors such as RMSE have their own units."
SIZE = "train.max_train_samples"
_MIN_ROWS = 10  # in the smallest sample
_SPLIT = "validation"


def run_seeds(n: int, overrides: Sequence[str], jobs: int) -> Side:
    """Run the seeds from 1 to n that are not finished, `jobs` at a time. Raises UserError if a run fails."""
    group = group_name(overrides)
    runs = {f"{group}-{seed}": [*overrides, f"{SEED}={seed}"] for seed in range(1, n + 1)}
    require_experiments(runs, jobs, ["predict"])
    return read_side(group, seeds=n)


def run_folds(k: int, overrides: Sequence[str], jobs: int) -> tuple[Side, Side]:
    """Run the folds that are not finished, `jobs` at a time. Raises UserError if a run fails.

    Returns:
        The fold group of the fine-tuned models, and that of the linear models.
    """
    group = f"folds{k}-{group_name(overrides, FOLD)}"
    runs = {f"{group}-{number}": [*overrides, f"{FOLD}={number}/{k}"] for number in range(1, k + 1)}
    require_experiments(runs, jobs, ["predict", "baseline"])
    return read_side(group), read_side(group, linear=True)


def run_sizes(points: int, seeds: int, overrides: Sequence[str], jobs: int) -> dict[int, Side]:
    """Run seed groups with all rows of train, a half, a quarter and so on, and return them by size, smallest first.

    Raises UserError if a run fails, the size is already set, or data/raw has too few rows or is not the runs' data.
    """
    if load_params().train.max_train_samples is not None or SIZE in split_overrides(overrides):
        raise UserError(f"{SIZE} is chosen for each run. Set it to null in params.yaml, and do not use it with -S.")
    if any(key.startswith("data.") for key in split_overrides(overrides)):
        raise UserError("The sizes follow from data/raw. Set data in params.yaml, not with -S, and run this again.")
    rows = read_data_card(RAW).splits[TRAIN].rows
    sizes = [rows >> halvings for halvings in range(points)]
    if sizes[-1] < _MIN_ROWS:
        raise UserError(
            f"train has {rows:,} rows, so the smallest of {points} samples would have {sizes[-1]}, and it needs at "
            f"least {_MIN_ROWS}. Use fewer --points (at least {MIN_SIZES}), or add rows."
        )
    settings = {size: [*overrides, *([f"{SIZE}={size}"] if size < rows else [])] for size in sizes}
    groups = {size: group_name(settings[size]) for size in sizes}
    runs = {
        f"{groups[size]}-{seed}": [*settings[size], f"{SEED}={seed}"] for size in sizes for seed in range(1, seeds + 1)
    }
    require_experiments(runs, jobs, ["predict"])
    sides = {size: read_side(groups[size], seeds=seeds) for size in reversed(sizes)}
    if sides[rows].runs[0].origin["data"] != hash_record(read_json(RAW / SOURCE, "download")):
        raise UserError(
            f"{RAW} is not the data that the runs have learned from, so the sizes may be wrong. Set the keys of data "
            'in params.yaml, not with -S. Run "dvc repro download" and this command again.'
        )
    return sides


def learning_curve(sides: Mapping[int, Side]) -> dict[str, Any]:
    """Return the content of curve.json: the scores, the curve through them, and the gains from more rows.

    If the scores do not allow a prediction, `curve` and `gains` are empty, and `unknown` has the reason.

    Args:
        sides: The seed groups by their number of rows, in ascending order.
    """
    largest = max(sides)
    task, examples = sides[largest].task, len(sides[largest].runs[0].predictions[_SPLIT])
    name = task.metrics[0]
    scores = {
        rows: np.array([jackknife(name, run.predictions[_SPLIT]) for run in side.runs]) for rows, side in sides.items()
    }
    points = [
        {
            "rows": rows, "group": side.name, "scores": scores[rows][:, 0].tolist(),
            **_mean_interval(name, side, scores[rows])._asdict(), "degenerate": side.degenerate(_SPLIT),
        }
        for rows, side in sides.items()
    ]  # fmt: skip
    content = {"metric": name, "examples": examples, "points": points, "curve": [], "gains": [], "unknown": None}
    # A degenerate model has learned nothing, so it says nothing about the curve.
    fitted = {point["rows"]: scores[point["rows"]] for point in points if not point["degenerate"]}
    if examples < MIN_EXAMPLES:
        content["unknown"] = f"{_SPLIT} has only {examples} {task.noun}, and a prediction needs {MIN_EXAMPLES}"
    elif len(fitted) < MIN_SIZES or largest not in fitted:
        content["unknown"] = (
            f"a prediction needs {MIN_SIZES} sizes, one of them with all rows, in which every model has learned "
            "something. Try more train.epochs, a smaller train.batch_size or another train.lr"
        )
    else:
        content |= _prediction(name, fitted)
    return content


def _mean_interval(name: str, side: Side, scores: Floats) -> Interval:
    """Return the mean score of some runs and its 95% interval, over other seeds and other examples.

    Args:
        scores: The jackknife of each run, shape (seeds, 1 + groups).
    """
    mean = difference(np.zeros_like(scores), scores, same_seeds=True)
    if mean.low == mean.high:  # All runs have the same score at a bound, such as a perfect one.
        return score_interval(name, side.task, side.runs[0].predictions[_SPLIT])
    low, high = np.clip([mean.low, mean.high], *BOUNDS[METRICS[name].scale]).tolist()
    return Interval(mean.value, low, high)


def _prediction(name: str, scores: Mapping[int, Floats]) -> dict[str, Any]:
    """Return the fitted curve up to twice the number of rows, and the gains from more rows.

    Args:
        scores: The jackknife of each run, shape (seeds, 1 + groups), keyed by the number of rows in ascending order.
    """
    metric, rows = METRICS[name], list(scores)
    largest, perfect = rows[-1], 0 if metric.is_error else 1
    curves = plausible_curves(np.array(rows) / largest, np.abs(perfect - np.array(list(scores.values()))))
    errors_with_all_rows = predicted_errors(curves, 1)

    def change(size: int) -> Floats:
        """Return the 10%, 50% and 90% quantiles of how much the score changes from all rows to this many rows."""
        changes = metric.sign * (errors_with_all_rows - predicted_errors(curves, size / largest))
        return np.quantile(changes, [0.1, 0.5, 0.9])

    def entry(size: int, values: Floats) -> dict[str, Any]:
        return {"rows": size, **dict(zip(("low", "value", "high"), values.tolist(), strict=True))}

    score_with_all_rows = perfect - metric.sign * np.median(errors_with_all_rows)
    sizes = {*rows, *np.geomspace(rows[0], 2 * largest).astype(int).tolist(), 2 * largest}
    curve = [entry(size, np.clip(score_with_all_rows + change(size), *BOUNDS[metric.scale])) for size in sorted(sizes)]
    gains = [entry(more, change(largest + more)) for more in (largest // 4, largest // 2, largest)]
    return {"curve": curve, "gains": gains}
