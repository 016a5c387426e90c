"""search.yaml: which parameters to search, and where."""

import itertools
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from pipeline.core.messages import UserError
from pipeline.core.yaml12 import read_yaml
from pipeline.params import PARAMS

SAMPLERS = ("tpe", "random", "grid")
_STARTUP = 8  # trials that TPE draws at random
_FORM = re.compile(r"(log|uniform|int)\(\s*([^,\s]+)\s*,\s*([^,\s]+)\s*\)")
_HOW = "write log(1e-5, 1e-4), uniform(0, 0.2), int(1, 5), or a list of values"


@dataclass(frozen=True)
class Parameter:
    """A key of params.yaml and its values: a list of choices, or a distribution of numbers."""

    key: str
    choices: Sequence[Any] | None
    distribution: BaseDistribution

    @property
    def to_check(self) -> Sequence[Any]:
        """Values to check before a search begins: all choices, or the bounds."""
        values = _values(self.distribution)
        return values if self.choices is not None else [values[0], values[-1]]

    @property
    def scale(self) -> Literal["linear", "log", "point"]:
        """On which a chart shows it."""
        if self.choices is not None:
            return "point"
        return "log" if isinstance(self.distribution, FloatDistribution) and self.distribution.log else "linear"

    def shown(self, text: str) -> Any:
        """A value for a chart: numbers have their order."""
        try:
            return float(text)
        except ValueError:
            return text.strip('"')

    def text(self, value: Any) -> str:
        """As in `dvc exp run -S key=text`. Numbers have four digits: more would change the names of runs alone."""
        if self.choices is not None:
            return _written(self.choices[value])
        return f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _written(value: Any) -> str:
    """In the grammar of Hydra, which DVC uses: https://hydra.cc/docs/advanced/override_grammar/basic/"""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(of)}" for key, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"'
    return json.dumps(value)


def read_space(path: Path) -> list[Parameter]:
    """The parameters of a search.yaml, by their keys. Raises UserError where it cannot be read."""
    if path.suffix not in (".yaml", ".yml"):  # without it, it is the name of the results' directory
        raise UserError(f"{path} must be a YAML file; name it {path}.yaml")
    if not path.exists():
        raise UserError(f"{path} is not there; {_HOW} for each key, as train.lr: log(1e-5, 1e-4)")
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} has no keys; {_HOW} for each, as train.lr: log(1e-5, 1e-4)")
    return [_parameter(path, str(key), value) for key, value in sorted(content.items())]


def _parameter(path: Path, key: str, value: Any) -> Parameter:
    if isinstance(value, list):
        if len({_written(choice) for choice in value}) < max(2, len(value)):
            raise UserError(
                f"{path}: {key} is {_written(value)}; a list must have two or more different values: add one, or set "
                f"the value in {PARAMS} and remove the key here"
            )
        return Parameter(key, value, CategoricalDistribution(range(len(value))))
    form = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        if form is None:
            raise ValueError("no such form")
        kind, low, high = form.groups()
        if kind == "int":
            return Parameter(key, None, IntDistribution(int(low), int(high)))
        return Parameter(key, None, FloatDistribution(float(low), float(high), log=kind == "log"))
    except ValueError as error:
        raise UserError(f"{path}: {key} is {value} ({error}); {_HOW}") from None


class Sampler:
    """Proposes trials. The same results, told in the same order, give the same proposals."""

    def __init__(self, space: Sequence[Parameter], name: str) -> None:
        """Raises UserError where a grid has a parameter without a list."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = {parameter.key: parameter for parameter in space}
        self._grid: Iterator[Mapping[str, Any]] | None = None
        sampler: optuna.samplers.BaseSampler
        if name == "grid":
            if endless := next((one.key for one in space if isinstance(one.distribution, FloatDistribution)), None):
                raise UserError(f"a grid needs values to choose from, and {endless} has none; give a list of them")
            values = {one.key: _values(one.distribution) for one in space}
            every = itertools.product(*values.values())
            self._grid = (dict(zip(values, of, strict=True)) for of in every)
            sampler = optuna.samplers.RandomSampler(seed=0)  # not asked
        elif name == "random":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                sampler = optuna.samplers.QMCSampler(qmc_type="sobol", scramble=True, seed=0)
        else:
            sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=_STARTUP, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)

    def ask(self) -> tuple[int, dict[str, str]] | None:
        """The number of a new trial, from 1, and its values as text by key; None where a grid is exhausted."""
        if self._grid is not None:
            if (fixed := next(self._grid, None)) is None:
                return None
            self._study.enqueue_trial(dict(fixed))
        trial = self._study.ask({key: parameter.distribution for key, parameter in self._space.items()})
        return trial.number + 1, {key: self._space[key].text(value) for key, value in trial.params.items()}

    def tell(self, number: int, goodness: float | None) -> None:
        """How good a trial is, more being better; None: it failed."""
        if goodness is None:
            self._study.tell(number - 1, state=TrialState.FAIL)
        else:
            self._study.tell(number - 1, goodness)

    def importances(self) -> dict[str, float]:
        """How much each parameter mattered, as shares (PED-ANOVA, Watanabe et al. 2023); none for too few trials."""
        scores = [trial.value for trial in self._study.get_trials() if trial.value is not None]
        if len(scores) < _STARTUP or len(set(scores)) == 1:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            found = get_param_importances(self._study, evaluator=PedAnovaImportanceEvaluator())
        return dict(found)


def _values(distribution: BaseDistribution) -> Sequence[Any]:
    """All of them, of a float only its bounds."""
    if isinstance(distribution, IntDistribution):
        return range(distribution.low, distribution.high + 1)
    if isinstance(distribution, FloatDistribution):
        return [distribution.low, distribution.high]
    assert isinstance(distribution, CategoricalDistribution)
    return list(distribution.choices)
