"""Learning curves: the scores with a few numbers of training examples, and power laws that predict scores with more.

The form is error(n) = asymptote + factor * n ** -exponent, where n = 1 means all training examples. It fits the
learning curves of text classifiers (Figueroa et al. 2012, https://doi.org/10.1186/1472-6947-12-8) and of many other
models, but not of all (Viering and Loog 2023, https://doi.org/10.1109/TPAMI.2022.3220744).
"""

from typing import Any

import numpy as np
import pandas as pd

from pipeline.evaluation.intervals import BOUNDS, MIN_EXAMPLES, difference, jackknife, score_interval
from pipeline.evaluation.metrics import METRICS, Floats
from pipeline.experiments.runs import Side

MIN_SIZES = 3  # as many as a power law has parameters
TOO_FEW_ROWS = f"fewer than {MIN_EXAMPLES} validation rows can be scored"
_EXPONENTS = np.linspace(0.05, 2, 40)
_DRAWS = 2000


def fit_power_laws(multiples: Floats, errors: Floats) -> Floats:
    """Fit power laws by least squares, and return their asymptotes, factors and exponents, shape (3, curves).

    Asymptotes and factors are at least 0. For a given exponent, they have a formula, so it is enough to try exponents.

    Args:
        multiples: Shape (sizes,).
        errors: Shape (curves, sizes).
    """
    powers = multiples ** -_EXPONENTS[:, None]
    centered = powers - powers.mean(axis=1, keepdims=True)
    slopes = np.maximum(errors @ centered.T / (centered**2).sum(axis=1), 0)  # shape (curves, exponents)
    asymptotes = np.maximum(errors.mean(axis=1, keepdims=True) - slopes * powers.mean(axis=1), 0)
    above_asymptote = errors[:, None] - asymptotes[..., None]
    factors = np.maximum((above_asymptote * powers).sum(axis=-1) / (powers**2).sum(axis=1), 0)
    residuals = above_asymptote - factors[..., None] * powers
    curves = np.arange(len(errors))
    best_fit = (residuals**2).sum(axis=-1).argmin(axis=1)
    return np.stack([asymptotes[curves, best_fit], factors[curves, best_fit], _EXPONENTS[best_fit]])


def predicted_errors(curves: Floats, multiple: float) -> Floats:
    """Return the error of each curve, shape (curves,)."""
    asymptotes, factors, exponents = curves
    return np.asarray(asymptotes + factors * multiple**-exponents)


def plausible_curves(multiples: Floats, errors: Floats) -> Floats:
    """Return 2,000 curves, each fitted to errors that the same experiment might have had. See `fit_power_laws`.

    Args:
        multiples: In ascending order, shape (sizes,).
        errors: The jackknife of the error of each run, shape (sizes, seeds, 1 + groups).
    """
    sizes, seeds, columns = errors.shape
    means = errors.mean(axis=1)
    example_covariance = (columns - 2) * np.cov(means[:, 1:], bias=True)  # The sizes share the examples.
    # A single size has too few seeds, so the variance is the mean over the sizes. It is drawn too, as in Student's t.
    seed_variance = errors[..., 0].var(axis=1, ddof=1).mean() / seeds
    degrees_of_freedom = sizes * (seeds - 1)
    random = np.random.default_rng(0)
    sampled_errors = random.multivariate_normal(means[:, 0], example_covariance, _DRAWS)
    variances = seed_variance * degrees_of_freedom / random.chisquare(degrees_of_freedom, (_DRAWS, 1))
    sampled_errors += np.sqrt(variances) * random.standard_normal(sampled_errors.shape)
    # Small samples may not follow the power law yet ("small data region" in Hestness et al. 2017,
    # https://arxiv.org/abs/1712.00409). So only the first part of the curves is fitted to all sizes. The next part
    # leaves out the smallest size, and so on up to the three largest sizes. See tests/test_statistics.py.
    parts = np.array_split(sampled_errors, sizes - MIN_SIZES + 1)
    fits = [fit_power_laws(multiples[smallest:], part[:, smallest:]) for smallest, part in enumerate(parts)]
    return np.concatenate(fits, axis=1)


def curve_record(sides: dict[int, Side]) -> dict[str, Any]:
    """Return the content of curve.json from the seed groups by their number of rows, in ascending order.

    If the scores do not allow a prediction, `curve` and `gains` are empty, and `unknown` has the reason.
    """
    largest = max(sides)
    name = sides[largest].task.metrics[0]
    points, learned = [], dict[int, Floats]()
    for rows, side in sides.items():
        scores = np.array([jackknife(name, run.predictions["validation"]) for run in side.runs])
        mean = difference(np.zeros_like(scores), scores, same_seeds=True)
        low, high = np.clip([mean.low, mean.high], *BOUNDS[METRICS[name].scale]).tolist()
        if low == high:  # All runs have the same score at a bound, such as a perfect one.
            _, low, high = score_interval(name, side.task, side.runs[0].predictions["validation"])
        warnings = side.warnings("validation")
        if not warnings:  # A model that has learned nothing says nothing about the curve.
            learned[rows] = scores
        point = {"rows": rows, "group": side.name, "scores": scores[:, 0].tolist(), "warnings": warnings}
        points.append(point | {"value": mean.value, "low": low, "high": high})
    content: dict[str, Any] = {"metric": name, "points": points, "curve": [], "gains": [], "unknown": None}
    if len(sides[largest].runs[0].predictions["validation"]) < MIN_EXAMPLES:
        return content | {"unknown": TOO_FEW_ROWS}
    if len(learned) < MIN_SIZES or largest not in learned:
        reason = f"a prediction needs {MIN_SIZES} sizes, including all rows, in which every model has learned something"
        return content | {"unknown": f"{reason}. Try more train.epochs, a smaller train.batch_size or another train.lr"}
    return content | _prediction(name, learned)


def _prediction(name: str, scores: dict[int, Floats]) -> dict[str, Any]:
    """Fit curves to the jackknives of the runs of each size, and predict the scores with up to twice as many rows."""
    metric, rows = METRICS[name], list(scores)
    largest, perfect = rows[-1], 0 if metric.is_error else 1
    curves = plausible_curves(np.array(rows) / largest, np.abs(perfect - np.array(list(scores.values()))))
    larger_sizes = [largest + more for more in (largest // 4, largest // 2, largest)]
    sizes = sorted({*rows, *np.geomspace(rows[0], 2 * largest).astype(int).tolist(), *larger_sizes})
    errors_with_all_rows = predicted_errors(curves, 1)
    errors = np.array([predicted_errors(curves, size / largest) for size in sizes])
    quantiles = np.quantile(metric.sign * (errors_with_all_rows - errors), [0.1, 0.5, 0.9], axis=1)
    changes = pd.DataFrame(quantiles.T, sizes, ["low", "value", "high"])  # of the score, from all rows to each size
    score_with_all_rows = perfect - metric.sign * np.median(errors_with_all_rows)
    curve = (score_with_all_rows + changes).clip(*BOUNDS[metric.scale]).assign(rows=sizes)
    gains = changes.loc[larger_sizes].assign(rows=[size - largest for size in larger_sizes])
    return {"curve": curve.to_dict("records"), "gains": gains.to_dict("records")}
