"""The history of a run: the losses of its steps and the scores of its epochs."""

import math
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np

from pipeline.core.messages import UserError, log
from pipeline.core.task import Task
from pipeline.evaluation.metrics import SCORES

Weights = dict[str, Any]  # the tensors of a model by name
History = list[dict[str, Any]]  # The Trainer's `log_history`: one entry per logged step and per evaluation.


def check_finite(entry: Mapping[str, float], step: int, fp16: bool) -> None:
    """Raise UserError if a loss or a gradient is NaN or infinite. In fp16, the scaler skips such gradients."""
    for name in ("loss", "eval_loss") if fp16 else ("loss", "grad_norm", "eval_loss"):
        if not math.isfinite(entry.get(name, 0.0)):
            raise UserError(
                f"the {name} is {entry[name]} at step {step}. Try a lower train.lr, a higher train.warmup_ratio, "
                "train.precision bf16 or fp32, or train.max_grad_norm 1.0."
            )


def log_epoch(history: History, epochs: int, task: Task) -> None:
    """Log the scores in the last entry of `history`, and the mean of the losses that were logged in that epoch."""
    *earlier, scores = history
    losses = [entry["loss"] for entry in takewhile(lambda entry: "loss" in entry, reversed(earlier))]
    log.info(
        "epoch %d/%d: training loss %s, validation %s",
        round(scores["epoch"]), epochs, f"{np.mean(losses):.4g}",
        ", ".join(f"{name} {scores[f'eval_{name}']:.4g}" for name in ("loss", *task.metrics)),
    )  # fmt: skip


def last_loss(history: History) -> str:
    """Return the last logged loss, for a line of progress."""
    return next((f", loss {entry['loss']:.4g}" for entry in reversed(history) if "loss" in entry), "")


def epochs_scored(history: History) -> History:
    """Return the entries that have the scores of an epoch."""
    return [entry for entry in history if "eval_loss" in entry]


def _quality(epoch: Mapping[str, float], task: Task) -> float:
    """Return the score that chooses the epoch, with its sign reversed if lower values are better."""
    name = task.metric_for_best_model
    return SCORES[name].sign * epoch[f"eval_{name}"]


def kept_epoch(history: History, keep: str, task: Task) -> dict[str, Any]:
    """Return the entry of the epoch whose weights are kept: the best one (the last of several), or the last one."""
    epochs = epochs_scored(history)[::-1]
    return max(epochs, key=lambda epoch: _quality(epoch, task)) if keep == "best" else epochs[0]


def should_stop(history: History, patience: int | None, task: Task) -> bool:
    """Return whether `patience` epochs have passed without progress (None means never).

    A better score is progress, and so is an equal score with a lower loss: the F1 of a rare class may stay at 0 for
    several epochs in which the model learns.
    """
    ranks = [(_quality(epoch, task), -epoch["eval_loss"]) for epoch in epochs_scored(history)]
    return patience is not None and bool(ranks) and len(ranks) - 1 - ranks.index(max(ranks)) >= patience
