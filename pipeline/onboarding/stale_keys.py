"""Find keys of params.yaml that only fit the earlier data."""

from collections.abc import Collection
from typing import Any

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluation.metrics import with_compared_metrics, with_selection_metric
from pipeline.params import DataParams, Params


def stale_data_keys(data: DataParams, columns: Collection[str]) -> dict[str, Any]:
    """Return new values for the keys of `data` that name columns which the new data do not have."""
    values: dict[str, Any] = {}
    if not set(data.slice_columns) <= set(columns):
        values["slice_columns"] = []
    if data.split.column is not None and data.split.column not in columns:
        values |= {"split.type": "stratify", "split.column": None}
    return values


def stale_keys(params: Params, task: Task) -> list[str]:
    """Return the keys outside of `data` that name classes or metrics which the new task does not have.

    Without a value (null), they fit every task.
    """
    keys = []
    weights = params.train.class_weights
    names = set(weights) if isinstance(weights, dict) else set()
    if weights is not None and not (task.labels and names <= set(task.labels)):
        keys.append("train.class_weights")
    try:
        with_selection_metric(task, params.train.metric_for_best_model)
    except UserError:
        keys.append("train.metric_for_best_model")
    try:
        with_compared_metrics(task, params.evaluate.metrics)
    except UserError:
        keys.append("evaluate.metrics")
    return keys
