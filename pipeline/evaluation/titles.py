"""Titles of scores, for tables that people read."""

from collections.abc import Mapping

from pipeline.evaluation.metrics import METRICS, Metric


def by_title(evaluation: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[Metric, float]]:
    """Return the metrics of an evaluation.json and their values, keyed by titles such as "test F1", test first."""
    return {
        f"{split} {metric.title}": (metric, evaluation[split][name])
        for split in sorted(evaluation)
        for name, metric in METRICS.items()
        if name in evaluation[split]
    }
