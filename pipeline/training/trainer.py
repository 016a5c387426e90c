"""The engine "trainer": the Hugging Face Trainer, with this pipeline's corrections.

docs/trainer.md gives an overview of what is corrected and why.
"""

from pathlib import Path
from typing import Any

import torch
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import EarlyStoppingCallback, Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.trainer_utils import rotate_checkpoints

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.modeling import distributed
from pipeline.modeling.cpu import fast_dropout
from pipeline.modeling.failures import reporting_out_of_memory, require_finite
from pipeline.modeling.scoring import collator, only_logits
from pipeline.params import RuntimeParams, TrainParams
from pipeline.training.arguments import reporting_rejection, training_arguments
from pipeline.training.checkpointing import mark_complete, newest_checkpoint, reporting_write_errors
from pipeline.training.history import History, WriteCurves, is_stopped_early, log_epoch, validation_scores
from pipeline.training.inputs import MEMORY_REMEDY, TrainInputs
from pipeline.training.interruption import Interruption, ignore_signals
from pipeline.training.losses import SummedLoss
from pipeline.training.sampler import EpochSampler
from pipeline.training.tracker import set_up_tracker


@reporting_out_of_memory(MEMORY_REMEDY)
def fit(
    inputs: TrainInputs, checkpoints: Path, params: TrainParams, runtime: RuntimeParams, write_curves: WriteCurves
) -> tuple[dict[str, Any], History]:
    """Fine-tune `inputs.model` with the Trainer, and score it on `inputs.validation` after each epoch.

    Args:
        checkpoints: The directory of this run's checkpoints. Training resumes from the newest complete one.
        write_curves: Called with the history so far whenever it has a new entry.

    Returns:
        The weights of the whole model, even if each process trained a shard of it, and the history.

    Raises:
        UserError: A parameter is rejected, training fails, or a checkpoint cannot be written.
    """
    task = inputs.task
    arguments = training_arguments(params, runtime, inputs.device, checkpoints, task.metric_for_best_model)
    arguments.logging_steps = min(params.logging_steps, inputs.steps_in_epoch)  # Every epoch needs a logged loss.
    if arguments.label_smoothing_factor and task.problem_type != "single_label_classification":
        raise UserError(
            "params.yaml: train.training_args.label_smoothing_factor requires that each example has exactly one class, "
            f"but the problem type of this task is {task.problem_type}. Remove it."
        )
    if params.training_args.get("fsdp") and distributed.world_size() == 1:
        raise UserError(
            "params.yaml: train.training_args.fsdp shards the model over several processes, but runtime.launcher "
            "starts only one. See docs/several_machines.md."
        )
    if runtime.report_to != "none":
        set_up_tracker(arguments, checkpoints.name)
    checkpoint = newest_checkpoint(checkpoints)
    trainer = CorrectedTrainer(
        model=inputs.model,
        args=arguments,
        data_collator=collator(inputs.tokenizer, inputs.device),
        train_dataset=inputs.training,
        eval_dataset=inputs.validation,
        processing_class=inputs.tokenizer,
        compute_metrics=lambda scored: validation_scores(task, scored.predictions, scored.label_ids),
        preprocess_logits_for_metrics=only_logits,
        summed_loss=inputs.loss,
        sampler=inputs.sampler,
    )
    if params.early_stopping_patience is not None:
        trainer.add_callback(EarlyStoppingCallback(params.early_stopping_patience))
    trainer.add_callback(_Progress(task, write_curves))
    if checkpoint:
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        if is_stopped_early(state.log_history, params.early_stopping_patience, task):
            # The Trainer does not remember that early stopping had ended this run, and would train on.
            arguments.num_train_epochs = round(state.epoch)
    with logging_redirect_tqdm(), Interruption() as interruption:
        trainer.add_callback(_Checkpointing(checkpoints, runtime.save_steps, interruption))
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    # `model_wrapped` may be compiled, and its weights then have another prefix, so take them from `model`.
    weights = trainer.accelerator.get_state_dict(trainer.model)
    return weights, trainer.state.log_history


class CorrectedTrainer(Trainer):
    """A Trainer that corrects the loss, the order of the examples and the reporting of failures.

    Loss: the loss of an optimizer step is the mean over the effective batch (see `SummedLoss`). The Trainer assumes
    that a model whose `forward` accepts **kwargs divides its loss by `num_items_in_batch`, so it does not divide by
    `gradient_accumulation_steps` itself. But sequence-classification models accept **kwargs and ignore
    `num_items_in_batch`. Loss and gradients would therefore be multiplied by `gradient_accumulation_steps`. With a
    `compute_loss_func`, this class divides by `num_items_in_batch`. Background:
    https://huggingface.co/blog/gradient_accumulation

    Order: the order of the examples depends only on the seed and the epoch (see `EpochSampler`).

    Failures: a NaN or infinite loss, or a checkpoint that cannot be written, ends the run with a one-line error.

    Args:
        summed_loss: The loss to train on. For a regression, logged losses are in the squared units of the labels.
        sampler: The order of the training examples.
    """

    def __init__(self, *, summed_loss: SummedLoss, sampler: EpochSampler, **kwargs: Any) -> None:
        super().__init__(compute_loss_func=self._mean_loss, **kwargs)
        self._summed_loss = summed_loss
        self._sampler = sampler
        self.add_callback(_SamplerEpoch(sampler))
        self.remove_callback(PrinterCallback)
        if self.pop_callback(ProgressCallback):
            self.add_callback(_QuietProgressBar)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        with reporting_rejection("optim"):
            return super().create_optimizer(*args, **kwargs)

    def create_scheduler(self, *args: Any, **kwargs: Any) -> Any:
        with reporting_rejection("lr_scheduler_type"):
            return super().create_scheduler(*args, **kwargs)

    def _mean_loss(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor) -> torch.Tensor:
        # `num_items_in_batch` is the number of labels in the effective batch, over all forward passes and processes.
        logits = outputs["logits"].float()  # With FSDP, they have the precision of autocast.
        return self._summed_loss(logits, labels, self.args.label_smoothing_factor) / num_items_in_batch

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        return self._sampler

    def get_train_dataloader(self) -> Any:
        with reporting_rejection("training_args"):  # for example, persistent workers without workers
            loader: Any = super().get_train_dataloader()
        loader.base_dataloader.worker_init_fn = ignore_signals  # Accelerate's loader wraps the one with the workers.
        # The loader draws a random number at the start of each epoch. The engine "loop" gives its loader a generator
        # for this number (see `_loader` there). This loader gets one too, so that dropout is the same in both engines.
        loader.base_dataloader.generator = torch.Generator()
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        loader: Any = super().get_eval_dataloader(eval_dataset)
        loader.base_dataloader.worker_init_fn = ignore_signals
        return loader

    def train(self, *args: Any, **kwargs: Any) -> Any:
        if self.args.process_index:  # Otherwise, dropout would drop the same units in all processes.
            torch.manual_seed(self.args.seed + self.args.process_index)
        with fast_dropout():
            return super().train(*args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        for name in {"loss", "train_loss"} & logs.keys():
            logs[name] *= self._summed_loss.squared_scale
        if "loss" in logs:
            require_finite("loss", logs["loss"], self.state.global_step)
            if not self.args.fp16:  # With fp16, gradients may overflow, and the scaler skips the step.
                require_finite("gradient norm", logs["grad_norm"], self.state.global_step)
        if "eval_loss" in logs:
            require_finite("validation loss", logs["eval_loss"], self.state.global_step)
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with reporting_write_errors(Path(str(self.args.output_dir)), self.state.global_step):
            super()._save_checkpoint(model, trial)


class _SamplerEpoch(TrainerCallback):
    """Set the epoch of the sampler.

    The Trainer calls `set_epoch` of Accelerate's data loader. After a resume with several processes, this call does not
    reach the sampler, because `skip_first_batches` has wrapped it once more.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self._sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._sampler.set_epoch(int(state.epoch))


class _Checkpointing(TrainerCallback):
    """Save a checkpoint every `save_steps` steps, not only after each epoch, and stop the run after a signal."""

    def __init__(self, checkpoints: Path, save_steps: int, interruption: Interruption) -> None:
        self._checkpoints = checkpoints
        self._save_steps = save_steps
        self._interruption = interruption

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.best_global_step:  # The directory may have moved since the state was saved.
            state.best_model_checkpoint = str(self._checkpoints / f"checkpoint-{state.best_global_step}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        due = self._interruption.agreed() or state.global_step % self._save_steps == 0
        # After the last step of an epoch, the Trainer scores validation and then saves a checkpoint anyway. A run that
        # resumed from a checkpoint of this step, saved before the validation, would skip the validation.
        if due and not state.epoch.is_integer():
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        args.distributed_state.wait_for_everyone()  # After this, all processes have written their random states.
        if distributed.rank() == 0:
            mark_complete(self._checkpoints / f"checkpoint-{state.global_step}")
            # Keep two, among them the newest and the best.
            rotate_checkpoints(str(self._checkpoints), 2, state.best_model_checkpoint)
        if self._interruption.agreed():
            self._interruption.stop(state.global_step, state.max_steps)


class _Progress(TrainerCallback):
    """Write the progress of the run to the log and to the training curves."""

    def __init__(self, task: Task, write_curves: WriteCurves) -> None:
        self._task = task
        self._write_curves = write_curves

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._write_curves(state.log_history)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        log_epoch(state.log_history, args.num_train_epochs, self._task)


class _QuietProgressBar(ProgressCallback):
    """A progress bar that does not print a dictionary at every logged step."""

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        pass
