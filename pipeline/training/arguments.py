"""Build `TrainingArguments` from `params.yaml`, and reject values that an engine does not support."""

import sys
import typing
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt, TypeAdapter, ValidationError

from pipeline.core.messages import UserError
from pipeline.core.text import quoted, require_choice
from pipeline.evaluation.metrics import METRICS, SCORES
from pipeline.modeling.device import Device, use_one_gpu
from pipeline.params import RENAMED, RuntimeParams, TrainParams, describe

if TYPE_CHECKING:
    from transformers import TrainingArguments

# The only values of these keys that the engine "loop" supports. It supports all values of the other keys.
LOOP_CHOICES: dict[str, tuple[Any, ...]] = {
    "optim": ("adamw_torch_fused", "adamw_torch"),
    "lr_scheduler_type": (
        "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
    ),
    "torch_compile": (False,),
    "training_args": ({},),
}  # fmt: skip

# Fields that must keep the default of transformers, because the pipeline relies on it.
_RESERVED = {
    # On every machine, the section train alone determines the length of a run and the order of its examples.
    "max_steps", "data_seed", "auto_find_batch_size", "average_tokens_across_devices", "accelerator_config",
    "dataloader_drop_last", "dataloader_in_order", "remove_unused_columns", "label_names", "ddp_timeout",
    # The whole validation split is scored once after each epoch.
    "eval_on_start", "eval_delay", "prediction_loss_only", "batch_eval_metrics", "eval_do_concat_batches",
    # An interrupted run resumes from a complete checkpoint, with the batch that would have come next.
    "save_only_model", "ignore_data_skip", "enable_jit_checkpoint",
    "logging_strategy", "push_to_hub", "parallelism_config",
    # DeepSpeed clips gradients and stores weights its own way, which bypasses the pipeline's checks and checkpoints.
    "deepspeed",
}  # fmt: skip

# Fields whose default differs from the one in transformers. `train.training_args` may set them.
_DEFAULTS: dict[str, Any] = {
    "ddp_find_unused_parameters": False,  # Nearly all classifiers use all of their parameters.
    "tf32": False,  # torch.compile would otherwise switch it on, even in fp32.
}

_LogLevel = Literal["debug", "info", "warning", "error", "critical", "passive"]

# Types that are stricter or more lenient than the annotations of TrainingArguments.
_CORRECTED_TYPES: dict[str, Any] = {
    "eval_accumulation_steps": PositiveInt | None,
    "log_level": _LogLevel,
    "log_level_replica": _LogLevel,
    "label_smoothing_factor": Annotated[float, Field(ge=0, le=1)],
    "neftune_noise_alpha": Annotated[float, Field(ge=0)] | None,
    "fsdp": bool | str | list[str] | None,  # `True` and lists are allowed, too.
}


def check_training(params: TrainParams, runtime: RuntimeParams) -> None:
    """Raise UserError if a parameter has a name or a type that the engine would reject.

    The stage train checks the rest, because it depends on the device and on the other parameters.
    """
    if params.metric_for_best_model is not None:
        require_choice("train.metric_for_best_model", params.metric_for_best_model, ["loss", *METRICS])
    if params.engine == "loop":
        check_loop(params, runtime)
        return
    # The checks below import transformers, which takes seconds. They always accept these values.
    values = params.optim, params.lr_scheduler_type, runtime.report_to, params.training_args
    if values == ("adamw_torch_fused", "linear", "none", {}):
        return
    _check_names(params, runtime)
    # Only the names of these fields matter here, so their values are arbitrary.
    fields = _pipeline_fields(params, runtime, Device("cpu", "fp32"), Path("unused"), "loss")
    _check_training_args(params.training_args, fields)


def check_loop(params: TrainParams, runtime: RuntimeParams) -> None:
    """Raise UserError if a parameter has a value that only the engine "trainer" supports."""
    values = {f"train.{key}": (getattr(params, key), supported) for key, supported in LOOP_CHOICES.items()}
    values["runtime.report_to"] = (runtime.report_to, ("none",))
    for key, (value, supported) in values.items():
        if value not in supported:
            choices = " or ".join(quoted(choice) for choice in supported)
            raise UserError(f"params.yaml: {key} must be {choices} with train.engine loop, got {quoted(value)}.")


@contextmanager
def reporting_rejection(key: str) -> Iterator[None]:
    """Raise UserError, in one line, if torch or transformers cannot use the value of a key of the section train."""
    try:
        yield
    except (ImportError, TypeError, ValueError) as error:
        raise UserError(f"params.yaml: train.{key} cannot be used: {' '.join(str(error).split())}") from error


def training_arguments(
    params: TrainParams, runtime: RuntimeParams, device: Device, output_dir: Path, metric: str
) -> "TrainingArguments":
    """Build the `TrainingArguments` of a run.

    Args:
        device: The result of `usable_device`.
        output_dir: The directory of the checkpoints.
        metric: The validation score that chooses the best epoch. It is a name in `METRICS` or "loss".

    Raises:
        UserError: A name or a value is wrong, or `train.training_args` sets a field that it must not set.
    """
    from transformers import TrainingArguments  # The command check imports this module and must start fast.

    _check_names(params, runtime)
    fields = _pipeline_fields(params, runtime, device, output_dir, metric)
    _check_training_args(params.training_args, fields)
    if params.training_args.get("fsdp") and device.type == "cpu":
        raise UserError(
            "params.yaml: train.training_args must not set fsdp on CPUs. Accelerate would ignore it silently, and "
            "each process would train a whole copy of the model. Remove it."
        )
    fields = {**_DEFAULTS, **params.training_args, **fields}
    try:
        if params.lr_scheduler_type == "reduce_lr_on_plateau":  # By default, a lower score is better.
            mode = "max" if fields["greater_is_better"] else "min"
            fields["lr_scheduler_kwargs"] = {"mode": mode, **(fields.get("lr_scheduler_kwargs") or {})}
        arguments = TrainingArguments(**fields)
    except (TypeError, ValueError, NotImplementedError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"params.yaml: TrainingArguments rejects a value of train or train.training_args: {reason}"
        ) from error
    use_one_gpu(arguments)
    return arguments


def _pipeline_fields(
    params: TrainParams, runtime: RuntimeParams, device: Device, output_dir: Path, metric: str
) -> dict[str, Any]:
    """Return the fields of TrainingArguments that the pipeline sets."""
    return {
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
        "use_cpu": device.type == "cpu",
        "fp16": device.precision == "fp16",
        "bf16": device.precision == "bf16",
        "full_determinism": params.deterministic and device.type != "cpu",
        "activation_checkpointing": params.gradient_checkpointing,
        "torch_compile": params.torch_compile,
        "logging_steps": params.logging_steps,
        "logging_nan_inf_filter": False,  # The filter would hide NaN and infinite losses behind an average.
        "report_to": runtime.report_to,
        "disable_tqdm": not sys.stderr.isatty(),
        "eval_strategy": "epoch",
        "metric_for_best_model": metric,
        "greater_is_better": SCORES[metric].sign > 0,
        "load_best_model_at_end": params.keep == "best",
        "save_strategy": "epoch",  # `_Checkpointing` also saves between epochs.
        "save_total_limit": None,  # `_Checkpointing` removes old ones, but only once the new one is complete.
        "save_steps": runtime.save_steps,
        "restore_callback_states_from_checkpoint": True,  # This restores the patience counter of early stopping.
    }


def _check_training_args(training_args: dict[str, Any], pipeline_fields: Collection[str]) -> None:
    """Raise UserError if `train.training_args` sets a field that the pipeline controls, or has an invalid value."""
    from transformers import TrainingArguments

    types = typing.get_type_hints(TrainingArguments) | _CORRECTED_TYPES
    for field, value in training_args.items():
        key = f"train.{field}" if field in TrainParams.model_fields else RENAMED.get(field)
        if key or field in _RESERVED or field in pipeline_fields:
            reason = f"{key} sets it" if key else "the pipeline controls it"
            raise UserError(
                f"params.yaml: train.training_args must not set {quoted(field)}, because {reason}. Remove it."
            )
        require_choice("a field in train.training_args", field, types)
        adapter = TypeAdapter(types[field])
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError:
            form = describe(adapter.json_schema())
            raise UserError(f"params.yaml: train.training_args.{field} must be {form}, got {quoted(value)}.") from None


def _check_names(params: TrainParams, runtime: RuntimeParams) -> None:
    """Raise UserError for an unknown optimizer or tracker. transformers would show a traceback, and only later."""
    from transformers.integrations import integration_utils
    from transformers.training_args import OptimizerNames

    require_choice("train.optim", params.optim, [name.value for name in OptimizerNames])
    tracker = runtime.report_to
    if tracker == "none":
        return
    require_choice("runtime.report_to", tracker, ["none", *integration_utils.INTEGRATION_TO_CALLBACK])
    if tracker == "dvclive":
        raise UserError("params.yaml: runtime.report_to must not be dvclive, which rewrites dvc.yaml during the run.")
    if tracker not in integration_utils.get_available_reporting_integrations():  # type: ignore[no-untyped-call]
        raise UserError(f"params.yaml: runtime.report_to is {tracker}, which is not installed. Install it or use none.")
