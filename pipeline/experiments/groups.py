"""Seed groups: repeat one configuration with several seeds, and show a table of the scores."""

from statistics import mean, stdev

from pipeline.core.text import aligned
from pipeline.evaluation.signature import as_line, joined
from pipeline.evaluation.uncertainty import mean_interval
from pipeline.experiments.comparison import ON_VALIDATION
from pipeline.experiments.identity import SEED, identity
from pipeline.experiments.render import SCORE_UNITS, by_title
from pipeline.experiments.revisions import group_commits, read_metrics
from pipeline.experiments.running import Experiment, run_group


def group_name(overrides: list[str]) -> str:
    """Return `seeds-<identity>`. Raises UserError if `identity` does."""
    return f"seeds-{identity(overrides)}"


def run_seeds(n: int, overrides: list[str], jobs: int) -> None:
    """Run the seeds from 1 to n that are not finished, `jobs` at a time, and print the table of scores.

    Raises:
        UserError: A run failed. The other runs that have started end first.
    """
    group = group_name(overrides)
    experiments = [
        Experiment(name=f"{group}-{seed}", overrides=overrides, varied=f"{SEED}={seed}", title=f"seed {seed} of {n}")
        for seed in range(1, n + 1)
    ]
    run_group(group, experiments, jobs)
    print("\n".join(_summary(group, n)))


def _summary(group: str, n: int) -> list[str]:
    """Return the lines of the table over the seeds from 1 to n, and what to type next."""
    evaluations, degenerate, signatures = [], [], []
    for seed, commit in group_commits(group).items():
        if seed <= n:
            evaluations.append(by_title(read_metrics(commit, "evaluation")))
            signatures.append(read_metrics(commit, "diagnostics")["signature"])
            if read_metrics(commit, "train")["degenerate"]:
                degenerate.append(f"{group}-{seed}")
    rows = [["", "seeds", "mean", "std. dev.", "lowest", "highest", "95% confidence interval of the mean"]]
    for title, (metric, _) in evaluations[0].items():
        scores = [evaluation[title][1] for evaluation in evaluations]
        statistics = (mean(scores), stdev(scores), min(scores), max(scores))
        interval = " to ".join(metric.format(limit, 2) for limit in mean_interval(scores, metric.scale))
        rows.append([title, str(n), *(metric.format(value, 2) for value in statistics), interval])
    has_test = any(title.startswith("test ") for title in evaluations[0])
    return [
        *aligned(rows, "right"),
        SCORE_UNITS,
        *([] if has_test else [ON_VALIDATION]),
        f"Degenerate runs (the same prediction for all of validation): {len(degenerate)} of {n}"
        + (f" ({', '.join(degenerate)}), included in the table" if degenerate else ""),
        f"Signature: {as_line(joined(signatures))}",
        f"To compare with another group: python -m pipeline.compare {group} OTHER",
    ]
