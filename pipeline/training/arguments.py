"""Build `TrainingArguments` from `params.yaml`, and reject values that it does not support."""

import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from transformers import TrainingArguments

from pipeline.core.messages import UserError, one_line
from pipeline.core.task import Task
from pipeline.core.text import quoted, require_choice
from pipeline.evaluation.metrics import SCORES
from pipeline.modeling.device import Device
from pipeline.modeling.scoring import trainer_arguments
from pipeline.params import RENAMED, RuntimeParams, TrainParams

# Fields that would silently change the length of a run, its batches, its loss, its scores, or how it resumes.
_RESERVED = {
    "max_steps", "auto_find_batch_size", "average_tokens_across_devices", "dataloader_drop_last", "disable_tqdm",
    "enable_jit_checkpoint", "eval_do_concat_batches", "eval_delay", "eval_on_start", "ignore_data_skip", "label_names",
    "logging_strategy", "prediction_loss_only", "push_to_hub", "remove_unused_columns", "save_only_model", "deepspeed",
    "fsdp", "use_cpu",
}  # fmt: skip


@contextmanager
def rejecting_values() -> Iterator[None]:
    """Raise UserError, in one line, if torch or transformers rejects a value of the section train."""
    try:
        yield
    except (ImportError, NotImplementedError, TypeError, ValueError) as error:
        raise UserError(f"params.yaml: a value of train is rejected: {one_line(error)}") from error


def training_arguments(
    params: TrainParams, runtime: RuntimeParams, device: Device, output_dir: Path, task: Task
) -> TrainingArguments:
    """Build the `TrainingArguments` of a run. Raises UserError for a wrong name or value in `train.training_args`."""
    metric = task.metric_for_best_model
    fields: dict[str, Any] = {
        "output_dir": str(output_dir),
        "seed": params.seed,
        "num_train_epochs": params.epochs,
        "per_device_train_batch_size": params.batch_size,
        "per_device_eval_batch_size": params.batch_size,
        "gradient_accumulation_steps": params.gradient_accumulation_steps,
        "dataloader_num_workers": runtime.dataloader_num_workers,
        "learning_rate": params.lr,
        "lr_scheduler_type": params.lr_scheduler_type,
        "warmup_steps": params.warmup_ratio,  # A value below 1 is a fraction of all steps.
        "optim": params.optim,
        "weight_decay": params.weight_decay,
        "max_grad_norm": params.max_grad_norm,
        "full_determinism": params.deterministic and device.type != "cpu",
        "activation_checkpointing": params.gradient_checkpointing,
        "torch_compile": params.torch_compile,
        "logging_steps": params.logging_steps,
        "logging_nan_inf_filter": False,  # The filter would hide NaN and infinite losses behind an average.
        "report_to": runtime.report_to,
        "eval_strategy": "epoch",
        "metric_for_best_model": metric,
        "greater_is_better": SCORES[metric].sign > 0,
        "load_best_model_at_end": params.keep == "best",
        "save_strategy": "epoch",  # `Checkpointing` also saves between epochs.
        "save_total_limit": 2,  # the newest and the best one
    }
    defaults = {"ddp_find_unused_parameters": False, "tf32": False}  # torch.compile would switch tf32 on.
    types = typing.get_type_hints(TrainingArguments)
    for name, value in params.training_args.items():
        key = f"train.{name}" if name in TrainParams.model_fields else RENAMED.get(name)
        if key or name in fields or name in _RESERVED:
            reason = f"{key} sets it" if key else "the pipeline controls it"
            raise UserError(f"params.yaml: train.training_args must not set {quoted(name)}, because {reason}.")
        require_choice("a field in train.training_args", name, types)
        try:
            TypeAdapter(types[name]).validate_python(value, strict=True)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise UserError(f"params.yaml: train.training_args.{name}: {reason}, got {quoted(value)}.") from None
    if params.training_args.get("label_smoothing_factor") and not task.is_single_label:
        raise UserError("params.yaml: train.training_args.label_smoothing_factor needs a task with classes.")
    with rejecting_values():
        return trainer_arguments(device, **{**defaults, **params.training_args, **fields})
