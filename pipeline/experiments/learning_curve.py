"""Learning curves: train on nested samples of train, and extrapolate how much the score would gain from more rows."""

from math import inf
from typing import Any

import numpy as np

from pipeline.core.messages import UserError, log
from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS, Floats
from pipeline.evaluation.signature import as_line
from pipeline.evaluation.uncertainty import difference, jackknife
from pipeline.experiments.comparison import Side, degenerate, judged_by
from pipeline.experiments.groups import OPTIMISTIC, group_name
from pipeline.experiments.identity import SEED, overridden
from pipeline.experiments.power_law import FEWEST_SIZES, plausible_curves
from pipeline.experiments.render import SCORE_UNITS
from pipeline.experiments.revisions import experiment_commits, read_runs, read_train_rows
from pipeline.experiments.running import Experiment, cost, require_success, run_group

SIZE = "train.max_train_samples"
_SPLIT = "validation"
_FEWEST_ROWS = 20  # in the smallest sample
_BOUNDS = {"proportion": (0, 1), "correlation": (-1, 1), "error": (0, inf)}
_DRAWN = 40  # points of the curve
_CAVEATS = [
    "All sizes have the same number of epochs, so a smaller sample gets fewer optimizer steps.",
    "The gains hold only for new rows from the same source as the rows of train.",
    "The form of the curve is an assumption, so there is no prediction beyond twice the number of rows.",
]


def run_learning_curve(sizes: int, seeds: int, overrides: list[str], jobs: int) -> dict[str, Any]:
    """Run the seeds of all sizes that are not finished, `jobs` at a time, and return the content of curve.json.

    Each size is a seed group. The largest one has all rows, so it is the group of `python -m pipeline.seeds`. Its first
    run comes first, because the data card in its version of the data says how many rows there are.

    Raises:
        UserError: A run failed, after the other runs that have started have ended; or train has too few rows, or
            the sample size is already set.
    """
    params = overridden(overrides)
    if params.train.max_train_samples is not None:
        raise UserError(f"{SIZE} is chosen for each run. Set it to null.")
    group = group_name(overrides)
    name = f"{group.replace('seeds', 'curve')}-{sizes}x{seeds}"
    fractions = [0.5**halvings for halvings in range(sizes)]
    first = Experiment(f"{group}-1", overrides, f"{SEED}=1", f"run 1 of {sizes * seeds}")
    if first.name not in experiment_commits():
        log.info("%s: the first run has all rows of train. Their number determines the other sizes.", name)
        log.info("%s", cost(fractions * seeds))
        require_success([first], 1)

    all_rows = read_train_rows(first.name)
    rows = [int(all_rows * fraction) for fraction in fractions]
    _require_enough(all_rows, sizes)
    settings = [overrides, *([*overrides, f"{SIZE}={number}"] for number in rows[1:])]
    groups = [group_name(setting) for setting in settings]
    experiments = [
        Experiment(
            f"{groups[size]}-{seed}", settings[size], f"{SEED}={seed}",
            f"run {size * seeds + seed} of {sizes * seeds}, {rows[size]:,} rows", fraction=fractions[size],
        )
        for size in range(sizes)
        for seed in range(1, seeds + 1)
    ]  # fmt: skip
    run_group(name, experiments, jobs)

    sides = []
    for size in reversed(range(sizes)):
        runs = [run for run in read_runs(groups[size]) if run.seed <= seeds]  # Another command may have run more.
        sides.append(Side(groups[size], [judged_by(run, params.evaluate.metrics) for run in runs]))
    caveats = [OPTIMISTIC, *_CAVEATS] if params.train.keep == "best" else _CAVEATS
    return {"name": name, "caveats": caveats, **_content(sides, rows[::-1])}


def _require_enough(rows: int, sizes: int) -> None:
    """Raise UserError if the smallest sample would have too few rows."""
    if rows // 2 ** (sizes - 1) >= _FEWEST_ROWS:
        return
    most = (rows // _FEWEST_ROWS).bit_length()
    if most < FEWEST_SIZES:
        needed = _FEWEST_ROWS * 2 ** (FEWEST_SIZES - 1)
        raise UserError(f"train has {rows:,} rows, but a learning curve needs at least {needed}.")
    raise UserError(
        f"train has {rows:,} rows, so the smallest of {sizes} samples would have {rows // 2 ** (sizes - 1)}. The "
        f"smallest one needs at least {_FEWEST_ROWS} rows. Type --points {most}."
    )


def _content(sides: list[Side], rows: list[int]) -> dict[str, Any]:
    """Compute the scores of each size, the curve through them, and what more rows would change.

    Args:
        sides: The seed groups, the one with the smallest sample first.
        rows: The number of rows of each one.
    """
    last = sides[-1].runs[0]
    metric, name, largest = METRICS[last.task.metrics[0]], last.task.metrics[0], rows[-1]
    predictions = [[run.predictions[_SPLIT] for run in side.runs] for side in sides]
    jackknives = np.array(
        [[jackknife(name, run.labels, run.predicted, run.probability) for run in runs] for runs in predictions]
    )
    is_error = metric.scale == "error"
    curves = plausible_curves(np.array(rows), jackknives if is_error else 1 - jackknives)

    def predicted_scores(numbers: list[int]) -> Floats:
        errors = curves.errors(numbers)
        return errors if is_error else 1 - errors

    now = predicted_scores([largest])

    def changes(number: int) -> list[float]:
        """Return the 10%, 50% and 90% quantiles of the score with this number of rows minus the score with all rows."""
        quantiles: list[float] = np.quantile(predicted_scores([number]) - now, [0.1, 0.5, 0.9]).tolist()
        return quantiles

    points = []
    for side, number, runs in zip(sides, rows, jackknives, strict=True):
        mean = difference(np.zeros_like(runs), runs, same_seeds=True)
        low, high = np.clip([mean.low, mean.high], *_BOUNDS[metric.scale]).tolist()
        points.append({
            "rows": number, "group": side.name, "scores": runs[:, 0].tolist(), "value": mean.value, "low": low,
            "high": high, "warning": degenerate(side, _SPLIT),
        })  # fmt: skip
    curve = []
    for number in sorted({*rows, *np.geomspace(rows[0], 2 * largest, _DRAWN).astype(int).tolist(), 2 * largest}):
        low, middle, high = np.clip(np.median(now) + changes(number), *_BOUNDS[metric.scale]).tolist()
        # The band is the uncertainty of the change from here on. The points have intervals of their own.
        band = {"low": low, "high": high} if number >= largest else {}
        curve.append({"rows": number, "value": middle, **band})
    gains = []
    for more in (_round_down(largest // part) for part in (4, 2, 1)):
        low, middle, high = changes(largest + more)
        gains.append({"rows": more, "value": middle, "low": low, "high": high})
    return {
        "metric": name, "examples": len(predictions[0][0].labels), "noun": last.task.noun, "points": points,
        "curve": curve, "gains": gains, "signature": as_line(sides[-1].signature),
    }  # fmt: skip


def _round_down(number: int) -> int:
    """Keep the first two digits."""
    unit = 10 ** max(len(str(number)) - 2, 0)
    return number // unit * unit


def describe_gains(content: dict[str, Any]) -> list[str]:
    """Return a sentence about each of the gains in curve.json."""
    metric = METRICS[content["metric"]]
    unit = f"in {_SPLIT} {metric.title}" if metric.scale == "error" else f"points of {_SPLIT} {metric.title}"
    return [
        f"{gain['rows']:,} more rows: {metric.format_difference(gain['low'])} to "
        f"{metric.format_difference(gain['high'])} {unit} (80% interval)"
        for gain in content["gains"]
    ]


def as_text(content: dict[str, Any]) -> list[str]:
    """Format the content of curve.json for a terminal, as a list of lines."""
    metric, points = METRICS[content["metric"]], content["points"]
    table = [["", "rows", "seeds", f"{_SPLIT} {metric.title}", "95% confidence interval"]]
    for point in points:
        value, low, high = (metric.format(point[key], 2) for key in ("value", "low", "high"))
        table.append([point["group"], f"{point['rows']:,}", f"{len(point['scores'])}", value, f"{low} to {high}"])
    return [
        *aligned(table, "right"),
        SCORE_UNITS,
        f"The intervals reflect the choice of seeds and of examples ({content['examples']:,} {_SPLIT} "
        f"{content['noun']}).",
        *(f"Warning: {point['warning']}." for point in points if point["warning"]),
        "",
        *describe_gains(content),
        "",
        *content["caveats"],
        f"Signature: {content['signature']}",
        f"To compare two sizes: python -m pipeline.compare {points[-2]['group']} {points[-1]['group']}",
    ]
