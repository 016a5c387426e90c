"""The engine "loop": the same training run without the Trainer, on Accelerate, to be read from top to bottom.

Forward, backward, clip, step, schedule, zero. Its losses are those of `pipeline/training/fit.py`, step by step.
"""

import itertools
import math
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.utils.data import BatchSampler, DataLoader
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import DataCollatorWithPadding, enable_full_determinism, get_scheduler, set_seed

from pipeline.core.messages import log
from pipeline.core.timing import Stopwatch
from pipeline.modeling import distributed
from pipeline.modeling.batching import NO_LABEL, FillablePairs, TrainingOrder, outlive_a_signal, scoring_loader
from pipeline.modeling.cpu import fast_dropout
from pipeline.modeling.failures import demand_finite, memory_for_batch, memory_for_model
from pipeline.params import RuntimeParams, TrainParams
from pipeline.training.arguments import check_loop
from pipeline.training.checkpointing import saving
from pipeline.training.inputs import TrainInputs, TrainResult, log_epoch, validation_scores
from pipeline.training.interruption import Interruption


def fit(
    task: TrainInputs, home: Path, params: TrainParams, runtime: RuntimeParams, device: dict[str, Any]
) -> TrainResult:
    """Fine-tune `task.model` on `task.training`, scored each epoch on `task.validation`.

    home: the directory of this run's checkpoint, from which it resumes. device: from `set_up_device`.
    Raises UserError for a parameter that the Trainer alone honours, where training fails, and where the checkpoint
    cannot be written.
    """
    check_loop(params, runtime)
    on_cpu, model = device["use_cpu"], task.model
    AcceleratorState._reset_state(reset_partial_state=True)  # as TrainingArguments does, for a second run in a process
    accelerator = Accelerator(cpu=on_cpu, mixed_precision="no" if params.precision == "fp32" else params.precision)
    if params.deterministic and not on_cpu:
        enable_full_determinism(params.seed)
    else:
        set_seed(params.seed)
    if on_cpu:
        model.set_attn_implementation("eager")  # why: see PairTrainer
    model.config.use_cache = False  # as Trainer leaves it
    if params.gradient_checkpointing:
        model.activation_checkpointing_enable()

    by_length, accumulated = params.group_by_length, params.gradient_accumulation_steps
    order = TrainingOrder(task.training, params.batch_size, accumulated, params.seed, by_length)
    batches = BatchSampler(order, params.batch_size, drop_last=False)  # of all processes, in turn
    passes = len(batches) // distributed.world_size()  # forward passes of an epoch
    steps = math.ceil(passes / accumulated) * params.epochs
    decayed: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []  # biases, whatever their shape, and layer norms
    for name, parameter in model.named_parameters():
        (decayed if parameter.ndim > 1 and "bias" not in name else others).append(parameter)
    optimizer: Any = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": params.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=params.lr,
        fused=params.optim == "adamw_torch_fused",
    )
    schedule = get_scheduler(params.lr_scheduler_type, optimizer, math.ceil(params.warmup_ratio * steps), steps)
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    if distributed.rank() > 0:  # else all would drop the same units
        torch.manual_seed(params.seed + distributed.rank())

    run = _Run(home, params.keep == "best", accelerator, wrapped, optimizer, schedule)
    run.resume()
    validation = scoring_loader(
        task.validation, task.tokenizer, params.batch_size, runtime.dataloader_num_workers, on_cpu
    )
    bar = tqdm(total=steps, initial=run.step, disable=not sys.stderr.isatty() or distributed.rank() > 0)
    dropout = fast_dropout() if on_cpu else nullcontext()
    patience = params.early_stopping_patience or math.inf
    with logging_redirect_tqdm(), bar, dropout, memory_for_model(), Interruption() as interruption, run.watch:
        while run.epoch < params.epochs and run.epochs_since_best < patience:
            order.set_epoch(run.epoch)
            mine = list(itertools.islice(batches, distributed.rank(), None, distributed.world_size()))
            loader = DataLoader(
                FillablePairs(task.training),
                batch_sampler=mine[run.passes :],
                collate_fn=DataCollatorWithPadding(task.tokenizer, pad_to_multiple_of=None if on_cpu else 8),
                num_workers=runtime.dataloader_num_workers,
                pin_memory=torch.cuda.is_available(),
                worker_init_fn=outlive_a_signal,
            )
            model.train()
            for window in run.windows(loader, accumulated):
                labelled = sum(int((batch["labels"] != NO_LABEL).sum()) for batch in window)
                labelled = sum(distributed.all_gather(labelled))
                for number, batch in enumerate(window, start=1):
                    inputs = batch.to(accelerator.device)
                    labels = inputs.pop("labels")
                    between = accelerator.no_sync(wrapped) if number < len(window) else nullcontext()
                    with between, memory_for_batch(inputs["input_ids"], training=True):
                        total = torch.nn.functional.cross_entropy(wrapped(**inputs).logits, labels, reduction="sum")
                        loss = total / labelled * distributed.world_size()  # gradients are averaged over the processes
                        accelerator.backward(loss)
                    run.add_loss(loss.item(), total.item() / max(1, int((labels != NO_LABEL).sum())))
                norm = accelerator.clip_grad_norm_(wrapped.parameters(), params.max_grad_norm or math.inf)
                if params.precision != "fp16":  # there the scaler skips such a step
                    demand_finite("gradient norm", norm, run.step + 1, run.finite_loss)
                lr = schedule.get_last_lr()[0]
                optimizer.step()
                if not accelerator.optimizer_step_was_skipped:
                    schedule.step()
                optimizer.zero_grad()

                run.step += 1
                run.passes += len(window)
                bar.update()
                if run.step % params.logging_steps == 0:
                    run.log_loss(lr, run.epoch + run.passes / passes)
                if (interruption.agreed() or run.step % runtime.save_steps == 0) and run.passes < passes:
                    run.save()
                    if interruption.agreed():
                        interruption.stop(run.step, steps)

            run.epoch, run.passes = run.epoch + 1, 0
            run.log_scores(_validate(accelerator, model, validation), params.epochs)
            run.save()
            if interruption.agreed():
                interruption.stop(run.step, steps)
    return TrainResult(run.best or accelerator.get_state_dict(wrapped), run.history, run.mean_loss(), run.watch)


def _validate(accelerator: Accelerator, model: Any, loader: DataLoader[Any]) -> dict[str, float]:
    model.eval()
    scored = []
    for batch in loader:
        inputs = batch.to(accelerator.device)
        labels = inputs.pop("labels")
        with torch.no_grad(), memory_for_batch(inputs["input_ids"], training=True):
            scored.append(accelerator.gather((model(**inputs).logits, labels)))
    logits, labels = (torch.cat(parts).cpu().numpy() for parts in zip(*scored, strict=True))
    real = labels != NO_LABEL
    return validation_scores(logits[real], labels[real])


class _Run:
    """How far a run has come, its curves, and its checkpoint: one file, always replaced as a whole."""

    def __init__(
        self, home: Path, keep_best: bool, accelerator: Accelerator, model: Any, optimizer: Any, schedule: Any
    ) -> None:
        self.epoch = self.passes = self.step = 0
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, torch.Tensor] = {}  # weights of the epoch with the highest F1, where it is kept
        self.epochs_since_best = 0
        self.finite_loss: float | None = None
        self.watch = Stopwatch()
        self._keep_best = keep_best
        self._best_f1 = -1.0
        self._loss = 0.0  # of this process, over the steps since the last logged one
        self._loss_logged = 0.0
        self._step_logged = 0
        self._randomness: Any = None  # of a checkpoint, until it is set
        self._accelerator = accelerator
        self._model = model
        self._parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
        if accelerator.scaler is not None:
            self._parts["scaler"] = accelerator.scaler
        self._file = home / "loop.pt"

    def windows(self, loader: DataLoader[Any], accumulated: int) -> Iterator[list[Any]]:
        """The batches of each optimizer step. A resumed epoch goes on with the random numbers that would have come."""
        if self.passes == 0:
            self._set_randomness()
        batches = iter(loader)  # draws a number
        if self.passes > 0:
            self._set_randomness()
        while window := list(itertools.islice(batches, accumulated)):
            yield window

    def add_loss(self, share: float, mean: float) -> None:
        """Count a forward pass: its share of the step's loss, its own mean. Raises UserError where not finite."""
        demand_finite("loss", mean, self.step + 1, self.finite_loss)
        self.finite_loss = mean
        self._loss += share

    def log_loss(self, lr: float, epoch: float) -> None:
        """Add a point to the training curve: the mean loss since the last one."""
        loss = self._mean_over_processes()
        mean = loss / (self.step - self._step_logged)
        self.history.append({"loss": mean, "learning_rate": lr, "epoch": epoch, "step": self.step})
        self._loss, self._loss_logged, self._step_logged = 0.0, self._loss_logged + loss, self.step

    def log_scores(self, scores: dict[str, float], epochs: int) -> None:
        """Add an epoch's point to the validation curve, and keep the weights where it is the best so far."""
        entry = {f"eval_{name}": score for name, score in scores.items()}
        self.history.append({**entry, "epoch": float(self.epoch), "step": self.step})
        log_epoch(self.history, epochs)
        self.epochs_since_best += 1
        if scores["f1"] > self._best_f1:
            self._best_f1, self.epochs_since_best = scores["f1"], 0
            if self._keep_best:
                copies: dict[int, torch.Tensor] = {}  # by address: weights that are tied stay so
                for name, weight in self._accelerator.get_state_dict(self._model).items():
                    self.best[name] = copies.setdefault(weight.data_ptr(), weight.detach().cpu().clone())

    def mean_loss(self) -> float:
        """Mean loss of all steps."""
        return (self._loss_logged + self._mean_over_processes()) / self.step

    def _mean_over_processes(self) -> float:
        losses = distributed.all_gather(self._loss)
        return sum(losses) / len(losses)

    def save(self) -> None:
        """Write the checkpoint. Raises UserError where that fails."""
        randomness = [torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None]
        own = distributed.all_gather((self._loss, randomness))
        if distributed.rank() > 0:
            return
        state = {name: getattr(self, name) for name in _COUNTED}
        state |= {"parts": {name: part.state_dict() for name, part in self._parts.items()}, "own": own}
        state["seconds"] = self.watch.so_far()
        with saving(self._file.parent, self.step):
            draft = self._file.with_suffix(".draft")
            try:
                with draft.open("wb") as file:
                    torch.save(state, file)
                    file.flush()
                    os.fsync(file.fileno())  # it replaces the only other one
                draft.replace(self._file)
            finally:
                draft.unlink(missing_ok=True)

    def resume(self) -> None:
        """Go on from the checkpoint, where there is a whole one. The first process decides for all."""
        state = self._whole_state() if distributed.rank() == 0 else None
        if not distributed.broadcast(state is not None):
            return
        state = state or self._read()
        log.info("resuming from %s, step %d", self._file, state["step"])
        for name in _COUNTED:
            setattr(self, name, state[name])
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        self._loss, self._randomness = state["own"][distributed.rank()]
        self.watch.earlier = state["seconds"]

    def _whole_state(self) -> dict[str, Any] | None:
        try:
            return self._read()
        except FileNotFoundError:
            return None
        except (RuntimeError, EOFError, pickle.UnpicklingError):
            log.info("%s is not whole; starting anew", self._file)
            return None

    def _read(self) -> dict[str, Any]:
        return torch.load(self._file, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]

    def _set_randomness(self) -> None:
        if self._randomness:
            (cpu, cuda), self._randomness = self._randomness, None
            torch.set_rng_state(cpu)
            if cuda is not None:
                torch.cuda.set_rng_state(cuda)


# Of a run, beside what each process has of its own.
_COUNTED = (
    "epoch", "passes", "step", "history", "best", "epochs_since_best", "_best_f1", "_loss_logged", "_step_logged",
)  # fmt: skip
