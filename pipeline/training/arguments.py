"""Build `TrainingArguments` from `params.yaml`, and refuse what the engines cannot do."""

import difflib
import math
import sys
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.messages import UserError
from pipeline.evaluation.metrics import METRICS, sign
from pipeline.modeling.device import Device, usable_device
from pipeline.params import RuntimeParams, TrainParams

if TYPE_CHECKING:
    from transformers import TrainingArguments


# Values that the engine "loop" supports, of the keys that it does not support in full.
LOOP: dict[str, tuple[Any, ...]] = {
    "optim": ("adamw_torch_fused", "adamw_torch"),
    "lr_scheduler_type": (
        "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
    ),
    "torch_compile": (False,),
    "extra": ({},),
}  # fmt: skip


_SCALARS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "null"}


def check_training(params: TrainParams, runtime: RuntimeParams) -> None:
    """Raise UserError for what the engine refuses in one process on this machine."""
    if params.metric_for_best_model is not None:
        _one_of("train.metric_for_best_model", params.metric_for_best_model, ["loss", *METRICS], "a metric")
    if params.engine == "loop":
        check_loop(params, runtime)
    elif params.extra or runtime.report_to != "none" or params.optim not in LOOP["optim"]:
        # Takes seconds to import. The metric is the task's, which is not known yet; here any will do.
        training_arguments(params, runtime, usable_device(params.precision), Path("unused"), "loss")
        if params.extra.get("fsdp"):
            raise UserError(
                "params.yaml: train.extra.fsdp shards the model over several processes, and runtime.launcher starts "
                "one; see docs/several_machines.md"
            )


def check_loop(params: TrainParams, runtime: RuntimeParams) -> None:
    """Raise UserError for a parameter that only the engine "trainer" supports."""
    for key, able in LOOP.items():
        if (value := getattr(params, key)) not in able:
            choices = " or ".join(map(str, able))
            raise UserError(f"params.yaml: train.{key} is {value}; with train.engine loop it must be {choices}")
    if runtime.report_to != "none":
        raise UserError(
            f"params.yaml: runtime.report_to is {runtime.report_to}; with train.engine loop it must be none"
        )


def training_arguments(
    params: TrainParams, runtime: RuntimeParams, device: Device, output_dir: Path, metric: str
) -> "TrainingArguments":
    """Build `TrainingArguments`.

    device: from `usable_device`. output_dir: where Trainer keeps its own files while it trains. metric: that chooses
    the epoch, of `METRICS`, or "loss".
    Raises UserError for a field in `train.extra` that doesn't exist or that another key sets, and for a refused value.
    """
    from transformers import TrainingArguments

    _check_names(params, runtime)
    # By the key that sets them: the message for a field that train.extra may not set names that key.
    fields_of: dict[str, dict[str, Any]] = {
        "train.seed": {"seed": params.seed, "data_seed": None},  # the order of the rows has no seed of its own
        "train.epochs": {"num_train_epochs": params.epochs, "max_steps": -1},
        "train.lr": {"learning_rate": params.lr},
        "train.batch_size": {
            "per_device_train_batch_size": params.batch_size,
            "per_device_eval_batch_size": params.batch_size,
        },
        "train.gradient_accumulation_steps": {"gradient_accumulation_steps": params.gradient_accumulation_steps},
        "train.precision": {"fp16": device.precision == "fp16", "bf16": device.precision == "bf16"},
        "train.weight_decay": {"weight_decay": params.weight_decay},
        "train.warmup_ratio": {"warmup_steps": params.warmup_ratio},  # a value below 1 is a share of all steps
        "train.lr_scheduler_type": {"lr_scheduler_type": params.lr_scheduler_type},
        "train.max_grad_norm": {"max_grad_norm": params.max_grad_norm},
        "train.optim": {"optim": params.optim},
        "train.logging_steps": {"logging_strategy": "steps", "logging_steps": params.logging_steps},
        "runtime.save_steps": {"save_steps": runtime.save_steps},
        "train.keep": {
            "eval_strategy": "epoch",
            "load_best_model_at_end": params.keep == "best",
            "metric_for_best_model": metric,
            "greater_is_better": sign(metric) > 0,
        },
        "train.group_by_length": {
            "train_sampling_strategy": "group_by_length" if params.group_by_length else "random",
        },
        "train.gradient_checkpointing": {
            "activation_checkpointing": params.gradient_checkpointing,
            "gradient_checkpointing": None,  # the old name of the same field
        },
        "train.torch_compile": {"torch_compile": params.torch_compile},
        "train.deterministic": {"full_determinism": params.deterministic and device.type != "cpu"},
        "runtime.dataloader_num_workers": {"dataloader_num_workers": runtime.dataloader_num_workers},
        "runtime.report_to": {"report_to": runtime.report_to},
        "runtime.timeout": {"ddp_timeout": 1800},  # its default; runtime.timeout is in force by now
        "the pipeline": {
            "output_dir": str(output_dir),
            "use_cpu": device.type == "cpu",
            "disable_tqdm": not sys.stderr.isatty(),
            "logging_nan_inf_filter": False,  # it would replace a loss that is not finite by an average of earlier ones
            "average_tokens_across_devices": True,  # the loss is a mean over the effective batch of all devices
            "auto_find_batch_size": False,  # the effective batch would depend on the machine
            # Not read by the pipeline's own loaders and scoring:
            "remove_unused_columns": True,
            "accelerator_config": None,
            "dataloader_drop_last": False,
            "dataloader_in_order": True,
            "dataloader_multiprocessing_context": None,
            "dataloader_pin_memory": True,
            "prediction_loss_only": False,
            "batch_eval_metrics": False,
            "eval_do_concat_batches": True,
            # checkpointing.py saves more often than at the end of an epoch.
            "save_strategy": "epoch",
            "save_total_limit": 2,  # the newest one, and that of the best epoch
            "save_only_model": False,
            "restore_callback_states_from_checkpoint": True,  # of early stopping
            "ignore_data_skip": False,  # a resumed run goes on with the batch that would have come next
            "enable_jit_checkpoint": False,  # would take the signals
            "push_to_hub": False,
            # The report reads one scoring of all of validation after each epoch.
            "eval_on_start": False,
            "eval_delay": 0,
            "label_names": None,
        },
    }
    setter = {field: key for key, fields in fields_of.items() for field in fields}
    known = list(TrainingArguments.__dataclass_fields__)
    for field in params.extra:
        if field in setter:
            raise UserError(f"params.yaml: train.extra.{field} is set by {setter[field]}; remove it from train.extra")
        _one_of("train.extra", field, known, "a TrainingArguments field")
    _refuse_sharding(params.extra, device)
    _check_extra(params.extra, typing.get_type_hints(TrainingArguments))
    values = {field: value for fields in fields_of.values() for field, value in fields.items()}
    # DDP: classifiers use all of their parameters, and looking for unused ones takes time.
    values["ddp_find_unused_parameters"] = False
    values["tf32"] = False  # torch.compile would switch it on, in fp32 too
    try:
        arguments = TrainingArguments(**{**values, **params.extra})
        if params.lr_scheduler_type == "reduce_lr_on_plateau":  # it would take a rise of the metric for a plateau
            mode = "max" if arguments.greater_is_better else "min"
            arguments.lr_scheduler_kwargs = {"mode": mode, **(arguments.lr_scheduler_kwargs or {})}  # type: ignore[dict-item]
    except (TypeError, ValueError, NotImplementedError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"params.yaml: train.* or train.extra is refused by TrainingArguments: {reason}") from error
    return _on_one_gpu(arguments)


def _check_extra(extra: dict[str, Any], hints: dict[str, Any]) -> None:
    """Raise UserError for a value that TrainingArguments accepts, and on which training would fail."""
    for field, value in extra.items():
        union = typing.get_origin(hints[field]) in (types.UnionType, typing.Union)
        choices = typing.get_args(hints[field]) if union else (hints[field],)
        if field == "fsdp" or not _SCALARS.keys() >= set(choices):  # fsdp also takes true, against its hint
            continue
        if type(value) not in choices and not (type(value) is int and float in choices):
            expected = " or ".join(_SCALARS[choice] for choice in choices)
            raise UserError(f"params.yaml: train.extra.{field} is {value}; it must be {expected}")
    for field, most in (("label_smoothing_factor", 1), ("neftune_noise_alpha", math.inf)):
        if not 0 <= (value := extra.get(field) or 0) <= most:
            upper = "" if most == math.inf else f" and at most {most}"
            raise UserError(f"params.yaml: train.extra.{field} is {value}; it must be at least 0{upper}")


def _refuse_sharding(extra: dict[str, Any], device: Device) -> None:
    if extra.get("deepspeed"):
        raise UserError(
            "params.yaml: train.extra.deepspeed is set; DeepSpeed clips gradients and keeps weights its own way, past "
            "the checks and checkpoints of this pipeline: remove it, or on GPUs shard the model by train.extra.fsdp"
        )
    if extra.get("fsdp") and device.type == "cpu":  # accelerate ignores it without a word
        raise UserError(
            "params.yaml: train.extra.fsdp is set, but on CPUs accelerate does not shard the model: each process would "
            "train a whole copy, as without it; remove it"
        )


def _on_one_gpu(arguments: "TrainingArguments") -> "TrainingArguments":
    # With several visible GPUs Trainer would split each batch over all of them (DataParallel), and the effective batch
    # size would depend on the machine. One process computes on one GPU.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _check_names(params: TrainParams, runtime: RuntimeParams) -> None:
    """Check names that only transformers knows. Raises UserError; transformers would raise later, with a traceback."""
    from transformers.integrations import integration_utils
    from transformers.training_args import OptimizerNames

    _one_of("train.optim", params.optim, [name.value for name in OptimizerNames], "an optimizer of transformers")
    if runtime.report_to == "none":
        return
    _one_of("runtime.report_to", runtime.report_to, ["none", *integration_utils.INTEGRATION_TO_CALLBACK], "a tracker")
    trouble = None
    if runtime.report_to == "dvclive":
        trouble = "which rewrites dvc.yaml while the stage runs"
    elif runtime.report_to not in integration_utils.get_available_reporting_integrations():  # type: ignore[no-untyped-call]
        trouble = "which is not installed"
    if trouble:
        raise UserError(
            f"params.yaml: runtime.report_to is {runtime.report_to}, {trouble}; use none or another tracker"
        )


def _one_of(key: str, value: str, known: list[str], what: str) -> None:
    if value not in known:
        # Prefix matches first: by edit distance alone, adam is closer to adagrad than to adamw_torch.
        begin = [name for name in known if name.startswith(value)]
        close = begin or difflib.get_close_matches(value, known, n=1)
        meant = f'did you mean "{close[0]}"?' if close else f"they are {', '.join(sorted(known))}"
        shown = value if len(value) <= 60 else f"{value[:57]}..."
        raise UserError(f"params.yaml: {key}: {shown} is not {what}; {meant}")
