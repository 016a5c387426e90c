"""Fine-tune the base model on the training examples."""

from pipeline.cli import as_command, parse_arguments
from pipeline.params import RuntimeParams, TrainParams, keys_of, load_params, require_unchanged

if __name__ == "__main__":  # --help must not wait for the imports below.
    parse_arguments(
        keys_of("train", "runtime.dataloader_num_workers", "runtime.report_to", "runtime.save_steps", "runtime.timeout")
    )

import json
import time
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_details, write_text
from pipeline.core.packages import require_locked
from pipeline.core.paths import (
    CHECKPOINTS,
    CLASSIFIER,
    METRICS_DIR,
    PRETRAINED,
    PROVENANCE,
    SOURCE,
    TOKENIZATION,
    TOKENIZED,
    read_json,
    require,
    users_path,
)
from pipeline.core.run_directory import code_digest, inputs_digest, run_directory, run_key
from pipeline.core.task import Task, read_task
from pipeline.core.timing import write_timing
from pipeline.evaluation.metrics import with_selection_metric
from pipeline.modeling import distributed
from pipeline.modeling.device import set_up_device
from pipeline.modeling.environment import environment
from pipeline.modeling.regression_head import fold_standardization
from pipeline.modeling.settings import InferenceSettings
from pipeline.training.history import History, LiveCurves, epochs_scored, kept_epoch, mean_loss
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

    train.json, environment.json, plots/history.csv and timing.json are written to `metrics`. If several processes train
    together, only rank 0 writes.

    Args:
        pretrained: The directory of the base model.
        classifier: The directory for the fine-tuned model, its provenance and the settings for using it.
        checkpoints: The directory of the checkpoints. An interrupted run resumes from its last one. All machines must
            have access to this directory.

    Raises:
        UserError: A parameter or an input is wrong, and the user can correct it.
    """
    require(pretrained, "pretrained")
    require(tokenized, "tokenize")
    task = with_selection_metric(read_task(tokenized, "tokenize"), params.metric_for_best_model)
    data, base_model = read_json(tokenized / SOURCE, "tokenize"), read_json(pretrained / SOURCE, "pretrained")
    tokenization = read_json(tokenized / TOKENIZATION, "tokenize")
    device = set_up_device(params.precision, params.num_threads)
    settings = InferenceSettings(
        text_columns=task.text_columns,
        max_length=tokenization["max_length"],
        precision=device.precision,
    )

    if params.engine == "loop":
        from pipeline.training.loop import fit
    else:
        from pipeline.training.trainer import fit

    if distributed.rank() > 0:
        run_checkpoints = distributed.broadcast(checkpoints)
        inputs = load_inputs(task, tokenized, pretrained, params, device)
        fit(inputs, run_checkpoints, params, runtime, lambda history: None)
        return
    # The record of what the model is made from.
    provenance: dict[str, Any] = {
        "checkpoint": base_model,
        "code": code_digest(),
        "data": data,
        "environment": environment(device),
        "inputs": inputs_digest([tokenized, pretrained]),
        "parameters": params.model_dump(),
    }
    with (
        run_directory(checkpoints, run_key(provenance)) as run_checkpoints,
        LiveCurves(metrics / "plots" / "history.csv", task) as curves,
    ):
        distributed.broadcast(run_checkpoints)
        with atomic_output(classifier) as draft:  # If it cannot be written, fail before training.
            inputs = load_inputs(task, tokenized, pretrained, params, device)
            log.info(
                "training on %s %s, effective batch size %d, %d %s, %s steps",
                f"{len(inputs.training):,}", task.noun, inputs.effective_batch,
                params.epochs, "epoch" if params.epochs == 1 else "epochs",
                f"{inputs.steps_in_epoch * params.epochs:,}",
            )  # fmt: skip
            started = time.perf_counter()
            weights, history = fit(inputs, run_checkpoints, params, runtime, curves.write)
            seconds = time.perf_counter() - started
            try:
                _write_model(draft, inputs, weights, settings, provenance)
            except SafetensorError as error:  # safetensors raises this error if the disk is full.
                raise UserError(f"{classifier} cannot be written: {error}") from error
        curves.write(history)  # If training resumed after its last step, the curves are not written yet.
        summary = _summary(history, params, task, inputs.effective_batch, len(inputs.validation))
        if summary["degenerate"]:
            log.warning(
                "the model gives the same prediction for every validation example. Try another train.lr, more "
                "train.epochs or another train.seed."
            )
        write_details(metrics / "train.json", summary)
        write_details(metrics / "environment.json", provenance["environment"])
        write_timing(metrics / "timing.json", "train", seconds)


def _write_model(
    directory: Path,
    inputs: TrainInputs,
    weights: dict[str, Any],
    settings: InferenceSettings,
    provenance: dict[str, Any],
) -> None:
    """Write the fine-tuned model, its tokenizer, its provenance and the settings for using it."""
    inputs.model.save_pretrained(directory, state_dict=fold_standardization(inputs.model, weights))
    inputs.tokenizer.save_pretrained(directory)
    settings.write(directory)
    # `write_json` would round the parameters to six digits.
    write_text(directory / PROVENANCE, json.dumps(provenance, indent=2, sort_keys=True) + "\n")


def _summary(
    history: History, params: TrainParams, task: Task, effective_batch: int, validation_examples: int
) -> dict[str, Any]:
    """Return the content of train.json. It has no times, so that the same run gives the same bytes."""
    epochs = epochs_scored(history)
    kept = kept_epoch(history, params.keep, task)
    return {
        "kept_epoch": epochs.index(kept) + 1,
        # The prediction for a single example says nothing about the model.
        "degenerate": validation_examples > 1 and kept["eval_distinct_predictions"] == 1,
        "effective_batch_size": effective_batch,
        "epochs": params.epochs,
        "epochs_run": len(epochs),
        "metric_for_best_model": task.metric_for_best_model,
        "score": kept[f"eval_{task.metric_for_best_model}"],
        "steps": epochs[-1]["step"],
        "train_loss": mean_loss(history),
    }


def main() -> None:
    require_locked()
    params = load_params()
    code = code_digest()
    with distributed.process_group(params.runtime.timeout):
        train(TOKENIZED, PRETRAINED, CLASSIFIER, METRICS_DIR, users_path(CHECKPOINTS), params.train, params.runtime)
    require_unchanged(params, ["train"])
    if code_digest() != code:
        raise UserError(
            "The code in pipeline/ was changed while this stage ran, and DVC would record the new code for the old "
            'model. Undo the change and run "dvc repro" again, which continues after the last step.'
        )


if __name__ == "__main__":
    with as_command():
        main()
