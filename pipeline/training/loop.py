"""The engine "loop": the training loop of the Hugging Face course on Accelerate, written to be read from top to bottom.

At every step, its loss is the same as that of the engine "trainer" (trainer.py). It saves no checkpoints, so a run that
is interrupted starts from the beginning.
"""

import math
import sys
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import get_scheduler, set_seed

from pipeline.core.dataset_files import read_column
from pipeline.modeling.cpu import fast_dropout
from pipeline.modeling.progress import ProgressLine
from pipeline.modeling.scoring import collator
from pipeline.params import RuntimeParams, TrainParams
from pipeline.training.history import History, Weights, check_finite, kept_epoch, last_loss, log_epoch, should_stop
from pipeline.training.inputs import TrainInputs
from pipeline.training.validation import compute_metrics


def fit(inputs: TrainInputs, checkpoints: Path, params: TrainParams, runtime: RuntimeParams) -> tuple[Weights, History]:
    """Fine-tune `inputs.model` in the same way as `fit` in trainer.py, but without checkpoints and trackers."""
    precision = inputs.device.precision
    mixed_precision = "no" if precision == "fp32" else precision
    accelerator = Accelerator(cpu=inputs.device.type == "cpu", mixed_precision=mixed_precision)
    set_seed(params.seed)  # The Trainer also seeds here, so that dropout is the same in both engines.
    columns = [*inputs.tokenizer.model_input_names, "labels"]
    loading: dict[str, Any] = {
        "collate_fn": collator(inputs.tokenizer, inputs.device),
        "num_workers": runtime.dataloader_num_workers,
    }
    model, optimizer, train_loader, validation_loader = accelerator.prepare(
        inputs.model,
        torch.optim.AdamW(inputs.model.parameters(), lr=params.lr, weight_decay=0.0, fused=True),
        DataLoader(inputs.training.select_columns(columns), params.batch_size, sampler=inputs.sampler, **loading),
        DataLoader(inputs.validation.select_columns(columns), params.batch_size, **loading),
    )
    max_steps = inputs.sampler.steps * params.epochs
    schedule = get_scheduler(params.lr_scheduler_type, optimizer, math.ceil(params.warmup_ratio * max_steps), max_steps)
    logging_steps = min(params.logging_steps, inputs.sampler.steps)
    history: History = []
    weights: Weights = {}
    step, loss_since_logged = 0, torch.zeros((), device=accelerator.device)
    bar, line = tqdm(total=max_steps, disable=not sys.stderr.isatty()), ProgressLine("training")
    with logging_redirect_tqdm(), bar, fast_dropout():
        for epoch in range(params.epochs):
            model.train()
            inputs.sampler.set_epoch(epoch)
            batches, batches_done = iter(train_loader), 0
            while step_batches := list(islice(batches, params.gradient_accumulation_steps)):
                loss_since_logged += _backward(accelerator, model, step_batches, inputs)
                norm = accelerator.clip_grad_norm_(model.parameters(), params.max_grad_norm or math.inf)
                lr = schedule.get_last_lr()[0]
                optimizer.step()
                if not accelerator.optimizer_step_was_skipped:  # The fp16 scaler skips a step if gradients overflow.
                    schedule.step()
                optimizer.zero_grad()
                step += 1
                batches_done += len(step_batches)
                progress = {"epoch": epoch + batches_done / len(train_loader), "step": step}
                if step % logging_steps == 0:
                    loss = accelerator.reduce(loss_since_logged, "mean").item() / logging_steps
                    entry = {"loss": loss * inputs.loss.squared_scale, "grad_norm": norm.item(), "learning_rate": lr}
                    check_finite(entry, step, precision == "fp16")
                    history.append({**entry, **progress})
                    loss_since_logged.zero_()
                bar.update()
                line.update(step, max_steps, last_loss(history))
            scores = _evaluate(accelerator, model, validation_loader, inputs)
            history.append({**{f"eval_{name}": score for name, score in scores.items()}, **progress})
            check_finite(history[-1], step, precision == "fp16")
            log_epoch(history, params.epochs, inputs.task)
            if kept_epoch(history, params.keep, inputs.task) is history[-1]:
                weights = {name: weight.clone() for name, weight in accelerator.get_state_dict(model).items()}
            if should_stop(history, params.early_stopping_patience, inputs.task):
                break
    return weights, history


def _backward(accelerator: Accelerator, model: Any, batches: list[Any], inputs: TrainInputs) -> torch.Tensor:
    """Accumulate the gradients of the batches of one step, and return their loss.

    Dividing by the labels of the effective batch, not of this forward pass, gives the same mean however the effective
    batch is split. Accelerate averages gradients over processes, and multiplying by their number makes it a sum.
    """
    labels_in_step = torch.tensor(sum(batch["labels"].numel() for batch in batches), device=accelerator.device)
    labels_in_step = accelerator.reduce(labels_in_step, "sum")
    step_loss = torch.zeros((), device=accelerator.device)
    for number, batch in enumerate(batches, start=1):
        labels = batch.pop("labels")
        with accelerator.no_sync(model) if number < len(batches) else nullcontext():
            loss = inputs.loss(model(**batch).logits, labels) / labels_in_step * accelerator.num_processes
            accelerator.backward(loss)
        step_loss += loss.detach()
    return step_loss


@torch.no_grad()
def _evaluate(accelerator: Accelerator, model: Any, loader: DataLoader[Any], inputs: TrainInputs) -> dict[str, float]:
    """Score the validation split. `gather_for_metrics` drops the examples that Accelerate repeated to fill a batch."""
    model.eval()
    scored = []
    for batch in loader:
        labels = batch.pop("labels")
        scored.append(accelerator.gather_for_metrics((model(**batch).logits.float(), labels)))
    logits, labels = (torch.cat(parts).cpu().numpy() for parts in zip(*scored, strict=True))
    return compute_metrics(inputs.task, logits, labels, read_column(inputs.validation, "idx"))
