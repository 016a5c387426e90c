"""Search for better parameters. Each trial is a DVC experiment up to train, ranked by its validation score.

Trials do not score the test split. Finished trials are found by name, so after a kill the same command proposes the
same trials and runs only the missing ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean

from pipeline.core.messages import UserError, log
from pipeline.evaluation.metrics import SCORES
from pipeline.experiments.identity import SEED_KEY, identity
from pipeline.experiments.revisions import experiment_commits, read_train_details
from pipeline.experiments.running import INPUTS_CHANGED, Experiment, run_all
from pipeline.experiments.space import Parameter, Sampler

_FIRST_SEED, _SECOND_SEED = 101, 102  # The verdict uses the seeds 1 to 5.
_METRIC_KEY = "train.metric_for_best_model"
_MAX_SAMPLES_KEY = "predict.max_samples"


@dataclass
class Trial:
    """A point of the search space.

    Attributes:
        values: The values of the point as text, by key.
        scores: The validation scores, by seed. None if the run failed.
    """

    number: int
    values: dict[str, str]
    scores: dict[int, float | None] = field(default_factory=dict)

    @property
    def overrides(self) -> list[str]:
        """The values as for `dvc exp run -S`."""
        return [f"{key}={value}" for key, value in self.values.items()]

    @property
    def score(self) -> float | None:
        """The mean score over the seeds. None if a run failed."""
        scores = [score for score in self.scores.values() if score is not None]
        return mean(scores) if len(scores) == len(self.scores) else None


class Study:
    """A search.

    Attributes:
        metric: The metric that chooses the epoch and ranks the trials. It is known after the first run.
    """

    def __init__(self, sampler: Sampler, jobs: int) -> None:
        self.metric = ""
        self._inputs = identity([])
        self._trials: list[Trial] = []
        self._sampler, self._jobs = sampler, jobs

    def run(self, n: int) -> list[Trial]:
        """Run `n` trials, or all points of a smaller grid.

        The best third of the distinct points, at least two, then run with a second seed.

        Returns:
            The trials with two seeds, the best one first, then the trials with one seed, then the failed ones.

        Raises:
            UserError: All trials failed, or the parameters, the code or the data have changed since the search began.
        """
        n = min(n, self._sampler.size or n)
        while len(self._trials) < n:
            batch = [Trial(*self._sampler.ask()) for _ in range(min(self._jobs, n - len(self._trials)))]
            self._trials += batch
            self._run(batch, _FIRST_SEED)
            for trial in batch:
                self._sampler.tell(trial.number, self._signed_score(trial))
        scored = [trial for trial in self._trials if trial.score is not None]
        if not scored:
            raise UserError("All trials failed. Fix the errors above, and search again.")
        ranked = self._ranked(scored)
        points = list(dict.fromkeys(tuple(trial.overrides) for trial in ranked))
        best = points[: max(2, len(points) // 3)]
        self._run([trial for trial in ranked if tuple(trial.overrides) in best], _SECOND_SEED)
        return self._ranked(self._trials)

    def require_unchanged(self) -> None:
        """Raise UserError if the parameters, the code or the data have changed since the search began."""
        if identity([]) != self._inputs:
            raise UserError(INPUTS_CHANGED)

    def _ranked(self, trials: list[Trial]) -> list[Trial]:
        """Sort by the number of seeds, then by the score, the best trial first. Failed trials come last."""

        def rank(trial: Trial) -> tuple[bool, int, float]:
            return trial.score is not None, len(trial.scores), self._signed_score(trial) or 0.0

        return sorted(trials, key=rank, reverse=True)

    def _signed_score(self, trial: Trial) -> float | None:
        """Return the score, negated if lower is better."""
        return None if trial.score is None else SCORES[self.metric].sign * trial.score

    def _run(self, trials: Sequence[Trial], seed: int) -> None:
        """Run the trials that have not been run with this seed, and read the scores of all trials."""
        self.require_unchanged()
        experiments = [
            Experiment(
                name=f"trial-{identity(trial.overrides)}-{seed}",
                overrides=trial.overrides,
                varied_override=f"{SEED_KEY}={seed}",
                title=f"trial {trial.number}, seed {seed}",
                stages=["train"],
            )
            for trial in trials
        ]
        finished = experiment_commits()
        # A sampler may propose the same point twice.
        missing = {run.name: run for run in experiments if run.name not in finished}
        run_all(list(missing.values()), self._jobs, stop_at_failure=False)
        finished = experiment_commits()
        for trial, experiment in zip(trials, experiments, strict=True):
            trial.scores[seed] = None
            result = "failed"
            if experiment.name in finished:
                details = read_train_details(finished[experiment.name])
                self.metric = details["metric_for_best_model"]
                trial.scores[seed] = details["score"]
                result = f"validation {self.metric} {SCORES[self.metric].format_for_log(details['score'])}"
            log.info("%s: %s", experiment.title, result)


def require_comparable(space: Sequence[Parameter]) -> None:
    """Raise UserError if the trials would be scored by different metrics, or on different examples."""
    for parameter in space:
        if parameter.key == _METRIC_KEY:
            raise UserError(
                f"{_METRIC_KEY} chooses the score that ranks the trials, so it cannot be searched. Remove it."
            )
        if parameter.key.startswith("data.") or parameter.key == _MAX_SAMPLES_KEY:
            raise UserError(
                f"{parameter.key} decides which examples are scored, so it must be the same in all trials. Remove it."
            )
