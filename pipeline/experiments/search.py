"""Search for better parameters with Optuna. Each trial is a DVC experiment up to train, so trials do not score test."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from statistics import mean
from typing import Any

import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import GridSampler, TPESampler
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from pipeline.core.messages import UserError, log
from pipeline.core.output import write_text
from pipeline.core.yaml12 import read_yaml
from pipeline.evaluation.metrics import SCORES
from pipeline.experiments.launch import SEED, experiments, group_name, run_experiments
from pipeline.experiments.runs import read_train_details

SAMPLERS = ("tpe", "grid")
_FIXED_KEYS = ("data.", "predict.max_samples", "train.metric_for_best_model", SEED)
_FIRST_SEED, _SECOND_SEED = 101, 102  # The verdict uses the seeds 1 to 5.
_STARTUP = 8  # The number of random trials before TPE uses the results.
_RANGE = re.compile(r"(log|uniform|int)\(\s*([^,\s]+)\s*,\s*([^,\s]+)\s*\)")
_SYNTAX = "Write log(1e-5, 1e-4), uniform(0, 0.2), int(1, 5), or a list of values."


def read_space(path: Path) -> dict[str, BaseDistribution]:
    """Read which keys of params.yaml to search, and in which ranges. Raises UserError if the file is not valid."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} must have a line for each parameter, such as train.lr: log(1e-5, 1e-4). {_SYNTAX}")
    for key in content:
        if key.startswith(_FIXED_KEYS):
            raise UserError(f"{path}: {key} cannot be searched, because it decides how trials are scored. Remove it.")
    return {key: _distribution(path, key, content[key]) for key in sorted(content)}


def _distribution(path: Path, key: str, value: Any) -> BaseDistribution:
    try:
        if isinstance(value, list):
            return CategoricalDistribution(value)
        if (match := _RANGE.fullmatch(str(value).strip())) is None:
            raise ValueError("unknown form")
        form, low, high = match.groups()
        if form == "int":
            return IntDistribution(int(low), int(high))
        return FloatDistribution(float(low), float(high), log=form == "log")
    except ValueError as error:
        raise UserError(f"{path}: {key} must be a valid range or list, got {value} ({error}). {_SYNTAX}") from None


def _overrides(trial: Trial | FrozenTrial) -> list[str]:
    """Return the values of a trial as for `dvc exp run -S`. Six digits of a number are enough."""
    texts = []
    for key, value in trial.params.items():
        text = value if isinstance(value, str) else json.dumps(value)
        texts.append(f"{key}={f'{value:.6g}' if isinstance(value, float) else text}")
    return texts


class Search:
    """A study of Optuna in searches/NAME.log, where NAME is the name of the space file.

    A repeated command continues the study. Another space, sampler, params.yaml, code or data starts another study in
    the same file. "optuna-dashboard searches/NAME.log" shows all of them.
    """

    def __init__(self, space_file: Path, sampler: str, jobs: int) -> None:
        self._space, self._jobs, self._inputs = read_space(space_file), jobs, group_name([])
        lists = {key: entry.choices for key, entry in self._space.items() if hasattr(entry, "choices")}
        if sampler == "grid" and (ranges := self._space.keys() - lists):
            raise UserError(f"{space_file}: a grid needs a list of values for {', '.join(ranges)}.")
        self._points = prod(map(len, lists.values())) if sampler == "grid" else None
        self._file = Path("searches", space_file.stem)
        self._file.parent.mkdir(exist_ok=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = optuna.storages.JournalStorage(JournalFileBackend(f"{self._file}.log"))
        name = f"{self._inputs} {sampler} {self._space}"
        self._study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
        # With the same seed, a repeated command would propose the same points again.
        tpe = TPESampler(seed=len(self._study.trials), n_startup_trials=_STARTUP, constant_liar=True)
        self._study.sampler = GridSampler(lists, seed=0) if sampler == "grid" else tpe

    def run(self, n: int) -> tuple[pd.DataFrame, list[str]]:
        """Run n trials, or all points of a smaller grid, and the best third of them again with a second seed.

        Trials that a killed command has left unfinished, or that have failed, run again under the same numbers.

        Returns:
            A row for each trial, and the values of the best one as for `dvc exp run -S`. The trials with two seeds come
            first, ordered by their mean score, and failed ones come last. searches/NAME.csv has the same table.

        Raises:
            UserError: All trials failed, or the parameters, the code or the data have changed meanwhile.
        """
        if unfinished := self._study.get_trials(states=[TrialState.RUNNING]):
            self._run_trials(unfinished)
        while (missing := min(n, self._points or n) - len(self._study.trials)) > 0:
            self._run_trials([self._study.ask(self._space) for _ in range(min(self._jobs, missing))])
        finished = self._study.get_trials(states=[TrialState.COMPLETE])
        if not finished:
            raise UserError("All trials failed. Fix the errors above, and repeat the command.")
        best = sorted(finished, key=lambda trial: trial.value or 0, reverse=True)[: max(2, len(finished) // 3)]
        second_scores = self._run(best, _SECOND_SEED)
        rows: list[dict[str, Any]] = []
        for trial in self._study.trials:
            scores: list[Any] = [trial.value, *([second_scores.get(trial.number)] if trial in best else [])]
            score = None if None in scores else mean(scores)
            values = dict(override.split("=", 1) for override in _overrides(trial))
            rows.append({"trial": trial.number, "score": score, "seeds": len(scores), **values})
        rows.sort(key=lambda row: (row["score"] is not None, row["seeds"], row["score"] or 0), reverse=True)
        metric = SCORES[self._study.user_attrs["metric"]]
        table = pd.DataFrame(rows)
        table["score"] *= metric.sign
        table = table.rename(columns={"score": f"validation {metric.title}"})
        write_text(Path(f"{self._file}.csv"), table.to_csv(index=False, lineterminator="\n"))
        return table, _overrides(self._study.trials[rows[0]["trial"]])

    def _run_trials(self, trials: Sequence[Trial | FrozenTrial]) -> None:
        """Run trials with the first seed, and tell Optuna the scores. A failed trial stays unfinished."""
        for number, score in self._run(trials, _FIRST_SEED).items():
            with suppress(RuntimeError):  # After the last point, GridSampler stops Study.optimize, which is not used.
                self._study.tell(number, score)

    def _run(self, trials: Sequence[Trial | FrozenTrial], seed: int) -> dict[int, float]:
        """Run trials with a seed, and return the validation scores of those that did not fail, by their numbers.

        The score of an error, for which lower is better, is negated.
        """
        if group_name([]) != self._inputs:
            raise UserError("params.yaml, the code or the data has changed since this search began. Search again.")
        names = {f"trial-{trial.number}-{group_name(_overrides(trial))}-{seed}": trial for trial in trials}
        runs = {name: [*_overrides(trial), f"{SEED}={seed}"] for name, trial in names.items()}
        errors = run_experiments(runs, self._jobs, ["train"])
        commits, scores = experiments(), {}
        for name, trial in names.items():
            if name not in commits:
                log.warning("trial %d failed with seed %d: %s", trial.number, seed, errors.get(name))
                continue
            details = read_train_details(commits[name])
            metric, score = details["metric_for_best_model"], details["score"]
            self._study.set_user_attr("metric", metric)
            log.info("trial %d with seed %d: validation %s %.4f", trial.number, seed, metric, score)
            scores[trial.number] = SCORES[metric].sign * score
        return scores
