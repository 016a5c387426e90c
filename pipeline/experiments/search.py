"""Search for better parameters: trials are DVC experiments up to train, ranked by their scores on validation.

No trial scores test. Trials go through rungs, synchronously: of each, the best third goes on to the next. A rung has
more epochs (successive halving, Jamieson and Talwalkar 2016), and the last one a second seed. What has been run is
found by name: after a kill the same call goes the same way, and runs what is left.
"""

import csv
import io
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.core.columns import aligned
from pipeline.core.messages import UserError, log
from pipeline.core.output import write_json, write_text
from pipeline.evaluation.metrics import sign
from pipeline.experiments.identity import SEED, identity
from pipeline.experiments.revisions import experiment_names, opened
from pipeline.experiments.running import Experiment, require_identity, run_all
from pipeline.experiments.space import Parameter, Sampler

_SEEDS = (101, 102)  # 1 to 5 are left for the end
_SHARE = 3  # one of so many trials goes on to the next rung, but at least two
_EPOCHS = "train.epochs"


class Rung(NamedTuple):
    """What the trials that are left run. epochs: None: those of params.yaml, or of the trial."""

    epochs: int | None
    seeds: Sequence[int]


@dataclass
class Trial:
    """A point of the space. scores: on validation, by epochs of the rung and seed; None where it failed."""

    number: int
    overrides: list[str]
    scores: dict[tuple[int | None, int], float | None] = field(default_factory=dict)

    def experiment(self, rung: Rung, seed: int) -> Experiment:
        overrides = self.overrides + ([] if rung.epochs is None else [f"{_EPOCHS}={rung.epochs}"])
        what = f"trial {self.number + 1}, seed {seed}" + ("" if rung.epochs is None else f", {rung.epochs} epochs")
        return Experiment(f"trial-{identity(overrides)}-{seed}", [*overrides, f"{SEED}={seed}"], what, ["train"])

    def score(self, rung: Rung) -> float | None:
        """The mean over the seeds of a rung; None where one failed."""
        scores = [self.scores[rung.epochs, seed] for seed in rung.seeds]
        return None if None in scores else float(np.mean(scores))  # type: ignore[arg-type]


class Study:
    """The trials, and their table and failures in a directory."""

    def __init__(self, directory: Path, space: Sequence[Parameter], jobs: int) -> None:
        self.trials: list[Trial] = []
        self.metric = ""  # that chooses the epoch, and ranks; known after the first run
        self._directory, self._space, self._jobs = directory, space, jobs

    def search(self, sampler: Sampler, n: int, rungs: Sequence[Rung]) -> list[Trial]:
        """Run at most n trials, and return those that reach the last rung, best first.

        Raises UserError where all fail.
        """
        first, *others = rungs
        while len(self.trials) < n:
            asked = [sampler.ask() for _ in range(min(self._jobs, n - len(self.trials)))]
            batch = [Trial(*of) for of in asked if of is not None]
            if not batch:
                break
            self.trials += batch
            self._run(batch, first)
            for trial in batch:
                sampler.tell(trial.number, self._goodness(trial, first))
        left, rung = self.trials, first
        for following in others:
            left = self._ranked(left, rung)[: max(2, len(left) // _SHARE)]
            self._run(left, following)
            rung = following
        return self._ranked(left, rung)

    def summary(self, rungs: Sequence[Rung]) -> list[str]:
        """The lines of the best trials, and of what so many random trials would find."""
        first, last = rungs[0], rungs[-1]
        reached = self._ranked([trial for trial in self.trials if (last.epochs, last.seeds[-1]) in trial.scores], last)
        rows = [["trial", f"validation {self.metric}", *(parameter.key for parameter in self._space)]]
        for trial in reached:
            values = [override.split("=", 1)[1] for override in trial.overrides]
            rows.append([str(trial.number + 1), f"{trial.score(last):.4f}", *values])
        scores = [score for trial in self.trials if (score := self._goodness(trial, first)) is not None]
        best = expected_best(scores)
        shown = sorted({1, 2, 5, 10, 20, 50, len(best)} & set(range(1, len(best) + 1)))
        curve = ", ".join(f"{best[k - 1] * sign(self.metric):.4f} of {k}" for k in shown)
        return [
            *aligned(rows, "right"),
            f"Means over {len(last.seeds)} seeds. Of one seed, the expected best is {curve} trials"
            f"{'' if first.epochs is None else f' of {first.epochs} epochs'} (Dodge et al. 2019).",
        ]

    def _ranked(self, trials: Iterable[Trial], rung: Rung) -> list[Trial]:
        """Best first; without those that failed. Equal ones in their order."""
        of = {trial.number: self._goodness(trial, rung) for trial in trials}
        left = [trial for trial in trials if of[trial.number] is not None]
        if not left:
            raise UserError(f"no trial has a score; see the messages above, and {self._failures}")
        return sorted(left, key=lambda trial: -(of[trial.number] or 0.0))

    def _goodness(self, trial: Trial, rung: Rung) -> float | None:
        score = trial.score(rung)
        return None if score is None else sign(self.metric) * score

    def _run(self, trials: Sequence[Trial], rung: Rung) -> None:
        """Run what has not been run; note the scores, and write the table."""
        wanted = {(trial.number, seed): trial.experiment(rung, seed) for trial in trials for seed in rung.seeds}
        failed = json.loads(self._failures.read_text()) if self._failures.exists() else {}
        known = experiment_names()
        missing = {of.name: of for of in wanted.values() if of.name not in known and of.name not in failed}
        if missing:
            require_identity()
        for name, error in run_all(list(missing.values()), self._jobs):
            if error:
                failed[name] = error
                write_json(self._failures, failed)
        known = experiment_names()
        by_number = {trial.number: trial for trial in trials}
        for (number, seed), experiment in wanted.items():
            score = None
            if experiment.name in known:
                with opened(experiment.name, known[experiment.name]) as revision:
                    details = revision.details("train")
                self.metric, score = details["metric_for_best_model"], details["score"]
            by_number[number].scores[rung.epochs, seed] = score
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
        for trial in self.trials:
            values = dict(override.split("=", 1) for override in trial.overrides)
            for (epochs, seed), score in trial.scores.items():
                writer.writerow([trial.number + 1, epochs, seed, score, *(values[key] for key in keys)])
        write_text(self._directory / "trials.csv", out.getvalue())


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
