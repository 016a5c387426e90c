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
from pipeline.core.paths import METRICS_DIR
from pipeline.core.stage import leaves
from pipeline.core.yaml12 import read_yaml
from pipeline.evaluation.metrics import SCORES
from pipeline.experiments.launch import SEED, experiments, git, group_name, run_experiments, split_overrides

_SEED = 101  # The verdict uses the seeds 1 to 5.


def read_space(path: Path) -> dict[str, BaseDistribution]:
    """Read which keys of params.yaml to search, and in which ranges. Raises UserError if the file is not valid."""
    space: dict[str, BaseDistribution] = {}
    for key, value in sorted(leaves(read_yaml(path))):
        # The other keys decide how trials are scored.
        if not key.startswith(("model.", "tokenize.", "train.")) or key in (SEED, "train.metric_for_best_model"):
            raise UserError(f'{path}: "{key}" cannot be searched. Write a line such as train.lr: log(1e-5, 1e-4).')
        try:
            space[key] = _distribution(value)
        except ValueError as error:
            syntax = "Write log(1e-5, 1e-4), uniform(0, 0.2), int(1, 5), or a list of values."
            raise UserError(f"{path}: {key} must be a range or a list, got {value} ({error}). {syntax}") from None
    return space


def _distribution(value: Any) -> BaseDistribution:
    if isinstance(value, list):
        return CategoricalDistribution([entry if isinstance(entry, str) else json.dumps(entry) for entry in value])
    match re.split("[(,)]", str(value)):
        case ["int", low, high, ""]:
            return IntDistribution(int(low), int(high))
        case ["log" | "uniform" as form, low, high, ""]:
            return FloatDistribution(float(low), float(high), log=form == "log")
    raise ValueError("unknown form")


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
    metric = SCORES[study.user_attrs["metric"]]
    title = f"validation {metric.title}"
    rows = [{"trial": trial.number, title: trial.value, **split_overrides(_overrides(trial))} for trial in study.trials]
    table = pd.DataFrame(rows).sort_values(title, ascending=False, kind="stable", ignore_index=True)
    table[title] *= metric.sign
    write_text(Path(f"{file}.csv"), table.to_csv(index=False, lineterminator="\n"))
    return table, _overrides(study.best_trial)


def _run_trials(study: optuna.Study, trials: Sequence[Trial | FrozenTrial], jobs: int) -> None:
    """Run trials, and tell Optuna the scores, negated if lower is better. A failed trial stays unfinished."""
    if not study.study_name.startswith(group_name([])):
        raise UserError("params.yaml, the code or the data has changed since this search began. Search again.")
    names = {f"trial-{trial.number}-{group_name(_overrides(trial))}-{_SEED}": trial for trial in trials}
    try:
        run_experiments({name: [*_overrides(names[name]), f"{SEED}={_SEED}"] for name in names}, jobs, ["train"])
    except UserError as error:
        log.warning("%s", error)
    commits = experiments()
    for name in sorted(names.keys() & commits.keys()):
        [details] = json.loads(git("show", f"{commits[name]}:{METRICS_DIR / 'train.json'}"))
        metric, score = details["metric_for_best_model"], details["score"]
        log.info("trial %d: validation %s %.4f", names[name].number, metric, score)
        study.set_user_attr("metric", metric)
        with suppress(RuntimeError):  # After the last point, GridSampler stops Study.optimize, which is not used.
            study.tell(names[name].number, SCORES[metric].sign * score)


def _overrides(trial: Trial | FrozenTrial) -> list[str]:
    """Return the values of a trial as for `dvc exp run -S`. Six digits of a number are enough."""
    params = trial.params.items()
    return [f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={value}" for key, value in params]
