"""Extrapolate a learning curve: which power laws are compatible with the errors at a few numbers of training examples.

The form is error(n) = asymptote + factor * n ** -exponent, which fits the learning curves of text classifiers (Figueroa
et al. 2012, https://doi.org/10.1186/1472-6947-12-8) and of many other models (Viering and Loog 2023,
https://doi.org/10.1109/TPAMI.2022.3220744).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipeline.evaluation.metrics import Floats, Ints

_EXPONENTS = np.linspace(0.05, 2, 40)
_DRAWS = 2000
FEWEST_SIZES = 3  # as many as a power law has parameters


class PowerLaws(NamedTuple):
    """Several power laws, whose parameters have the shape (curves,).

    Attributes:
        unit: The number of training examples that the factors refer to.
    """

    asymptote: Floats
    factor: Floats
    exponent: Floats
    unit: int

    def errors(self, rows: ArrayLike) -> Floats:
        """Return the errors with these numbers of training examples, shape (curves, numbers)."""
        powers = (np.asarray(rows) / self.unit) ** -self.exponent[:, None]
        errors: Floats = self.asymptote[:, None] + self.factor[:, None] * powers
        return errors


def fit(rows: Ints, errors: Floats) -> PowerLaws:
    """Fit a power law to each row of `errors` by least squares, with an asymptote and a factor of at least 0.

    For a given exponent, the best asymptote and factor have a formula. So it is enough to try many exponents.

    Args:
        rows: The numbers of training examples in ascending order, shape (sizes,).
        errors: Shape (curves, sizes).
    """
    unit = int(rows[-1])
    powers = (rows / unit) ** -_EXPONENTS[:, None]
    centered = powers - powers.mean(axis=1, keepdims=True)
    factor = np.maximum(errors @ centered.T / (centered**2).sum(axis=1), 0)  # shape (curves, exponents)
    asymptote = errors.mean(axis=1, keepdims=True) - factor * powers.mean(axis=1)
    without_asymptote = np.maximum(errors @ powers.T / (powers**2).sum(axis=1), 0)
    factor = np.where(asymptote < 0, without_asymptote, factor)
    asymptote = np.maximum(asymptote, 0)
    residuals = errors[:, None] - asymptote[..., None] - factor[..., None] * powers
    best = (residuals**2).sum(axis=-1).argmin(axis=1)[:, None]
    chosen = (np.take_along_axis(values, best, axis=1)[:, 0] for values in (asymptote, factor))
    return PowerLaws(*chosen, _EXPONENTS[best[:, 0]], unit)


def plausible_curves(rows: Ints, errors: Floats) -> PowerLaws:
    """Return 2,000 power laws, each fitted to errors that the same experiment might have had.

    The mean errors are drawn from their distribution over other validation examples and other seeds. The sizes share
    the examples, so the jackknife gives the covariance. The variance between seeds is the mean over the sizes, because
    a single size has too few seeds, and it is drawn too (as in Student's t). Small samples may not follow the power law
    yet ("small data region" in Hestness et al. 2017, https://arxiv.org/abs/1712.00409). So the first curves are fitted
    to all sizes, the next ones leave out the smallest size, and the last ones have only the three largest sizes. Without
    this, the intervals are too narrow for most other forms of curves: see tests/test_statistics.py.

    Args:
        rows: The numbers of training examples in ascending order, shape (sizes,).
        errors: The jackknife of the error of each run, shape (sizes, seeds, 1 + groups).
    """
    sizes, seeds, columns = errors.shape
    random = np.random.default_rng(0)
    means = errors.mean(axis=1)
    over_examples = (columns - 2) * np.cov(means[:, 1:], bias=True)
    freedom = sizes * (seeds - 1)
    over_seeds = errors[..., 0].var(axis=1, ddof=1).mean() / seeds
    variances = over_seeds * freedom / random.chisquare(freedom, (_DRAWS, 1))
    drawn = random.multivariate_normal(means[:, 0], over_examples, _DRAWS)
    drawn += np.sqrt(variances) * random.standard_normal(drawn.shape)
    parts = np.array_split(drawn, sizes - FEWEST_SIZES + 1)
    fits = [fit(rows[smallest:], part[:, smallest:]) for smallest, part in enumerate(parts)]
    parameters = (np.concatenate(values) for values in zip(*(curves[:3] for curves in fits), strict=True))
    return PowerLaws(*parameters, int(rows[-1]))
