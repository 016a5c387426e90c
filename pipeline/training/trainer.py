"""The engine "trainer": the Hugging Face Trainer, with the loss of the effective batch and an order that can resume.

docs/trainer.md gives an overview of what is corrected and why.
"""

import os
from pathlib import Path
from typing import Any

import torch
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import Trainer, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback

from pipeline.core.dataset_files import read_column
from pipeline.core.paths import users_path
from pipeline.core.task import Task
from pipeline.modeling import distributed
from pipeline.modeling.cpu import fast_dropout
from pipeline.modeling.progress import ProgressLine, ScoringProgress
from pipeline.modeling.scoring import collator, only_logits
from pipeline.params import RuntimeParams, TrainParams
from pipeline.training.arguments import rejecting_values, training_arguments
from pipeline.training.checkpointing import Checkpointing, newest_checkpoint
from pipeline.training.history import History, Weights, check_finite, last_loss, log_epoch, should_stop
from pipeline.training.inputs import TrainInputs
from pipeline.training.losses import SummedLoss
from pipeline.training.sampler import EpochSampler
from pipeline.training.validation import compute_metrics


def fit(inputs: TrainInputs, checkpoints: Path, params: TrainParams, runtime: RuntimeParams) -> tuple[Weights, History]:
    """Fine-tune `inputs.model` with the Trainer, and score it on `inputs.validation` after each epoch.

    Returns the weights to keep, and the Trainer's `log_history`. A signal ends the process after a checkpoint.
    """
    task = inputs.task
    arguments = training_arguments(params, runtime, inputs.device, checkpoints, task)
    arguments.logging_steps = min(params.logging_steps, inputs.sampler.steps)  # Every epoch needs a logged loss.
    checkpoint = distributed.broadcast(newest_checkpoint(checkpoints))  # Rank 0 has waited for other runs.
    if checkpoint:
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        if should_stop(state.log_history, params.early_stopping_patience, task):
            arguments.num_train_epochs = round(state.epoch)  # Otherwise, the Trainer continues after the early stop.
    idx = read_column(inputs.validation, "idx")
    # By default, TensorBoard writes next to the checkpoints, which are removed at the end.
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(users_path("runs").absolute() / checkpoints.name))
    with rejecting_values():
        trainer = CorrectedTrainer(
            model=inputs.model,
            args=arguments,
            data_collator=collator(inputs.tokenizer, inputs.device),
            train_dataset=inputs.training,
            eval_dataset=inputs.validation,
            processing_class=inputs.tokenizer,
            # Its "loss" replaces the Trainer's "eval_loss", which has class weights and label smoothing.
            compute_metrics=lambda scored: compute_metrics(task, scored.predictions, scored.label_ids, idx),
            preprocess_logits_for_metrics=only_logits,
            callbacks=[_EpochCallback(task, inputs.sampler, params.early_stopping_patience), ScoringProgress()],
            summed_loss=inputs.loss,
            sampler=inputs.sampler,
        )
        # `train` would make them too, but then a value that they reject would end in a traceback.
        trainer.create_optimizer_and_scheduler(inputs.sampler.steps * params.epochs)
        trainer.get_train_dataloader()
    with logging_redirect_tqdm(), fast_dropout(), Checkpointing(runtime.save_steps) as checkpointing:
        trainer.add_callback(checkpointing)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    # `model_wrapped` may be compiled, and its weights then have another prefix, so take them from `model`.
    return trainer.accelerator.get_state_dict(trainer.model), trainer.state.log_history


class CorrectedTrainer(Trainer):
    """A Trainer with the loss of the effective batch, and an order that depends only on the seed and the epoch.

    The Trainer assumes that a model whose `forward` accepts **kwargs divides its loss by `num_items_in_batch`, so it
    does not divide by `gradient_accumulation_steps` itself. But sequence-classification models ignore this argument, so
    their loss and gradients are multiplied by `gradient_accumulation_steps`. With a `compute_loss_func`, this class
    divides by `num_items_in_batch`. Background: https://huggingface.co/blog/gradient_accumulation
    """

    def __init__(self, *, summed_loss: SummedLoss, sampler: EpochSampler, **kwargs: Any) -> None:
        super().__init__(compute_loss_func=self._mean_loss, **kwargs)
        self._summed_loss, self._sampler = summed_loss, sampler
        self.remove_callback(PrinterCallback)

    def _mean_loss(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor) -> torch.Tensor:
        # `num_items_in_batch` is the number of labels in the effective batch, over all forward passes and processes.
        return self._summed_loss(outputs["logits"], labels, self.args.label_smoothing_factor) / num_items_in_batch

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        return self._sampler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        for name in {"loss", "train_loss"} & logs.keys():
            logs[name] *= self._summed_loss.squared_scale
        check_finite(logs, self.state.global_step, self.args.fp16)
        super().log(logs, start_time)


class _EpochCallback(TrainerCallback):
    """Shuffles each epoch, logs its progress and its scores, and stops the run if they do not improve."""

    def __init__(self, task: Task, sampler: EpochSampler, patience: int | None) -> None:
        self._task, self._sampler, self._patience = task, sampler, patience

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._line = ProgressLine("training", state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # If several processes resume, the Trainer's own call of `set_epoch` does not reach the sampler.
        self._sampler.set_epoch(int(state.epoch))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._line.update(state.global_step, state.max_steps, last_loss(state.log_history))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # The Trainer would keep the first of several epochs with the best score. On small validation splits, the last
        # one is better on test: docs/notes/results.md.
        if kwargs["metrics"][f"eval_{args.metric_for_best_model}"] == state.best_metric:
            state.best_metric = None
        log_epoch(state.log_history, args.num_train_epochs, self._task)
        control.should_training_stop = should_stop(state.log_history, self._patience, self._task)
