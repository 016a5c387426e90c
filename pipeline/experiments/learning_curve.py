"""Learning curves: train on nested samples of train, and extrapolate how much the score would gain from more rows."""

from typing import Any

import numpy as np

from pipeline.core.messages import UserError, log
from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS, Floats
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.signature import as_line
from pipeline.evaluation.uncertainty import BOUNDS, MIN_EXAMPLES, difference, jackknife, score_intervals
from pipeline.experiments.identity import SEED_KEY, load_overridden_params
from pipeline.experiments.power_law import MIN_SIZES, plausible_curves, predicted_errors
from pipeline.experiments.render import SCORE_UNITS
from pipeline.experiments.revisions import count_train_rows, experiment_commits
from pipeline.experiments.running import INPUTS_CHANGED, Experiment, run_all, run_group
from pipeline.experiments.seed_groups import seed_group_name
from pipeline.experiments.sides import Side, describe_degenerate_runs, read_side

SIZE = "train.max_train_samples"
_SPLIT = "validation"
_MIN_ROWS = 10  # in the smallest sample
_CAVEATS = [
    "All sizes have the same number of epochs, so a smaller sample gets fewer optimizer steps.",
    "The gains hold only for new rows from the same source as the rows of train.",
    "The form of the curve is an assumption, so the prediction ends at twice the number of rows.",
    "The fitted curves never get worse with more rows, so the curve never predicts a worse score.",
    "If the score improves faster and faster, as it may with a few hundred rows, the prediction is too low.",
    "With train.keep: best, the scores are slightly optimistic, because validation also chose the epoch.",
]
_NO_PREDICTION = (
    f"This curve gives no prediction. It needs {MIN_SIZES} sizes without a degenerate run, and the size with all "
    "rows must be one of them. Try more train.epochs, a smaller train.batch_size or another train.lr."
)


def run_learning_curve(sizes: int, seeds: int, overrides: list[str], jobs: int) -> dict[str, Any]:
    """Run the seeds of all sizes that are not finished, `jobs` at a time, and return the content of curve.json.

    Each size is a seed group. The largest one has all rows, so it is the group of `python -m pipeline.seeds`. Its first
    run runs before all others, because its data card says how many rows train has.

    Raises:
        UserError: The size is already set, train has too few rows, or a run failed.
    """
    params = load_overridden_params(overrides)
    if params.train.max_train_samples is not None:
        raise UserError(
            f"{SIZE} is chosen for each run. Set it to null. If an interrupted run left a number in params.yaml, "
            '"git diff params.yaml" shows it.'
        )
    group = seed_group_name(overrides)
    name = f"{group.replace('seeds', 'curve')}-{sizes}x{seeds}"
    fractions = [0.5**halvings for halvings in range(sizes)]
    first = Experiment(f"{group}-1", overrides, f"{SEED_KEY}=1", f"run 1 of {sizes * seeds}")
    if first.name not in experiment_commits():
        log.info("%s: the first run has all rows of train. Their number determines the other sizes.", name)
        run_all([first], jobs)

    rows = (count_train_rows(first.name) * np.array(fractions)).astype(int).tolist()
    _require_enough(rows)
    settings = [overrides, *([*overrides, f"{SIZE}={number}"] for number in rows[1:])]
    groups = [seed_group_name(setting) for setting in settings]
    if groups[0] != group:
        raise UserError(INPUTS_CHANGED)
    experiments = [
        Experiment(
            name=f"{groups[size]}-{seed}",
            overrides=settings[size],
            varied_override=f"{SEED_KEY}={seed}",
            title=f"run {size * seeds + seed} of {sizes * seeds}, {rows[size]:,} rows",
            fraction=fractions[size],
        )
        for size in range(sizes)
        for seed in range(1, seeds + 1)
    ]
    run_group(name, experiments, jobs)

    sides = [read_side(group, params, seeds) for group in reversed(groups)]
    if len(sides[0].runs[0].predictions[_SPLIT].idx) < 2:
        raise UserError(f"A learning curve needs at least 2 {_SPLIT} examples. Raise predict.max_samples, or add rows.")
    return {"name": name, "caveats": _CAVEATS, **_content(sides, rows[::-1])}


def _require_enough(rows: list[int]) -> None:
    """Raise UserError if the smallest sample, the last one, has too few rows."""
    if rows[-1] < _MIN_ROWS:
        points = (rows[0] // _MIN_ROWS).bit_length()
        remedy = f"Use --points {points}." if points >= MIN_SIZES else "That is too few rows for a learning curve."
        raise UserError(
            f"train has {rows[0]:,} rows, so the smallest of {len(rows)} samples would have {rows[-1]} rows, and it "
            f"needs at least {_MIN_ROWS}. {remedy}"
        )


def _content(sides: list[Side], rows: list[int]) -> dict[str, Any]:
    """Return the scores, the curve through them, and what more rows would change, from the smallest sample on."""
    first = sides[-1].runs[0]
    task = first.task
    name = task.metrics[0]
    points = []
    fitted = {}
    for side, number in zip(sides, rows, strict=True):
        runs = [run.predictions[_SPLIT] for run in side.runs]
        scores = np.array([jackknife(name, run.labels, run.predicted, run.probability) for run in runs])
        low, high = _interval(name, scores, runs[0])
        warning = describe_degenerate_runs(side, _SPLIT)
        points.append({
            "rows": number, "group": side.name, "scores": scores[:, 0].tolist(), "value": float(scores[:, 0].mean()),
            "low": low, "high": high, "warning": warning,
        })  # fmt: skip
        if not warning:  # A model that has learned nothing says nothing about the curve.
            fitted[number] = scores
    prediction: dict[str, Any] = {"curve": [], "gains": []}
    if len(fitted) >= MIN_SIZES and rows[-1] in fitted:
        prediction = _prediction(name, fitted)
    examples = len(first.predictions[_SPLIT].idx)
    consequence = ", so the curve leaves out this size" if prediction["curve"] else ""
    warnings = [f"Warning: {point['warning']}{consequence}." for point in points if point["warning"]]
    if examples < MIN_EXAMPLES:
        warnings.append(f"Warning: {_SPLIT} has only {examples} {task.noun}, so the prediction is not reliable.")
    return {
        "warnings": warnings, "metric": name, "examples": examples, "noun": task.noun, "points": points,
        **prediction, "signature": as_line(sides[-1].signature),
    }  # fmt: skip


def _interval(name: str, scores: Floats, run: Predictions) -> tuple[float, float]:
    """Return the 95% interval of the mean score over other seeds and other examples.

    Args:
        scores: The jackknife of each run, shape (seeds, 1 + groups).
        run: The predictions of one of the runs.
    """
    mean = difference(np.zeros_like(scores), scores, same_seeds=True)
    if mean.low == mean.high:  # All runs have the same score at a bound, such as a perfect one.
        return score_intervals([name], run.labels, run.predicted, run.probability)[name]
    low, high = np.clip([mean.low, mean.high], *BOUNDS[METRICS[name].scale]).tolist()
    return low, high


def _prediction(name: str, scores: dict[int, Floats]) -> dict[str, Any]:
    """Return the fitted curve up to twice the number of rows, and the gains from more rows.

    Args:
        scores: The jackknife of each run, shape (seeds, 1 + groups), keyed by the number of rows in ascending order.
    """
    metric, rows = METRICS[name], list(scores)
    largest = rows[-1]
    perfect = 0 if metric.is_error else 1
    curves = plausible_curves(np.array(rows) / largest, np.abs(perfect - np.array(list(scores.values()))))
    errors_with_all_rows = predicted_errors(curves, 1)

    def change(number: int) -> Floats:
        """Return how much the score changes from all rows to this number of rows.

        Returns:
            The 10%, 50% and 90% quantiles over the curves.
        """
        changes = metric.sign * (errors_with_all_rows - predicted_errors(curves, number / largest))
        return np.quantile(changes, [0.1, 0.5, 0.9])

    def entry(number: int, values: Floats) -> dict[str, Any]:
        return {"rows": number, **dict(zip(("low", "value", "high"), values.tolist(), strict=True))}

    score_with_all_rows = perfect - metric.sign * np.median(errors_with_all_rows)
    sizes = {*rows, *np.geomspace(rows[0], 2 * largest).astype(int).tolist(), 2 * largest}
    bounds = BOUNDS[metric.scale]
    return {
        "curve": [entry(size, np.clip(score_with_all_rows + change(size), *bounds)) for size in sorted(sizes)],
        "gains": [
            entry(number, change(largest + number))
            for number in map(_two_digits, (largest // 4, largest // 2, largest))
        ],
    }


def _two_digits(number: int) -> int:
    """Round down to two significant digits."""
    unit: int = 10 ** max(len(str(number)) - 2, 0)
    return number - number % unit


def describe_gains(content: dict[str, Any]) -> list[str]:
    """Return a sentence about each of the gains in curve.json, or about why there are none."""
    metric = METRICS[content["metric"]]
    unit = f"in {_SPLIT} {metric.title}" if metric.is_error else f"points of {_SPLIT} {metric.title}"
    return [
        f"{gain['rows']:,} more rows: {metric.format_difference(gain['low'])} to "
        f"{metric.format_difference(gain['high'])} {unit} (80% interval)"
        for gain in content["gains"]
    ] or [_NO_PREDICTION]


def summary_lines(content: dict[str, Any]) -> list[str]:
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
        *content["warnings"],
        "",
        *describe_gains(content),
        "",
        *content["caveats"],
        f"Signature: {content['signature']}",
        f"To compare two sizes: python -m pipeline.compare {points[-2]['group']} {points[-1]['group']}",
    ]
