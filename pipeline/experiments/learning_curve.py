"""Learning curves: train on nested samples of train, and extrapolate how much the score would gain from more rows."""

from typing import Any

import numpy as np

from pipeline.core.messages import UserError, log
from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS
from pipeline.evaluation.signature import as_line
from pipeline.evaluation.uncertainty import difference, jackknife
from pipeline.experiments.comparison import Side, degenerate, judged_by
from pipeline.experiments.groups import OPTIMISTIC, group_name
from pipeline.experiments.identity import SEED, overridden
from pipeline.experiments.power_law import FEWEST_SIZES, plausible_curves, predicted_errors
from pipeline.experiments.render import SCORE_UNITS
from pipeline.experiments.revisions import experiment_commits, read_runs, read_train_rows
from pipeline.experiments.running import Experiment, cost, require_success, run_group

SIZE = "train.max_train_samples"
_SPLIT = "validation"
_FEWEST_ROWS = 20  # in the smallest sample
_BOUNDS = {"proportion": (0, 1), "correlation": (-1, 1), "error": (0, np.inf)}
_CAVEATS = [
    "All sizes have the same number of epochs, so a smaller sample gets fewer optimizer steps.",
    "The gains hold only for new rows from the same source as the rows of train.",
    "The form of the curve is an assumption, so there is no prediction beyond twice the number of rows.",
]
_NO_PREDICTION = (
    f"No prediction: at least {FEWEST_SIZES} sizes, including all rows, must have no degenerate run. Try more "
    "train.epochs, a smaller train.batch_size or another train.lr."
)


def run_learning_curve(sizes: int, seeds: int, overrides: list[str], jobs: int) -> dict[str, Any]:
    """Run the seeds of all sizes that are not finished, `jobs` at a time, and return the content of curve.json.

    Each size is a seed group. The largest one has all rows, so it is the group of `python -m pipeline.seeds`. Its first
    run comes first, because the data card in its version of the data says how many rows there are.

    Raises:
        UserError: The size is already set, train has too few rows, or a run failed.
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

    rows = (read_train_rows(first.name) * np.array(fractions)).astype(int).tolist()
    _require_enough(rows)
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

    sides = [
        # Another command may have run more seeds.
        Side(group, [judged_by(run, params.evaluate.metrics) for run in read_runs(group) if run.seed <= seeds])
        for group in reversed(groups)
    ]
    caveats = [OPTIMISTIC, *_CAVEATS] if params.train.keep == "best" else _CAVEATS
    return {"name": name, "caveats": caveats, **_content(sides, rows[::-1])}


def _require_enough(rows: list[int]) -> None:
    """Raise UserError if the smallest sample, the last one, has too few rows."""
    if rows[-1] < _FEWEST_ROWS:
        points = (rows[0] // _FEWEST_ROWS).bit_length()
        remedy = f"Type --points {points}." if points >= FEWEST_SIZES else "That is too few for a learning curve."
        raise UserError(
            f"train has {rows[0]:,} rows, so the smallest of {len(rows)} samples would have {rows[-1]} rows, and it "
            f"needs at least {_FEWEST_ROWS}. {remedy}"
        )


def _content(sides: list[Side], rows: list[int]) -> dict[str, Any]:
    """Compute the scores, the curve through them, and what more rows would change, from the smallest sample on."""
    task, largest = sides[-1].runs[0].task, rows[-1]
    metric = METRICS[task.metrics[0]]
    scores, points = [], []  # A size with a degenerate run has a point but no scores, so the curve leaves it out.
    for side, number in zip(sides, rows, strict=True):
        runs = [run.predictions[_SPLIT] for run in side.runs]
        values = np.array([jackknife(task.metrics[0], run.labels, run.predicted, run.probability) for run in runs])
        mean = difference(np.zeros_like(values), values, same_seeds=True)
        low, high = np.clip([mean.low, mean.high], *_BOUNDS[metric.scale]).tolist()
        points.append({
            "rows": number, "group": side.name, "scores": values[:, 0].tolist(), "value": mean.value, "low": low,
            "high": high, "warning": degenerate(side, _SPLIT),
        })  # fmt: skip
        scores += [] if points[-1]["warning"] else [values]
    content = {
        "metric": task.metrics[0], "examples": len(runs[0].idx), "noun": task.noun, "points": points,
        "signature": as_line(sides[-1].signature),
    }  # fmt: skip
    if len(scores) < FEWEST_SIZES or points[-1]["warning"]:
        return content | {"curve": [], "gains": []}
    multiples = np.array([point["rows"] / largest for point in points if not point["warning"]])
    best = 0 if metric.scale == "error" else 1  # the score without an error
    curves = plausible_curves(multiples, np.abs(best - np.array(scores)))
    now = predicted_errors(curves, 1)

    def change(number: int, start: float = 0.0) -> dict[str, Any]:
        """Return the median and the 80% interval of how much better or worse the score is than with all rows."""
        changes = metric.sign * (now - predicted_errors(curves, number / largest))
        low, value, high = (start + np.quantile(changes, [0.1, 0.5, 0.9])).tolist()
        return {"rows": number, "value": value, "low": low, "high": high}

    drawn = np.geomspace(rows[0], 2 * largest).astype(int).tolist()
    level = float(best - metric.sign * np.median(now))
    more = [part - part % 10 ** (len(f"{part}") - 2) for part in (largest // 4, largest // 2, largest)]  # two digits
    curve = [change(number, level) for number in sorted({*rows, *drawn, 2 * largest})]
    return content | {"curve": curve, "gains": [change(largest + extra) | {"rows": extra} for extra in more]}


def describe_gains(content: dict[str, Any]) -> list[str]:
    """Return a sentence about each of the gains in curve.json, or about why there are none."""
    metric = METRICS[content["metric"]]
    unit = f"in {_SPLIT} {metric.title}" if metric.scale == "error" else f"points of {_SPLIT} {metric.title}"
    return [
        f"{gain['rows']:,} more rows: {metric.format_difference(gain['low'])} to "
        f"{metric.format_difference(gain['high'])} {unit} (80% interval)"
        for gain in content["gains"]
    ] or [_NO_PREDICTION]


def as_text(content: dict[str, Any]) -> list[str]:
    """Format the content of curve.json for a terminal, as a list of lines."""
    metric, points = METRICS[content["metric"]], content["points"]
    table = [["", "rows", "seeds", f"{_SPLIT} {metric.title}", "95% confidence interval"]]
    for point in points:
        value, low, high = (metric.format(point[key], 2) for key in ("value", "low", "high"))
        table.append([point["group"], f"{point['rows']:,}", f"{len(point['scores'])}", value, f"{low} to {high}"])
    examples = f"{content['examples']:,} {_SPLIT} {content['noun']}"
    return [
        *aligned(table, "right"),
        SCORE_UNITS,
        f"The intervals reflect the choice of seeds and of examples ({examples}).",
        *(f"Warning: {point['warning']}." for point in points if point["warning"]),
        "",
        *describe_gains(content),
        "",
        *content["caveats"],
        f"Signature: {content['signature']}",
        f"To compare two sizes: python -m pipeline.compare {points[-2]['group']} {points[-1]['group']}",
    ]
