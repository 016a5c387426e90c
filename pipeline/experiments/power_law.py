"""Power laws that are compatible with the errors at a few numbers of training examples.

The form is error(n) = asymptote + factor * n ** -exponent, where n = 1 means all training examples. It fits the
learning curves of text classifiers (Figueroa et al. 2012, https://doi.org/10.1186/1472-6947-12-8) and of many other
models, but not of all (Viering and Loog 2023, https://doi.org/10.1109/TPAMI.2022.3220744).
"""

import numpy as np

from pipeline.evaluation.metrics import Floats

MIN_SIZES = 3  # as many as a power law has parameters
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
