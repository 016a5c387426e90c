"""The scores of the validation split, by which the Trainer chooses the epoch."""

import datasets
import evaluate
import numpy as np

from pipeline.core.task import Task
from pipeline.evaluation.metrics import Floats, Values, scores
from pipeline.modeling.outputs import Logits, logits_to_predictions, logits_to_probabilities, loss
from pipeline.modeling.windows import Idx, first_windows, mean_over_windows


def compute_metrics(task: Task, logits: Logits, labels: Values, idx: Idx | None = None) -> dict[str, float]:
    """Return the task's metrics, the `loss`, and the number of `distinct_predictions`. Windows share an `idx`."""
    if idx is not None:
        logits, labels = mean_over_windows(logits, idx), labels[first_windows(idx)]
    if task.is_multi_label:
        labels = labels.astype(np.int64)  # They are floats for the loss, but the metrics need integers.
    predictions = logits_to_predictions(task.problem_type, logits)
    probabilities = logits_to_probabilities(task.problem_type, logits)
    metrics = task_metric(task).compute(predictions=predictions, references=labels, probabilities=probabilities)
    distinct = len(np.unique(predictions, axis=0))
    return {**metrics, "loss": loss(task.problem_type, logits, labels), "distinct_predictions": distinct}


def task_metric(task: Task) -> evaluate.Metric:
    """Return the task's metrics as an `evaluate.Metric`.

    This replaces `evaluate.load("glue", "mrpc")`, which would download a script from the Hub and run it.
    """

    class TaskMetric(evaluate.Metric):  # type: ignore[misc]
        def _info(self) -> evaluate.MetricInfo:
            value = datasets.Value("float64" if task.is_regression else "int64")
            example = datasets.List(value) if task.is_multi_label else value
            features = datasets.Features(predictions=example, references=example)
            return evaluate.MetricInfo("The metrics of the task", citation="", features=features)

        def _compute(self, predictions: Values, references: Values, probabilities: Floats | None) -> dict[str, float]:
            return scores(task.metrics, np.asarray(references), np.asarray(predictions), probabilities)

    return TaskMetric(keep_in_memory=True)
