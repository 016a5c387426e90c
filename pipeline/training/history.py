"""Compute, log and write the history of a run: the losses of its steps and the scores of its epochs."""

import csv
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.messages import log
from pipeline.core.output import output_errors, rounded, write_text
from pipeline.core.task import Task
from pipeline.evaluation.metrics import SCORES, Values, compute_metrics, logits_to_predictions

History = list[dict[str, Any]]  # The Trainer's `log_history`: one entry per logged step and per evaluation.
WriteCurves = Callable[[History], None]  # Called with the history so far.


def mean_loss(history: History) -> float:
    """Return the mean training loss over all steps up to the last logged one."""
    logged = [entry for entry in history if "loss" in entry]
    steps = np.diff([0, *(entry["step"] for entry in logged)])
    return float(np.average([entry["loss"] for entry in logged], weights=steps))


def validation_scores(task: Task, logits: NDArray[np.float32], labels: Values) -> dict[str, float]:
    """Compute the task's metrics on the validation split.

    Args:
        logits: Shape (examples, outputs).

    Returns:
        The metrics, the `loss`, and the number of distinct predictions as `distinct_predictions`.
    """
    if task.problem_type == "multi_label_classification":
        labels = labels.astype(np.int64)  # They are floats for the loss, but the metrics need integers.
    distinct = len(np.unique(logits_to_predictions(task.problem_type, logits), axis=0))
    return {**compute_metrics(task, logits, labels), "distinct_predictions": distinct}


def log_epoch(history: History, epochs: int, task: Task) -> None:
    """Log the scores in the last entry of `history`, and the mean of the losses that were logged in that epoch."""
    *earlier, scores = history
    losses = [entry["loss"] for entry in takewhile(lambda entry: "loss" in entry, reversed(earlier))]
    log.info(
        "epoch %d/%d: training loss %s, validation %s",
        round(scores["epoch"]), epochs, SCORES["loss"].format_for_log(float(np.mean(losses))),
        ", ".join(f"{name} {SCORES[name].format_for_log(scores[f'eval_{name}'])}" for name in ("loss", *task.metrics)),
    )  # fmt: skip


def epochs_scored(history: History) -> History:
    """Return the entries that have the scores of an epoch."""
    return [entry for entry in history if "eval_loss" in entry]


def kept_epoch(history: History, keep: str, task: Task) -> dict[str, Any]:
    """Return the entry of the epoch whose weights are kept: the best or the last one."""
    epochs = epochs_scored(history)
    name = task.metric_for_best_model
    return max(epochs, key=lambda entry: SCORES[name].sign * entry[f"eval_{name}"]) if keep == "best" else epochs[-1]


def is_stopped_early(history: History, patience: int | None, task: Task) -> bool:
    """Return whether the score has not improved for `patience` epochs (None means never)."""
    epochs = epochs_scored(history)
    if patience is None or not epochs:
        return False
    best = kept_epoch(history, "best", task)
    return len(epochs) - 1 - epochs.index(best) >= patience


class LiveCurves:
    """A CSV file of the training curves, which grows by whole lines during training.

    Use it in a `with` block. If the block fails, the file is removed.

    Raises:
        UserError: The file cannot be written. This is checked at the start of the block.
    """

    def __init__(self, path: Path, task: Task) -> None:
        self._path = path
        self._task = task
        self._columns = ("step", "epoch", "split", "loss", "score", *task.metrics, "lr")
        self._written = 0  # number of history entries handled so far

    def __enter__(self) -> "LiveCurves":
        write_text(self._path, ",".join(self._columns) + "\n")
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: Any) -> None:
        if error_type:
            with suppress(OSError):
                self._path.unlink()

    def write(self, history: History) -> None:
        """Append the entries of the history that have not been written yet."""
        rows = (self._row(entry) for entry in history[self._written :] if "loss" in entry or "eval_loss" in entry)
        with output_errors(self._path), self._path.open("a", encoding="utf-8", newline="\n") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerows(rows)
        self._written = len(history)

    def _row(self, entry: dict[str, Any]) -> dict[str, Any]:
        row = {"step": entry["step"], "epoch": round(entry["epoch"], 4)}
        if "loss" in entry:
            lr = f"{entry['learning_rate']:.6g}"
            return {**row, "split": "train", "loss": rounded(entry["loss"]), "lr": lr}
        scores = {name: rounded(entry[f"eval_{name}"]) for name in ("loss", *self._task.metrics)}
        return {**row, "split": "validation", **scores, "score": scores[self._task.metric_for_best_model]}
