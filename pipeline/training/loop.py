"""The engine "loop": the same training run without the Trainer, on Accelerate, to be read from top to bottom.

Forward, backward, clip, step, schedule, zero. Its losses are those of trainer.py, step by step.
"""

import itertools
import math
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import enable_full_determinism, get_scheduler, set_seed

from pipeline.core.tables import to_numpy
from pipeline.core.task import NO_LABEL
from pipeline.core.timing import Stopwatch
from pipeline.modeling import distributed
from pipeline.modeling.batching import TrainingBatches, TrainingLoader
from pipeline.modeling.cpu import fast_dropout
from pipeline.modeling.device import get_random_state, set_random_state
from pipeline.modeling.failures import demand_finite, memory_for_batch, memory_for_model
from pipeline.modeling.inference import logits
from pipeline.params import RuntimeParams, TrainParams
from pipeline.training.arguments import check_loop
from pipeline.training.checkpointing import checkpoint_path, complete, newest, progress_of, saving
from pipeline.training.history import Curves, History, RunningLoss, improves, log_epoch, validation_scorer
from pipeline.training.inputs import TrainInputs, TrainResult
from pipeline.training.interruption import Interruption

_STATE = "state.pt"


@memory_for_model(training=True)
def fit(inputs: TrainInputs, home: Path, params: TrainParams, runtime: RuntimeParams, curves: Curves) -> TrainResult:
    """As `fit` of trainer.py; also raises UserError for a parameter that only the Trainer supports."""
    check_loop(params, runtime)
    model, rank, accumulation_steps = inputs.model, distributed.rank(), params.gradient_accumulation_steps
    (device, precision), size, workers = inputs.device, params.batch_size, runtime.dataloader_num_workers
    AcceleratorState._reset_state(reset_partial_state=True)  # of another run in this process
    accelerator = Accelerator(cpu=device == "cpu", mixed_precision=precision.replace("fp32", "no"))
    if params.deterministic and device != "cpu":
        enable_full_determinism(params.seed)
    else:
        set_seed(params.seed)
    model.config.use_cache = False  # as Trainer leaves it
    if params.gradient_checkpointing:
        model.activation_checkpointing_enable()
    batches = TrainingBatches(inputs.training, size, accumulation_steps, params.seed, params.group_by_length)
    steps_in_epoch = math.ceil(len(batches) / accumulation_steps)
    steps = steps_in_epoch * params.epochs
    groups: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}  # by decay; biases and layer norms have none
    for name, parameter in model.named_parameters():
        groups[parameter.ndim > 1 and "bias" not in name].append(parameter)
    optimizer: Any = torch.optim.AdamW(
        [{"params": groups[True], "weight_decay": params.weight_decay}, {"params": groups[False], "weight_decay": 0.0}],
        lr=params.lr,
        fused=params.optim == "adamw_torch_fused",
    )
    schedule = get_scheduler(params.lr_scheduler_type, optimizer, math.ceil(params.warmup_ratio * steps), steps)
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": accelerator.scaler}
    parts = {name: part for name, part in parts.items() if part is not None}
    if rank > 0:  # else all ranks would drop the same units
        torch.manual_seed(params.seed + rank)

    step, best_step, best, epochs_since_best, finite_loss, random_state = 0, None, None, 0, None, None
    history: History = []
    losses, score, watch = RunningLoss(inputs.loss.unit), validation_scorer(inputs.task), Stopwatch()
    if resumed := newest(home, keep_best=params.keep == "best"):
        state = torch.load(resumed / _STATE, map_location="cpu", weights_only=True)
        step, best_step, best, epochs_since_best, history = state["progress"]
        random_state = state["random"][rank]
        for name, part in parts.items():
            part.load_state_dict(state[name])
        progress = progress_of(resumed)
        losses.load(progress["losses"])
        watch.earlier = progress["seconds"]
    bar = tqdm(total=steps, initial=step, disable=not sys.stderr.isatty() or rank > 0)
    dropout = fast_dropout() if device == "cpu" else nullcontext()
    with logging_redirect_tqdm(), bar, dropout, Interruption() as interruption, watch:
        while step < steps and epochs_since_best < (params.early_stopping_patience or math.inf):
            epoch, step_in_epoch = divmod(step, steps_in_epoch)
            batches.set_epoch(epoch)
            done = step_in_epoch * accumulation_steps  # forward passes of this epoch, before a run that resumes
            if random_state and done == 0:  # of a run that resumes: the numbers that would have come go on
                set_random_state(random_state)
            left = itertools.islice(batches, done, None)
            epoch_batches = iter(TrainingLoader(inputs.training, inputs.tokenizer, left, device, num_workers=workers))
            if random_state and done > 0:  # the iterator draws one
                set_random_state(random_state)
            random_state = None
            model.train()
            while window := list(itertools.islice(epoch_batches, accumulation_steps)):
                labelled = sum(distributed.all_gather(sum(int((of["labels"] != NO_LABEL).sum()) for of in window)))
                for number, batch in enumerate(window, start=1):
                    tensors = batch.to(accelerator.device)
                    labels = tensors.pop("labels")
                    between = accelerator.no_sync(wrapped) if number < len(window) else nullcontext()
                    with between, memory_for_batch(tensors["input_ids"], training=True):
                        total = inputs.loss(wrapped(**tensors).logits, labels)
                        loss = total / labelled * distributed.world_size()  # gradients are averaged over the ranks
                        accelerator.backward(loss)
                    demand_finite("loss", loss.detach(), step + 1, finite_loss)
                    finite_loss = inputs.loss.unit * total.item() / max(1, int((labels != NO_LABEL).sum()))
                    losses.add(loss)
                norm = accelerator.clip_grad_norm_(wrapped.parameters(), params.max_grad_norm or math.inf)
                if precision != "fp16":  # there the scaler skips such a step
                    demand_finite("gradient norm", norm, step + 1, finite_loss)
                lr = schedule.get_last_lr()[0]
                optimizer.step()
                if not accelerator.optimizer_step_was_skipped:
                    schedule.step()
                optimizer.zero_grad()
                step, done = step + 1, done + len(window)
                bar.update()
                at = {"epoch": epoch + done / len(batches), "step": step}
                if step % min(params.logging_steps, steps_in_epoch) == 0:
                    history.append({"loss": losses.log(step), "learning_rate": lr, **at})
                    curves(history)
                if done == len(batches):
                    scored = logits(model, inputs.validation, inputs.tokenizer, size, precision, workers)
                    scores = score(scored, to_numpy(inputs.validation["labels"]))
                    history.append({**{f"eval_{name}": score for name, score in scores.items()}, **at})
                    log_epoch(history, params.epochs, inputs.task)
                    curves(history)
                    epochs_since_best += 1
                    if improves(inputs.task, scores, best):
                        best_step, best, epochs_since_best = step, scores, 0
                if interruption.agreed() or done == len(batches) or step % runtime.save_steps == 0:
                    random = distributed.all_gather(get_random_state())
                    progress = {"losses": losses.state(), "seconds": watch.so_far()}
                    if rank == 0:
                        state = {name: part.state_dict() for name, part in parts.items()} | {"random": random}
                        state["progress"] = step, best_step, best, epochs_since_best, history
                        with saving(home, step):
                            checkpoint_path(home, step).mkdir(exist_ok=True)
                            torch.save(state, checkpoint_path(home, step) / _STATE)
                        complete(checkpoint_path(home, step), progress, best_step)
                    if interruption.agreed():
                        interruption.stop(step, steps)
    weights = accelerator.get_state_dict(wrapped)
    if params.keep == "best" and rank == 0:
        path = checkpoint_path(home, best_step or step) / _STATE
        weights = torch.load(path, map_location="cpu", weights_only=True, mmap=True)["model"]
    return TrainResult(weights, history, losses.mean(step), watch)
