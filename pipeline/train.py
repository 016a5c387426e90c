"""Fine-tune the base model on the training examples."""

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.cli import run_stage
from pipeline.core.messages import log
from pipeline.core.output import atomic_output, rounded, write_details, write_json, write_text
from pipeline.core.paths import (
    CLASSIFIER,
    METRICS_DIR,
    PRETRAINED,
    PROVENANCE,
    SETTINGS,
    SOURCE,
    TOKENIZATION,
    TOKENIZED,
    read_json,
    require,
    users_path,
)
from pipeline.core.stage import code_digest, digest, unchanged
from pipeline.core.task import Task, read_task
from pipeline.evaluation.metrics import with_selection_metric
from pipeline.modeling import distributed
from pipeline.modeling.classifier import InferenceSettings
from pipeline.modeling.device import set_up_device
from pipeline.modeling.environment import environment
from pipeline.modeling.regression_head import fold_standardization
from pipeline.params import Params, RuntimeParams, TrainParams
from pipeline.training.checkpointing import CHECKPOINTS, run_directory
from pipeline.training.history import History, epochs_scored, kept_epoch
from pipeline.training.inputs import TrainInputs, load_inputs


def train(
    tokenized: Path,
    pretrained: Path,
    classifier: Path,
    metrics: Path,
    checkpoints: Path,
    params: TrainParams,
    runtime: RuntimeParams,
) -> None:
    """Fine-tune the base model on `tokenized/train`, and score it on `tokenized/validation` after each epoch.

    train.json and plots/history.csv are written to `metrics`. If several processes train together, only rank 0 writes.

    Args:
        checkpoints: The directory of the checkpoints. After an interruption, a run with the same inputs resumes there.
    """
    require(pretrained)
    task = with_selection_metric(read_task(tokenized), params.metric_for_best_model)
    device = set_up_device(params.precision, params.num_threads)
    tokenization = read_json(tokenized / TOKENIZATION)
    if params.engine == "loop":
        from pipeline.training.loop import fit
    else:
        from pipeline.training.trainer import fit

    # The record of what the model is made from. Its hash names the directory of the checkpoints.
    provenance: dict[str, Any] = {
        "checkpoint": read_json(pretrained / SOURCE),
        "code": code_digest("train"),
        "data": read_json(tokenized / SOURCE),
        "environment": environment(device),
        "inputs": digest([tokenized, pretrained]),
        "parameters": params.model_dump(),
    }
    record = json.dumps(provenance, indent=2, sort_keys=True) + "\n"
    key = distributed.broadcast(hashlib.sha256(record.encode()).hexdigest()[:16])
    # `unchanged` is inside, so that an edit ends the run before `run_directory` removes the checkpoints.
    with run_directory(checkpoints, key) as run_checkpoints, unchanged("train"):
        inputs = load_inputs(task, tokenized, pretrained, params, device)
        sampler = inputs.sampler
        examples, steps = f"{len(sampler):,}", f"{sampler.steps * params.epochs:,}"
        log.info(
            "training on %s %s, effective batch size: %d, epochs: %d, steps: %s",
            examples, task.noun, sampler.effective_batch, params.epochs, steps,
        )  # fmt: skip
        # Git tracks the scores of the previous model, and would show them for an experiment that ends before evaluate.
        (metrics / "evaluation.json").unlink(missing_ok=True)
        started = time.perf_counter()
        weights, history = fit(inputs, run_checkpoints, params, runtime)
        log.info("trained for %.1f seconds", time.perf_counter() - started)
        if distributed.rank() > 0:
            return
        with atomic_output(classifier) as draft:
            _write_model(draft, inputs, weights)
            settings = InferenceSettings(
                task.text_columns, tokenization["max_length"], device.precision, tokenization["stride"]
            )
            write_json(draft / SETTINGS, settings._asdict())
            write_text(draft / PROVENANCE, record)  # `write_json` would round the parameters to six digits.
        _write_curves(metrics / "plots" / "history.csv", task, history)
        summary = _summary(history, params, inputs) | {"environment": provenance["environment"]}
        write_details(metrics / "train.json", summary)


def _write_model(directory: Path, inputs: TrainInputs, weights: dict[str, Any]) -> None:
    inputs.model.save_pretrained(directory, state_dict=fold_standardization(inputs.model, weights))
    inputs.tokenizer.save_pretrained(directory)
    for file in directory.glob("*.safetensors"):  # safetensors makes files that only their owner can read.
        shutil.copymode(directory / "config.json", file)


def _write_curves(path: Path, task: Task, history: History) -> None:
    """Write the training curves as CSV: a row for each logged step and for each epoch."""
    rows: list[dict[str, Any]] = []
    for entry in history:
        row = {"step": entry["step"], "epoch": round(entry["epoch"], 4)}
        if "loss" in entry:
            lr = f"{entry['learning_rate']:.6g}"
            rows.append({**row, "split": "train", "loss": rounded(entry["loss"]), "lr": lr})
        elif "eval_loss" in entry:
            scores = {name: rounded(entry[f"eval_{name}"]) for name in ("loss", *task.metrics)}
            score = rounded(entry[f"eval_{task.metric_for_best_model}"])
            rows.append({**row, "split": "validation", **scores, "score": score})
    columns = ["step", "epoch", "split", "loss", "score", *task.metrics, "lr"]
    write_text(path, pd.DataFrame(rows, columns=columns).to_csv(index=False))


def _summary(history: History, params: TrainParams, inputs: TrainInputs) -> dict[str, Any]:
    """Return the content of train.json. It has no times, so that the same run gives the same bytes."""
    task = inputs.task
    epochs = epochs_scored(history)
    kept = kept_epoch(history, params.keep, task)
    degenerate = kept["eval_distinct_predictions"] == 1
    if degenerate:
        log.warning(
            "the model gives the same prediction for every validation example. Try another train.lr, more train.epochs "
            "or another train.seed."
        )
    return {
        "kept_epoch": round(kept["epoch"]),
        "degenerate": degenerate,
        "effective_batch_size": inputs.sampler.effective_batch,
        "epochs": params.epochs,
        "epochs_run": len(epochs),
        "metric_for_best_model": task.metric_for_best_model,
        "score": kept[f"eval_{task.metric_for_best_model}"],
        "steps": epochs[-1]["step"],
    }


def main(params: Params) -> None:
    with distributed.connected():
        train(TOKENIZED, PRETRAINED, CLASSIFIER, METRICS_DIR, users_path(CHECKPOINTS), params.train, params.runtime)


if __name__ == "__main__":
    run_stage("train", main)
