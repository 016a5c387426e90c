"""The engine "loop": the training loop of the Hugging Face course on Accelerate, written to be read from top to bottom.

At every step, its loss is the same as that of the engine "trainer" (trainer.py).
"""

import math
import sys
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from datasets import Dataset
from safetensors.torch import load_file
from torch.utils.data import DataLoader, Sampler
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import TrainerState, enable_full_determinism, get_scheduler, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import rotate_checkpoints

from pipeline.modeling import distributed
from pipeline.modeling.cpu import fast_dropout
from pipeline.modeling.failures import reporting_out_of_memory, require_finite
from pipeline.modeling.scoring import collator
from pipeline.params import RuntimeParams, TrainParams
from pipeline.training.arguments import check_loop, reporting_rejection
from pipeline.training.checkpointing import mark_complete, newest_checkpoint, reporting_write_errors
from pipeline.training.history import History, WriteCurves, is_stopped_early, kept_epoch, log_epoch, validation_scores
from pipeline.training.inputs import MEMORY_REMEDY, TrainInputs
from pipeline.training.interruption import Interruption, ignore_signals


@reporting_out_of_memory(MEMORY_REMEDY)
def fit(
    inputs: TrainInputs, checkpoints: Path, params: TrainParams, runtime: RuntimeParams, write_curves: WriteCurves
) -> tuple[dict[str, Any], History]:
    """Fine-tune `inputs.model` in the same way as `fit` in trainer.py.

    Raises:
        UserError: The same as in trainer.py, or a parameter has a value that only the Trainer supports.
    """
    check_loop(params, runtime)
    accelerator = _accelerator(inputs, params)
    model, optimizer, train_loader, validation_loader = accelerator.prepare(
        inputs.model,
        _optimizer(inputs.model, params),
        _loader(inputs.training, inputs, params, runtime, inputs.sampler),
        _loader(inputs.validation, inputs, params, runtime),
    )
    steps_in_epoch = inputs.steps_in_epoch
    max_steps = steps_in_epoch * params.epochs
    logging_steps = min(params.logging_steps, steps_in_epoch)
    warmup_steps = math.ceil(params.warmup_ratio * max_steps)  # as in TrainingArguments.get_warmup_steps
    with reporting_rejection("lr_scheduler_type"):
        schedule = get_scheduler(params.lr_scheduler_type, optimizer, warmup_steps, max_steps)
    accelerator.register_for_checkpointing(schedule)
    if accelerator.process_index:  # Otherwise, dropout would drop the same units in all processes.
        torch.manual_seed(params.seed + accelerator.process_index)

    state = TrainerState(max_steps=max_steps, best_global_step=None)
    if checkpoint := newest_checkpoint(checkpoints):
        accelerator.load_state(str(checkpoint))
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    first_step = state.global_step
    first_epoch, steps_to_skip = divmod(first_step, steps_in_epoch)
    batches_to_skip = steps_to_skip * params.gradient_accumulation_steps
    loss_since_logged = torch.zeros((), device=accelerator.device)
    steps_since_logged = 0
    bar = tqdm(total=max_steps, initial=first_step, disable=not sys.stderr.isatty() or distributed.rank() > 0)
    with logging_redirect_tqdm(), bar, fast_dropout(), Interruption() as interruption:
        for epoch in range(first_epoch, params.epochs):
            if is_stopped_early(state.log_history, params.early_stopping_patience, inputs.task):
                break
            model.train()
            remaining_batches = accelerator.skip_first_batches(train_loader, batches_to_skip)
            remaining_batches.set_epoch(epoch)
            inputs.sampler.set_epoch(epoch)  # With several processes, the line above does not reach it after a resume.
            batches = iter(remaining_batches)
            batches_to_skip = 0
            while step_batches := list(islice(batches, params.gradient_accumulation_steps)):
                loss_since_logged += _backward(accelerator, model, step_batches, inputs)
                norm = accelerator.clip_grad_norm_(model.parameters(), params.max_grad_norm or math.inf)
                lr = schedule.get_last_lr()[0]
                optimizer.step()
                if not accelerator.optimizer_step_was_skipped:  # The fp16 scaler skips a step if gradients overflow.
                    schedule.step()
                optimizer.zero_grad()
                bar.update()
                state.global_step += 1
                # As in the Trainer, this counts batches, because the last step of an epoch may have fewer of them.
                batches_done = (state.global_step - epoch * steps_in_epoch) * params.gradient_accumulation_steps
                state.epoch = epoch + min(batches_done / len(train_loader), 1.0)
                steps_since_logged += 1
                if state.global_step % logging_steps == 0:
                    mean_loss = accelerator.reduce(loss_since_logged, "mean") / steps_since_logged
                    _log_step(state, inputs, mean_loss.item(), norm.item(), lr)
                    write_curves(state.log_history)
                    loss_since_logged.zero_()
                    steps_since_logged = 0
                epoch_ends = state.global_step % steps_in_epoch == 0
                if epoch_ends:
                    _log_scores(state, inputs, _evaluate(accelerator, model, validation_loader, inputs))
                    log_epoch(state.log_history, params.epochs, inputs.task)
                    write_curves(state.log_history)
                if interruption.agreed() or epoch_ends or state.global_step % runtime.save_steps == 0:
                    _save(accelerator, state, checkpoints)
                    if interruption.agreed():
                        interruption.stop(state.global_step, max_steps)
    weights = accelerator.get_state_dict(model)
    if params.keep == "best" and state.best_global_step != state.global_step:
        weights = load_file(checkpoints / f"checkpoint-{state.best_global_step}" / "model.safetensors")
    return weights, state.log_history


def _accelerator(inputs: TrainInputs, params: TrainParams) -> Accelerator:
    """Create the Accelerator, and seed the random generators."""
    device = inputs.device
    AcceleratorState._reset_state(reset_partial_state=True)  # An earlier run in this process may have left a state.
    mixed_precision = "no" if device.precision == "fp32" else device.precision
    accelerator = Accelerator(cpu=device.type == "cpu", mixed_precision=mixed_precision)
    if params.deterministic and device.type != "cpu":
        enable_full_determinism(params.seed)
    else:
        set_seed(params.seed)
    if params.gradient_checkpointing:
        inputs.model.activation_checkpointing_enable()
    return accelerator


def _optimizer(model: Any, params: TrainParams) -> torch.optim.Optimizer:
    """Return AdamW without weight decay for biases and layer norms, as in the Trainer."""
    decayed, not_decayed = [], []
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 or "bias" in name:
            not_decayed.append(parameter)
        else:
            decayed.append(parameter)
    groups = [{"params": decayed, "weight_decay": params.weight_decay}, {"params": not_decayed, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=params.lr, fused=params.optim == "adamw_torch_fused")


def _loader(
    examples: Dataset,
    inputs: TrainInputs,
    params: TrainParams,
    runtime: RuntimeParams,
    sampler: Sampler[int] | None = None,
) -> DataLoader[Any]:
    return DataLoader(
        examples.select_columns([*inputs.tokenizer.model_input_names, "labels"]),
        batch_size=params.batch_size,
        sampler=sampler,
        collate_fn=collator(inputs.tokenizer, inputs.device),
        num_workers=runtime.dataloader_num_workers,
        pin_memory=inputs.device.type == "cuda",
        worker_init_fn=ignore_signals,
        # The loader draws a random number at the start of an epoch, and once more if the run resumes within it. If it
        # drew from the global generator, dropout would differ after a resume.
        generator=torch.Generator() if sampler else None,
    )


def _backward(
    accelerator: Accelerator, model: Any, batches: list[dict[str, torch.Tensor]], inputs: TrainInputs
) -> torch.Tensor:
    """Accumulate the gradients of the batches of one step, and return their loss."""
    # The number of labels in the effective batch, which the Trainer calls `num_items_in_batch`.
    labels_in_step = sum(batch["labels"].numel() for batch in batches)
    labels_in_step = accelerator.reduce(torch.tensor(labels_in_step, device=accelerator.device), "sum")
    step_loss = torch.zeros((), device=accelerator.device)
    for number, batch in enumerate(batches, start=1):
        labels = batch.pop("labels")
        with accelerator.no_sync(model) if number < len(batches) else nullcontext():
            # Dividing by the labels of the effective batch, not of this forward pass, gives the same mean however the
            # effective batch is split. Accelerate averages the gradients over the processes, and multiplying by their
            # number turns that average into a sum.
            loss = inputs.loss(model(**batch).logits, labels) / labels_in_step * accelerator.num_processes
            accelerator.backward(loss)
        step_loss += loss.detach()
    return step_loss


def _log_step(state: TrainerState, inputs: TrainInputs, loss: float, grad_norm: float, lr: float) -> None:
    """Append the last step to the history, like the Trainer does."""
    loss *= inputs.loss.squared_scale
    require_finite("loss", loss, state.global_step)
    if inputs.device.precision != "fp16":  # With fp16, gradients may overflow, and the scaler skips the step.
        require_finite("gradient norm", grad_norm, state.global_step)
    progress = {"epoch": state.epoch, "step": state.global_step}
    state.log_history.append({"loss": loss, "grad_norm": grad_norm, "learning_rate": lr, **progress})


def _log_scores(state: TrainerState, inputs: TrainInputs, scores: dict[str, float]) -> None:
    """Append the scores of an epoch to the history, like the Trainer does, and record the step of the best epoch."""
    require_finite("validation loss", scores["loss"], state.global_step)
    entry = {f"eval_{name}": score for name, score in scores.items()}
    state.log_history.append({**entry, "epoch": state.epoch, "step": state.global_step})
    state.best_global_step = kept_epoch(state.log_history, "best", inputs.task)["step"]


@torch.no_grad()
def _evaluate(accelerator: Accelerator, model: Any, loader: DataLoader[Any], inputs: TrainInputs) -> dict[str, float]:
    """Score the validation split.

    `gather_for_metrics` drops the examples that Accelerate repeated to give every process a full batch.
    """
    model.eval()
    scored = []
    for batch in loader:
        labels = batch.pop("labels")
        scored.append(accelerator.gather_for_metrics((model(**batch).logits.float(), labels)))
    logits, labels = (torch.cat(parts).cpu().numpy() for parts in zip(*scored, strict=True))
    return validation_scores(inputs.task, logits, labels)


def _save(accelerator: Accelerator, state: TrainerState, checkpoints: Path) -> None:
    """Save a complete checkpoint, and remove all but the newest and the best one."""
    path = checkpoints / f"checkpoint-{state.global_step}"
    with reporting_write_errors(checkpoints, state.global_step):
        accelerator.save_state(str(path))
        if accelerator.is_main_process:
            state.save_to_json(str(path / TRAINER_STATE_NAME))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        mark_complete(path)
        best = state.best_global_step
        rotate_checkpoints(str(checkpoints), 2, str(checkpoints / f"checkpoint-{best}") if best else None)
