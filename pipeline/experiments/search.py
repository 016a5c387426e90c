"""Search for better parameters: trials are DVC experiments up to train, ranked by their scores on validation.

No trial scores test. Trials go through rungs, synchronously: of each, the best third goes on to the next. A rung has
more epochs (successive halving, Jamieson and Talwalkar 2016), and the last one a second seed. What has been run is
found by name: after a kill the same call goes the same way, and runs what is left.
"""

import csv
import io
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optuna

from pipeline.core.messages import UserError, log
from pipeline.core.output import write_json, write_text
from pipeline.evaluation.metrics import sign
from pipeline.experiments.identity import SEED, identity
from pipeline.experiments.revisions import experiment_names, opened
from pipeline.experiments.running import Experiment, require_identity, run_all
from pipeline.experiments.space import Parameter, Sampler

_SEEDS = (101, 102)  # 1 to 5 are left for the end
_SHARE = 3  # one of so many trials goes on to the next rung, but at least two
_EPOCHS, _METRIC, _ROWS = "train.epochs", "train.metric_for_best_model", "predict.max_samples"


class Rung(NamedTuple):
    """What the trials that are left run. epochs: None: those of params.yaml, or of the trial."""

    epochs: int | None
    seeds: Sequence[int]

    @property
    def length(self) -> str:
        """The epochs in words; empty for None."""
        return "" if self.epochs is None else f"{self.epochs} {'epoch' if self.epochs == 1 else 'epochs'}"


@dataclass
class Trial:
    """A point of the space. scores: on validation, by epochs of the rung and seed; None where it failed."""

    number: int
    overrides: dict[str, str]
    scores: dict[tuple[int | None, int], float | None] = field(default_factory=dict)

    @property
    def settings(self) -> list[str]:
        """As for `dvc exp run -S`."""
        return [f"{key}={value}" for key, value in self.overrides.items()]

    def experiment(self, rung: Rung, seed: int) -> Experiment:
        settings = self.settings + ([] if rung.epochs is None else [f"{_EPOCHS}={rung.epochs}"])
        what = f"trial {self.number}, seed {seed}" + (f", {rung.length}" if rung.length else "")
        return Experiment(f"trial-{identity(settings)}-{seed}", [*settings, f"{SEED}={seed}"], what, ["train"])

    def has_run(self, rung: Rung) -> bool:
        return all((rung.epochs, seed) in self.scores for seed in rung.seeds)

    def score(self, rung: Rung) -> float | None:
        """The mean over the seeds of a rung; None where one failed."""
        scores = [self.scores[rung.epochs, seed] for seed in rung.seeds]
        return None if None in scores else float(np.mean(scores))  # type: ignore[arg-type]


class Study:
    """A search. metric: that chooses the epoch, and ranks; known after the first run."""

    def __init__(
        self, directory: Path, space: Sequence[Parameter], sampler: Sampler, rungs: Sequence[Rung], jobs: int
    ) -> None:
        """directory: for the table of the trials and the list of those that failed. jobs: trials at a time."""
        self.metric, self.rungs = "", rungs
        self._trials: list[Trial] = []
        self._directory, self._space, self._sampler, self._jobs = directory, space, sampler, jobs

    def run(self, n: int) -> list[Trial]:
        """Run at most n trials, and return all: those that reached the last rung first, the best before the others.

        Those whose last run failed are the last.

        Raises UserError where all fail.
        """
        while len(self._trials) < n:
            asked = [self._sampler.ask() for _ in range(min(self._jobs, n - len(self._trials)))]
            batch = [Trial(*of) for of in asked if of is not None]
            if not batch:
                break
            self._trials += batch
            self._run(batch, self.rungs[0])
            for trial in batch:
                self._sampler.tell(trial.number, self._goodness(trial, self.rungs[0]))
        for before, rung in pairwise(self.rungs):
            left = [trial for trial in self._trials if trial.has_run(before) and trial.score(before) is not None]
            if not left:
                raise UserError(f"no trial has a score; {self._failures} says why: correct that, and remove the file")
            self._run(sorted(left, key=lambda trial: self._order(trial, before))[: max(2, len(left) // _SHARE)], rung)

        def rank(trial: Trial) -> tuple[bool, int, float]:
            return self.last_score(trial) is None, -self.reached(trial), self._order(trial, self._last(trial))

        return sorted(self._trials, key=rank)

    def reached(self, trial: Trial) -> int:
        """The number of the last rung that a trial has run, from 1."""
        return max(number for number, rung in enumerate(self.rungs, 1) if trial.has_run(rung))

    def last_score(self, trial: Trial) -> float | None:
        return trial.score(self._last(trial))

    def expected_best(self) -> list[float]:
        """The expected best score of 1, 2, ... trials in the first rung."""
        found = [self._goodness(trial, self.rungs[0]) for trial in self._trials]
        return [sign(self.metric) * best for best in expected_best([of for of in found if of is not None])]

    def _last(self, trial: Trial) -> Rung:
        return self.rungs[self.reached(trial) - 1]

    def _order(self, trial: Trial, rung: Rung) -> float:
        """The best first, those that failed last."""
        goodness = self._goodness(trial, rung)
        return np.inf if goodness is None else -goodness

    def _goodness(self, trial: Trial, rung: Rung) -> float | None:
        score = trial.score(rung)
        return None if score is None else sign(self.metric) * score

    def _run(self, trials: Sequence[Trial], rung: Rung) -> None:
        """Run what has not been run; note the scores, and write the table."""
        wanted = [(trial, seed, trial.experiment(rung, seed)) for trial in trials for seed in rung.seeds]
        failed = json.loads(self._failures.read_text(encoding="utf-8")) if self._failures.exists() else {}
        known = experiment_names()
        missing = {of.name: of for _, _, of in wanted if of.name not in known and of.name not in failed}
        if missing:
            require_identity()
        left = list(missing.values())
        for again in (True, False):  # what does not say why may have been killed
            unexplained = []
            for ended in run_all(left, self._jobs):
                if ended.error and again and not ended.reason:
                    log.warning("%s; it runs once more", ended.error)
                    unexplained.append(missing[ended.name])
                elif ended.error:
                    log.warning("%s", ended.error)
                    failed[ended.name] = ended.error
                    write_json(self._failures, failed)
            left = unexplained
        known = experiment_names()
        for trial, seed, experiment in wanted:
            score = None
            if experiment.name in known:
                with opened(experiment.name, known[experiment.name]) as revision:
                    details = revision.details("train")
                self.metric, score = details["metric_for_best_model"], details["score"]
            trial.scores[rung.epochs, seed] = score
            log.info("%s: %s", experiment.what, "failed" if score is None else f"validation {self.metric} {score:.4f}")
        self._write_table()

    @property
    def _failures(self) -> Path:
        return self._directory / "failed.json"

    def _write_table(self) -> None:
        out = io.StringIO()
        keys = [parameter.key for parameter in self._space]
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["trial", "epochs", "seed", "score", *keys])
        for trial in self._trials:
            for (epochs, seed), score in trial.scores.items():
                writer.writerow([trial.number, epochs, seed, score, *(trial.overrides[key] for key in keys)])
        write_text(self._directory / "trials.csv", out.getvalue())


def require_same_study(directory: Path, jobs: int) -> None:
    """Record in `directory` what decides which trials are proposed, apart from the command's other arguments.

    Raises UserError if a study that was begun there had other values: its next trials would not be those of one study.
    """
    record = directory / "study.json"
    now = {"jobs": jobs, "optuna": optuna.__version__}
    if not record.exists():
        write_json(record, now)
        return
    begun = json.loads(record.read_text(encoding="utf-8"))
    for key, remedy in (("jobs", "use --jobs {}"), ("optuna", "install optuna {}")):
        if begun[key] != now[key]:
            raise UserError(
                f"{record}: the study was begun with {key} {begun[key]}; {key} {now[key]} may propose other trials. "
                f"Either {remedy.format(begun[key])}, or remove {record} to begin a new study; it finds finished trials"
            )


def require_comparable(space: Sequence[Parameter]) -> None:
    """Raise UserError where trials would have scores of different metrics, or of different rows."""
    for parameter in space:
        if parameter.key == _METRIC:
            raise UserError(f"{_METRIC} chooses the score by which trials are ranked; leave it out")
        if parameter.key.startswith("data.") or parameter.key == _ROWS:
            raise UserError(f"{parameter.key} decides which rows are scored, and trials need the same; leave it out")


def rungs(epochs: int, least: int | None, space: Sequence[Parameter]) -> list[Rung]:
    """From `least` epochs, three times as many in each rung, to `epochs`; None: all of them at once. Then two seeds."""
    one, two = _SEEDS[:1], _SEEDS
    if least is None:
        return [Rung(None, one), Rung(None, two)]
    if any(parameter.key == _EPOCHS for parameter in space):
        raise UserError(f"--min-epochs makes rungs of {_EPOCHS}, so that it cannot be searched too; leave one out")
    if not 1 <= least <= epochs:
        raise UserError(f"--min-epochs is {least}; it must be 1 to {epochs}, {_EPOCHS} of params.yaml")
    powers = itertools.takewhile(lambda of: of < epochs, (least * _SHARE**power for power in itertools.count()))
    return [*(Rung(of, one) for of in powers), Rung(None, one), Rung(None, two)]


def expected_best(goodness: Sequence[float]) -> list[float]:
    """The expected best of 1, 2, ... n random trials, from the results of n (Dodge et al. 2019, equation 6)."""
    values = np.sort(goodness)
    n = len(values)
    below = np.arange(n + 1) / n  # the share of trials that are at most so good
    return [float(np.sum(values * np.diff(below**k))) for k in range(1, n + 1)]
