"""Seed groups: repeat one configuration with several seeds, and show a table of the scores."""

from statistics import mean, stdev

from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS
from pipeline.evaluation.signature import as_line
from pipeline.experiments.identity import SEED_KEY, identity, load_overridden_params
from pipeline.experiments.render import SCORE_UNITS
from pipeline.experiments.running import Experiment, run_group
from pipeline.experiments.sides import ON_VALIDATION, Side, describe_degenerate_runs, read_side


def seed_group_name(overrides: list[str]) -> str:
    """Return `seeds-<identity>`. Raises UserError if `identity` does."""
    return f"seeds-{identity(overrides)}"


def run_seeds(n: int, overrides: list[str], jobs: int) -> Side:
    """Run the seeds from 1 to n that are not finished, `jobs` at a time, print their scores, and return the runs.

    Raises:
        UserError: A run failed. The other runs that have started end first.
    """
    group = seed_group_name(overrides)
    experiments = [
        Experiment(f"{group}-{seed}", overrides, f"{SEED_KEY}={seed}", f"seed {seed} of {n}")
        for seed in range(1, n + 1)
    ]
    run_group(group, experiments, jobs)
    side = read_side(group, load_overridden_params(overrides), seeds=n)
    print("\n".join(_summary(side)))
    return side


def _summary(side: Side) -> list[str]:
    """Return the lines of the table of scores, and what to type next."""
    task = side.runs[0].task
    rows = [["", "seeds", "mean", "std. dev.", "lowest", "highest"]]
    for split in sorted(task.scored_splits):
        runs = [run.predictions[split] for run in side.runs]
        for name in task.metrics:
            metric = METRICS[name]
            scores = [metric.compute(run.labels, run.predicted, run.probability) for run in runs]
            statistics = (mean(scores), stdev(scores), min(scores), max(scores))
            cells = [metric.format(value, 2) for value in statistics]
            rows.append([f"{split} {metric.title}", f"{len(scores)}", *cells])
    warning = describe_degenerate_runs(side, "validation")
    return [
        *aligned(rows, "right"),
        SCORE_UNITS,
        *([] if task.verdict_split == "test" else [ON_VALIDATION]),
        *([f"Warning: {warning}."] if warning else []),
        f"Signature: {as_line(side.signature)}",
        f"To compare with another group: python -m pipeline.compare {side.name} OTHER",
    ]
