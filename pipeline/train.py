"""Stage train: fine-tune the pretrained transformer on the tokenized rows with the Hugging Face Trainer."""

from pipeline.cli import parse_arguments, run
from pipeline.params import RuntimeParams, TrainParams, keys_of, load_params

if __name__ == "__main__":  # --help must not wait for the imports below
    ARGUMENTS = parse_arguments(
        keys_of(
            "train", "runtime.dataloader_num_workers", "runtime.report_to", "runtime.save_steps", "runtime.timeout"
        ),
        fresh="start anew, whatever checkpoints a stopped run has left",
    )

import json
import math
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pipeline.core.details import write_details
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_text
from pipeline.core.packages import require_locked
from pipeline.core.paths import (
    CHECKPOINTS,
    CLASSIFIER,
    METRICS,
    PRETRAINED,
    PROVENANCE,
    SOURCE,
    TOKENIZATION,
    TOKENIZED,
    require,
    users_path,
)
from pipeline.core.run_directory import code_digest, run_directory, run_key
from pipeline.core.task import Task, read_task
from pipeline.evaluation.metrics import choosing_by
from pipeline.modeling import distributed
from pipeline.modeling.device import set_up_device, warn_if_busy
from pipeline.modeling.environment import environment
from pipeline.modeling.regression_head import fold
from pipeline.modeling.settings import InferenceSettings
from pipeline.training.history import epochs_scored, kept_epoch, live_curves
from pipeline.training.inputs import TrainResult, load_inputs


def train(
    tokenized: Path,
    pretrained: Path,
    classifier: Path,
    metrics: Path,
    checkpoints: Path,
    params: TrainParams,
    runtime: RuntimeParams,
    fresh: bool = False,
) -> None:
    """Fine-tune `pretrained` on `tokenized/train`, scored each epoch on `tokenized/validation`.

    Writes the model directory `classifier`, with its provenance and how to use it, and under `metrics` train.json,
    environment.json, plots/history.csv and timing.json. A run that was stopped left a checkpoint under `checkpoints`,
    and is resumed from it unless `fresh`. Where several processes train together, rank 0 alone writes. All see the same
    files: on several machines, the project lies on a file system that they share.
    Raises UserError for a parameter or an input that the user can correct.
    """
    require(pretrained, "pretrained")
    require(tokenized, "tokenize")
    task = choosing_by(read_task(tokenized, "tokenize"), params.metric_for_best_model)
    data, checkpoint = _source(tokenized, "tokenize"), _source(pretrained, "pretrained")
    device = set_up_device(params.precision, params.num_threads)

    if params.engine == "loop":
        from pipeline.training.loop import fit
    else:
        from pipeline.training.trainer import fit  # and with it all the code that the weights depend on, for the key

    # The one record of what the model is made from. All commands read it.
    provenance = {
        "checkpoint": checkpoint,
        "code": code_digest(),
        "data": data,
        "environment": environment(device),
        "parameters": params.model_dump(),
    }
    if distributed.rank() > 0:
        home = distributed.broadcast(checkpoints)
        fit(load_inputs(task, tokenized, pretrained, params, device), home, params, runtime, lambda history: None)
        return
    warn_if_busy()
    with (
        run_directory(checkpoints, run_key(provenance, [tokenized, pretrained]), fresh) as home,
        live_curves(metrics / "plots" / "history.csv", task) as curves,
    ):
        distributed.broadcast(home)
        with atomic_output(classifier) as draft:  # before training: an output that cannot be written fails now
            inputs = load_inputs(task, tokenized, pretrained, params, device)
            rows, effective_batch_size = len(inputs.training), params.batch_size
            effective_batch_size *= params.gradient_accumulation_steps * distributed.world_size()
            log.info(
                "training on %d %s, effective batch %d, %d %s, %d steps",
                rows, task.noun, effective_batch_size, params.epochs, "epoch" if params.epochs == 1 else "epochs",
                math.ceil(rows / effective_batch_size) * params.epochs,
            )  # fmt: skip
            result = fit(inputs, home, params, runtime, curves)
            kept = kept_epoch(result.history, params.keep, task)
            try:
                inputs.model.save_pretrained(draft, state_dict=fold(inputs.model, result.weights))
                inputs.tokenizer.save_pretrained(draft)
            except SafetensorError as error:  # how it reports a full disk
                raise UserError(f"{classifier} cannot be written: {error}") from error
            InferenceSettings(
                task=task.name, problem_type=task.problem_type, text_columns=task.text_columns, labels=task.labels,
                precision=device.precision, **json.loads((tokenized / TOKENIZATION).read_text(encoding="utf-8")),
            ).write(draft)  # fmt: skip
            # Not by write_json, which rounds: a learning rate of 1e-7 would become 0.
            write_text(draft / PROVENANCE, json.dumps(provenance, indent=2, sort_keys=True) + "\n")
        curves(result.history)  # also where training was resumed after its last step
        _write_report(metrics, result, kept, task, effective_batch_size, params.epochs)
        write_details(metrics / "environment.json", provenance["environment"])
        epochs_run = len(epochs_scored(result.history))
        result.watch.write(metrics / "timing.json", "train", samples=rows * epochs_run)


def _source(directory: Path, producer: str) -> Any:
    return json.loads(require(directory / SOURCE, producer).read_text(encoding="utf-8"))


def _write_report(
    metrics: Path, result: TrainResult, kept: dict[str, Any], task: Task, effective_batch_size: int, epochs_asked: int
) -> None:
    epochs = epochs_scored(result.history)
    degenerate = kept["eval_different"] == 1
    if degenerate:
        log.warning(
            "DEGENERATE: this model predicts the same for all of validation, so its scores are those of no "
            "model at all; try another train.lr, more train.epochs or another train.seed"
        )
    write_details(
        metrics / "train.json",  # no clock in it: the same run gives the same bytes
        {
            "kept_epoch": epochs.index(kept) + 1,
            "degenerate": degenerate,
            "effective_batch_size": effective_batch_size,
            "epochs": epochs_asked,
            "epochs_run": len(epochs),
            "metric_for_best_model": task.metric_for_best_model,
            "score": kept[f"eval_{task.metric_for_best_model}"],
            "steps": epochs[-1]["step"],
            "train_loss": result.train_loss,
        },
    )


def main(fresh: bool = False) -> None:
    require_locked()
    params = load_params()
    with distributed.process_group(params.runtime.timeout):
        train(TOKENIZED, PRETRAINED, CLASSIFIER, METRICS, users_path(CHECKPOINTS), params.train, params.runtime, fresh)


if __name__ == "__main__":
    run(main, ARGUMENTS)
