"""The search space: which parameters to search, and in which ranges, as read from search.yaml."""

import itertools
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from pipeline.core.messages import UserError
from pipeline.core.paths import PARAMS
from pipeline.core.yaml12 import read_yaml

SAMPLERS = ("tpe", "random", "grid")
_STARTUP = 8  # The number of random trials before TPE uses the results.
_FORM = re.compile(r"(log|uniform|int)\(\s*([^,\s]+)\s*,\s*([^,\s]+)\s*\)")
_SYNTAX = "Write log(1e-5, 1e-4), uniform(0, 0.2), int(1, 5), or a list of values."


@dataclass(frozen=True)
class Parameter:
    """A key of params.yaml and the values to search. The choices of a list are texts."""

    key: str
    distribution: BaseDistribution

    def text(self, value: str | int | float) -> str:
        """Format a value for `dvc exp run -S key=text`.

        Floats have four digits, because more digits would only make the names of runs differ.
        """
        return f"{value:.4g}" if isinstance(value, float) else f"{value}"

    def values_to_check(self) -> list[str]:
        """Return the texts of all choices, or of both ends of a range."""
        if isinstance(self.distribution, CategoricalDistribution):
            return [str(choice) for choice in self.distribution.choices]
        assert isinstance(self.distribution, FloatDistribution | IntDistribution)
        return [self.text(self.distribution.low), self.text(self.distribution.high)]

    def grid_values(self) -> Sequence[Any]:
        """Return all values. Raises UserError for a range of floats."""
        if isinstance(self.distribution, CategoricalDistribution):
            return self.distribution.choices
        if isinstance(self.distribution, IntDistribution):
            return range(self.distribution.low, self.distribution.high + 1)
        raise UserError(f"{self.key} has a range, but a grid needs values to choose from. Give it a list of values.")


def _hydra(value: Any) -> str:
    """Format a value for Hydra, which DVC uses: https://hydra.cc/docs/advanced/override_grammar/basic/"""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_hydra(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_hydra, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"'
    return json.dumps(value)


def read_space(path: Path) -> list[Parameter]:
    """Read the parameters of a search.yaml, sorted by key. Raises UserError if the file is not valid."""
    if not path.exists():
        raise UserError(f"{path} does not exist.")
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} must have a line for each parameter, such as train.lr: log(1e-5, 1e-4). {_SYNTAX}")
    return [_parameter(path, str(key), value) for key, value in sorted(content.items())]


def _parameter(path: Path, key: str, value: Any) -> Parameter:
    if isinstance(value, list):
        choices = [_hydra(choice) for choice in value]
        if len(set(choices)) < max(2, len(choices)):
            raise UserError(
                f"{path}: {key} must be a list of two or more different values, got {_hydra(value)}. Correct the list, "
                f"or set the value in {PARAMS} and remove the key from {path}."
            )
        return Parameter(key, CategoricalDistribution(choices))
    form = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        if form is None:
            raise ValueError("unknown form")
        name, low, high = form.groups()
        if name == "int":
            return Parameter(key, IntDistribution(int(low), int(high)))
        return Parameter(key, FloatDistribution(float(low), float(high), log=name == "log"))
    except ValueError as error:
        raise UserError(f"{path}: {key} must be a valid range or list, got {value} ({error}). {_SYNTAX}") from None


class Sampler:
    """Proposes trials. The same results in the same order always lead to the same proposals."""

    def __init__(self, space: Sequence[Parameter], name: str) -> None:
        """Create a sampler.

        Args:
            name: One of SAMPLERS. "random" is a scrambled Sobol sequence.

        Raises:
            UserError: A key of a grid has a range of floats.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = {parameter.key: parameter for parameter in space}
        sampler: optuna.samplers.BaseSampler
        if name == "tpe":
            sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=_STARTUP, constant_liar=True)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                sampler = optuna.samplers.QMCSampler(qmc_type="sobol", scramble=True, seed=0)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        if name == "grid":
            for point in itertools.product(*(parameter.grid_values() for parameter in space)):
                self._study.enqueue_trial(dict(zip(self._space, point, strict=True)))
        self.size = len(self._study.trials)  # the number of points of a grid, otherwise 0

    def ask(self) -> tuple[int, dict[str, str]]:
        """Return the number of a new trial, starting at 1, and its values as text, keyed by parameter."""
        trial = self._study.ask({key: parameter.distribution for key, parameter in self._space.items()})
        return trial.number + 1, {key: self._space[key].text(value) for key, value in trial.params.items()}

    def tell(self, number: int, signed_score: float | None) -> None:
        """Record how good a trial is (higher is better), or None if it failed."""
        self._study.tell(number - 1, signed_score, TrialState.FAIL if signed_score is None else None)
