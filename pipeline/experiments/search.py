"""Search for better parameters with Optuna. Each trial is a DVC experiment up to train, so trials do not score test."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
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
from pipeline.experiments.launch import SEED, experiments, group_name, run_experiments, split_overrides
from pipeline.experiments.runs import read_train_details

_FIXED_KEYS = ("data.", "predict.max_samples", "train.metric_for_best_model", SEED)
_SEED = 101  # The verdict uses the seeds 1 to 5.
_RANGE = re.compile(r"(log|uniform|int)\((.+),(.+)\)")
_SYNTAX = "Write log(1e-5, 1e-4), uniform(0, 0.2), int(1, 5), or a list of values."


def read_space(path: Path) -> dict[str, BaseDistribution]:
    """Read which keys of params.yaml to search, and in which ranges. Raises UserError if the file is not valid."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} must have a line for each parameter, such as train.lr: log(1e-5, 1e-4). {_SYNTAX}")
    return {key: _distribution(path, key, content[key]) for key in sorted(content)}


def _distribution(path: Path, key: str, value: Any) -> BaseDistribution:
    if key.startswith(_FIXED_KEYS):
        raise UserError(f"{path}: {key} cannot be searched, because it decides how trials are scored. Remove it.")
    try:
        if isinstance(value, list):
            return CategoricalDistribution(value)
        if (match := _RANGE.fullmatch(str(value))) is None:
            raise ValueError("unknown form")
        form, low, high = match.groups()
        if form == "int":
            return IntDistribution(int(low), int(high))
        return FloatDistribution(float(low), float(high), log=form == "log")
    except ValueError as error:
        raise UserError(f"{path}: {key} must be a valid range or list, got {value} ({error}). {_SYNTAX}") from None


def run_search(space_file: Path, n: int, sampler: str, jobs: int) -> tuple[pd.DataFrame, list[str]]:
    """Run n trials, or all points of a smaller grid. Return a row for each trial, best first, and the best overrides.

    Trials that were killed or that have failed run again. searches/NAME.csv has the table, too.
    """
    space = read_space(space_file)
    file = Path("searches", space_file.stem)
    file.parent.mkdir(exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.JournalStorage(JournalFileBackend(f"{file}.log"))
    # A repeated command continues its study. Any change starts another study in the same file.
    name = f"{group_name([])} {sampler} {space}"
    study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    if sampler == "grid":
        lists = {key: entry.choices for key, entry in space.items() if isinstance(entry, CategoricalDistribution)}
        if ranges := space.keys() - lists:
            raise UserError(f"{space_file}: a grid needs a list of values for {', '.join(ranges)}.")
        n = min(n, prod(map(len, lists.values())))
        study.sampler = GridSampler(lists, seed=0)
    else:  # With the same seed, a repeated command would propose the same points again.
        study.sampler = TPESampler(seed=len(study.trials), n_startup_trials=8, constant_liar=True)
    if unfinished := study.get_trials(states=[TrialState.RUNNING]):
        _run_trials(study, unfinished, jobs)
    while (missing := n - len(study.trials)) > 0:
        _run_trials(study, [study.ask(space) for _ in range(min(jobs, missing))], jobs)
    if not study.get_trials(states=[TrialState.COMPLETE]):
        raise UserError("All trials failed. Fix the errors above, and repeat the command.")
    table = _trial_table(study)
    write_text(Path(f"{file}.csv"), table.to_csv(index=False, lineterminator="\n"))
    return table, _overrides(study.best_trial)


def _run_trials(study: optuna.Study, trials: Sequence[Trial | FrozenTrial], jobs: int) -> None:
    """Run trials, and tell Optuna the scores, negated if lower is better. A failed trial stays unfinished."""
    if not study.study_name.startswith(group_name([])):
        raise UserError("params.yaml, the code or the data has changed since this search began. Search again.")
    names = {f"trial-{trial.number}-{group_name(_overrides(trial))}-{_SEED}": trial for trial in trials}
    runs = {name: [*_overrides(trial), f"{SEED}={_SEED}"] for name, trial in names.items()}
    errors = run_experiments(runs, jobs, ["train"])
    commits = experiments()
    for name, trial in names.items():
        if name not in commits:
            log.warning("trial %d failed: %s", trial.number, errors.get(name))
            continue
        details = read_train_details(commits[name])
        metric, score = details["metric_for_best_model"], details["score"]
        log.info("trial %d: validation %s %.4f", trial.number, metric, score)
        study.set_user_attr("metric", metric)
        with suppress(RuntimeError):  # After the last point, GridSampler stops Study.optimize, which is not used.
            study.tell(trial.number, SCORES[metric].sign * score)


def _trial_table(study: optuna.Study) -> pd.DataFrame:
    metric = SCORES[study.user_attrs["metric"]]
    title = f"validation {metric.title}"
    rows = [{"trial": trial.number, title: trial.value, **split_overrides(_overrides(trial))} for trial in study.trials]
    table = pd.DataFrame(rows)
    table[title] *= metric.sign
    return table.sort_values(title, ascending=metric.is_error, kind="stable", ignore_index=True)


def _overrides(trial: Trial | FrozenTrial) -> list[str]:
    """Return the values of a trial as for `dvc exp run -S`. Six digits of a number are enough."""
    overrides = []
    for key, value in trial.params.items():
        text = value if isinstance(value, str) else json.dumps(value)
        overrides.append(f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={text}")
    return overrides
