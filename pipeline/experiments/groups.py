"""Groups of runs: seeds, folds, and the sizes of a learning curve. Each size is a seed group."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.data_card import read_data_card
from pipeline.core.messages import UserError, log
from pipeline.core.paths import RAW, SOURCE, read_json
from pipeline.core.task import TRAIN
from pipeline.evaluation.intervals import BOUNDS, MIN_EXAMPLES, difference, jackknife, score_interval
from pipeline.evaluation.metrics import METRICS, Floats
from pipeline.experiments.launch import FOLD, SEED, STAGES, group_name, hash_record, run_experiments, split_overrides
from pipeline.experiments.power_law import MIN_SIZES, plausible_curves, predicted_errors
from pipeline.experiments.runs import BASELINE_STAGES, Side, read_side
from pipeline.params import load_params

SCORE_UNITS = "Scores are in percent. Errors such as RMSE have their own units."
SIZE = "train.max_train_samples"
_SPLIT = "validation"
_TOO_FEW = f"fewer than {MIN_EXAMPLES} {_SPLIT} rows can be scored"


def run_seeds(n: int, settings: Sequence[Sequence[str]], jobs: int) -> list[Side]:
    """Run the seeds from 1 to n of each list of overrides. Runs that are finished do not run again."""
    groups = {group_name(overrides): overrides for overrides in settings}
    runs = {f"{group}-{seed}": [*groups[group], f"{SEED}={seed}"] for group in groups for seed in range(1, n + 1)}
    run_experiments(runs, jobs, ["predict"])
    return [Side(group, read_side(group).runs[:n]) for group in groups]


def run_folds(k: int, overrides: Sequence[str], jobs: int, model: str) -> tuple[Side, dict[str, Side]]:
    """Run the folds that are not finished. Return the fold group of `model`, and those of simpler models by name."""
    stages = BASELINE_STAGES if model == "frozen" else (*STAGES, "baseline")
    group = f"folds{k}-{group_name(overrides, FOLD, stages)}"
    if model == "frozen":
        group, overrides = f"frozen-{group}", [*overrides, "baseline.frozen=true"]
    runs = {f"{group}-{number}": [*overrides, f"{FOLD}={number}/{k}"] for number in range(1, k + 1)}
    run_experiments(runs, jobs, stages)
    simpler = {"linear": read_side(group, "linear")}
    if model != "frozen" and simpler["linear"].runs[0].origin["baseline.frozen"]:
        simpler["frozen"] = read_side(group, "frozen")
    return read_side(group), simpler


def run_sizes(points: int, seeds: int, overrides: Sequence[str], jobs: int) -> dict[int, Side]:
    """Run seed groups with all rows of train, a half, a quarter and so on, and return them by size, smallest first."""
    is_changed = any(key.startswith(("data.", SIZE)) for key in split_overrides(overrides))
    if is_changed or load_params().train.max_train_samples is not None:
        raise UserError(f"the sizes follow from {RAW}. Set {SIZE} to null, and do not use -S for it or for data.")
    splits = read_data_card(RAW).splits
    sizes = [splits[TRAIN].rows >> halvings for halvings in range(points)]
    if sizes[-1] == 0:
        raise UserError(f"train has {sizes[0]:,} rows, too few for {points} sizes. Use a smaller number of --points.")
    if splits[_SPLIT].rows < MIN_EXAMPLES:
        log.warning("the answer to how much more rows would help will be unknown, because %s", _TOO_FEW)
    settings = [overrides, *([*overrides, f"{SIZE}={size}"] for size in sizes[1:])]
    sides = run_seeds(seeds, settings, jobs)
    if sides[0].runs[0].origin["data"] != hash_record(read_json(RAW / SOURCE)):
        raise UserError(f'{RAW} is not the data of the runs. Run "dvc repro download" and this command again.')
    return dict(zip(sizes[::-1], sides[::-1], strict=True))


def learning_curve(sides: Mapping[int, Side]) -> dict[str, Any]:
    """Return the content of curve.json from the seed groups by their number of rows, in ascending order.

    If the scores do not allow a prediction, `curve` and `gains` are empty, and `unknown` has the reason.
    """
    largest = max(sides)
    name = sides[largest].task.metrics[0]
    points, learned = [], dict[int, Floats]()
    for rows, side in sides.items():
        scores = np.array([jackknife(name, run.predictions[_SPLIT]) for run in side.runs])
        mean = difference(np.zeros_like(scores), scores, same_seeds=True)
        low, high = np.clip([mean.low, mean.high], *BOUNDS[METRICS[name].scale]).tolist()
        if low == high:  # All runs have the same score at a bound, such as a perfect one.
            _, low, high = score_interval(name, side.task, side.runs[0].predictions[_SPLIT])
        degenerate = side.degenerate(_SPLIT)
        if not degenerate:  # A model that has learned nothing says nothing about the curve.
            learned[rows] = scores
        point = {"rows": rows, "group": side.name, "scores": scores[:, 0].tolist(), "degenerate": degenerate}
        points.append(point | {"value": mean.value, "low": low, "high": high})
    content: dict[str, Any] = {"metric": name, "points": points, "curve": [], "gains": [], "unknown": None}
    if len(sides[largest].runs[0].predictions[_SPLIT]) < MIN_EXAMPLES:
        return content | {"unknown": _TOO_FEW}
    if len(learned) < MIN_SIZES or largest not in learned:
        reason = f"a prediction needs {MIN_SIZES} sizes, including all rows, in which every model has learned something"
        return content | {"unknown": f"{reason}. Try more train.epochs, a smaller train.batch_size or another train.lr"}
    return content | _prediction(name, learned)


def _prediction(name: str, scores: Mapping[int, Floats]) -> dict[str, Any]:
    """Fit curves to the jackknives of the runs of each size, and predict the scores with up to twice as many rows."""
    metric, rows = METRICS[name], list(scores)
    largest, perfect = rows[-1], 0 if metric.is_error else 1
    curves = plausible_curves(np.array(rows) / largest, np.abs(perfect - np.array(list(scores.values()))))
    more_rows = [largest // 4, largest // 2, largest]
    larger_sizes = [largest + more for more in more_rows]
    sizes = sorted({*rows, *np.geomspace(rows[0], 2 * largest).astype(int).tolist(), *larger_sizes})
    errors_with_all_rows = predicted_errors(curves, 1)
    errors = np.array([predicted_errors(curves, size / largest) for size in sizes])
    quantiles = np.quantile(metric.sign * (errors_with_all_rows - errors), [0.1, 0.5, 0.9], axis=1)
    changes = pd.DataFrame(quantiles.T, sizes, ["low", "value", "high"])  # of the score, from all rows to each size
    score_with_all_rows = perfect - metric.sign * np.median(errors_with_all_rows)
    curve = (score_with_all_rows + changes).clip(*BOUNDS[metric.scale]).assign(rows=sizes)
    gains = changes.loc[larger_sizes].assign(rows=more_rows)
    return {"curve": curve.to_dict("records"), "gains": gains.to_dict("records")}
