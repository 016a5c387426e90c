"""The course of a run: the history of its steps and epochs."""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.messages import log
from pipeline.core.output import output_errors, write_text
from pipeline.core.task import Task
from pipeline.evaluation.metrics import Values, compute_metrics, predicted, sign

History = list[dict[str, Any]]  # an entry for each logged step and each scoring of validation, as in Trainer's log
Curves = Callable[[History], None]  # shows the course of the run so far


def mean_loss(history: History) -> float:
    """Return the mean training loss over the steps up to the last logged one."""
    logged = [entry for entry in history if "loss" in entry]
    steps = np.diff([0, *(entry["step"] for entry in logged)])
    return float(np.average([entry["loss"] for entry in logged], weights=steps))


def validation_scores(task: Task, logits: NDArray[np.float32], labels: Values) -> dict[str, float]:
    """Score validation by the task's metrics.

    Args:
        logits: Shape (examples, outputs).

    Returns:
        The metrics, the `loss`, and how many `different` predictions there are.
    """
    if task.problem_type == "multi_label_classification":  # floats, for binary cross-entropy
        labels = labels.astype(np.int64)
    different = len(np.unique(predicted(task.problem_type, logits), axis=0))
    return {**compute_metrics(task, logits, labels), "different": different}


def improves(task: Task, scores: dict[str, float], best: dict[str, float] | None) -> bool:
    """Whether an epoch's scores are better than the best so far, by the metric that chooses; None: there are none."""
    name = task.metric_for_best_model
    return best is None or sign(name) * (scores[name] - best[name]) > 0


def log_epoch(history: History, epochs: int, task: Task) -> None:
    """Log the epoch whose scores are the last entry of `history`, named as in Trainer's log.

    Its train loss is the mean of what was logged in it, as in the report.
    """
    *before, scores = history
    losses = [entry["loss"] for entry in takewhile(lambda entry: "loss" in entry, reversed(before))]
    log.info(
        "epoch %d/%d: train loss %.4f, validation %s",
        round(scores["epoch"]), epochs, sum(losses) / len(losses),
        ", ".join(f"{name} {scores[f'eval_{name}']:.4f}" for name in ("loss", *task.metrics)),
    )  # fmt: skip


def epochs_scored(history: History) -> History:
    """The entries with an epoch's scores."""
    return [entry for entry in history if "eval_loss" in entry]


def kept_epoch(history: History, keep: str, task: Task) -> dict[str, Any]:
    """The entry of the epoch whose weights are kept."""
    epochs = epochs_scored(history)
    name = task.metric_for_best_model
    return max(epochs, key=lambda entry: sign(name) * entry[f"eval_{name}"]) if keep == "best" else epochs[-1]


@contextmanager
def live_curves(path: Path, task: Task) -> Iterator[Curves]:
    """Yield a function that appends what is new in the history of the run to a CSV file, in whole lines.

    The file is removed if the block fails. Raises UserError if it cannot be written, for the first time before the
    block begins.
    """
    columns = ("step", "epoch", "split", "loss", "score", *task.metrics, "lr")
    entries = 0  # of the history that are in the file

    def append(history: History) -> None:
        nonlocal entries
        lines = io.StringIO()
        csv.DictWriter(lines, columns, lineterminator="\n").writerows(_rows(history[entries:], task))
        with output_errors(path), path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(lines.getvalue())
        entries = len(history)

    write_text(path, ",".join(columns) + "\n")
    try:
        yield append
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _rows(history: History, task: Task) -> Iterator[dict[str, Any]]:
    """A row for each logged step of training and each scoring of validation. score: that chooses the epoch."""
    for entry in history:
        row = {"step": entry["step"], "epoch": round(entry["epoch"], 4)}
        if "loss" in entry:
            yield row | {"split": "train", "loss": round(entry["loss"], 6), "lr": f"{entry['learning_rate']:.6g}"}
        elif "eval_loss" in entry:  # else it is Trainer's summary of the run
            scores = {name: round(entry[f"eval_{name}"], 6) for name in ("loss", *task.metrics)}
            yield row | {"split": "validation", **scores, "score": scores[task.metric_for_best_model]}
