"""The engine "trainer": the Hugging Face Trainer, with every correction that this pipeline makes to it."""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import EarlyStoppingCallback, EvalPrediction, PreTrainedTokenizerBase, Trainer
from transformers.trainer_callback import PrinterCallback, ProgressCallback, TrainerCallback

from pipeline.core.messages import UserError
from pipeline.core.tables import to_numpy
from pipeline.core.task import NO_LABEL, Task
from pipeline.core.timing import Stopwatch
from pipeline.core.tracker import begin_run
from pipeline.modeling import distributed
from pipeline.modeling.batching import TrainingBatches, TrainingLoader
from pipeline.modeling.cpu import fast_dropout
from pipeline.modeling.failures import demand_finite, memory_for_batch, memory_for_model
from pipeline.modeling.inference import logits
from pipeline.params import Precision, RuntimeParams, TrainParams
from pipeline.training.arguments import training_arguments
from pipeline.training.checkpointing import checkpoint_path, complete, newest, progress_of, saving
from pipeline.training.history import Curves, RunningLoss, log_epoch, validation_scorer
from pipeline.training.inputs import TrainInputs, TrainResult
from pipeline.training.interruption import Interruption
from pipeline.training.losses import SummedLoss


@memory_for_model(training=True)
def fit(inputs: TrainInputs, home: Path, params: TrainParams, runtime: RuntimeParams, curves: Curves) -> TrainResult:
    """Fine-tune `inputs.model`, scored each epoch on `inputs.validation`.

    home: the directory of this run's checkpoints; training resumes from the newest complete one there.
    curves: called with the history so far whenever an entry is new.
    Raises UserError for a refused parameter, where training fails, and where a checkpoint cannot be written.
    """
    arguments = training_arguments(params, runtime, inputs.device, home, inputs.task.metric_for_best_model)
    score = validation_scorer(inputs.task)
    resumed = newest(home, keep_best=params.keep == "best")
    if distributed.rank() == 0:
        begin_run(runtime.report_to, home.name, resumed is not None)
    if arguments.label_smoothing_factor and inputs.task.problem_type != "single_label_classification":
        raise UserError(
            "params.yaml: train.extra.label_smoothing_factor is set, and smooths the one class of a row; this task is "
            f"a {inputs.task.problem_type}: remove it"
        )
    trainer = CorrectedTrainer(
        summed_loss=inputs.loss,
        model=inputs.model,
        args=arguments,
        train_dataset=inputs.training,
        eval_dataset=inputs.validation,
        processing_class=inputs.tokenizer,
        compute_metrics=lambda scored: score(scored.predictions, scored.label_ids),
    )
    if params.early_stopping_patience is not None:
        trainer.add_callback(EarlyStoppingCallback(params.early_stopping_patience))
    trainer.add_callback(_Progress(inputs.task, curves))
    trainer.check_optimizer()
    # Where an epoch has fewer steps, its last one is logged.
    arguments.logging_steps = min(
        params.logging_steps, math.ceil(len(trainer.get_train_dataloader()) / params.gradient_accumulation_steps)
    )
    if resumed:  # Trainer forgets that early stopping had ended the run
        arguments.num_train_epochs = progress_of(resumed)["stopped_after"] or params.epochs
    with logging_redirect_tqdm(), Interruption() as interruption, Stopwatch() as watch:  # log lines stand above the bar
        trainer.add_callback(_Checkpointing(home, runtime.save_steps, resumed, trainer.losses, interruption, watch))
        trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    # Of `model`, which FSDP alone wraps: the names of `model_wrapped` have a prefix where it is compiled.
    weights = trainer.accelerator.get_state_dict(trainer.model)
    state = trainer.state
    return TrainResult(weights, state.log_history, trainer.losses.mean(state.global_step), watch)


class CorrectedTrainer(Trainer):
    """Trainer with its loss, its batches and its log corrected.

    Loss. That of an optimizer step is the mean over the effective batch, however it is cut into forward passes. The
    sequence-classification heads return the mean of one forward pass and ignore `num_items_in_batch`; since they take
    **kwargs, Trainer believes that they normalise, and loss and gradients come out multiplied by
    `gradient_accumulation_steps`. (`model_accepts_loss_kwargs = False` would correct passes of equal size; dividing
    the sum by the number of labels also corrects the short one that ends an epoch.)
    Background: https://huggingface.co/blog/gradient_accumulation

    Batches, to train on and to score: see `TrainingBatches`, `ScoringBatches` and `inference.logits`. Apart from
    dropout masks, 2 processes x 8 match 1 x 16. Only `evaluate` scores; `predict` is transformers' own.

    Failures. A loss or gradient that is not finite, a full disk and memory that runs out end the run in one line.

    Log. No dict every few steps, and the losses of `RunningLoss`; the bar on a terminal stays.
    """

    def __init__(self, summed_loss: SummedLoss, **kwargs: Any) -> None:
        super().__init__(compute_loss_func=self._mean_loss, **kwargs)
        self._summed_loss = summed_loss
        self.losses = RunningLoss(summed_loss.unit)
        self._finite_loss: float | None = None
        self.remove_callback(PrinterCallback)
        if self.pop_callback(ProgressCallback):
            self.add_callback(_Bar)

    def check_optimizer(self) -> None:
        """Make optimizer and schedule once to see that they can be made. Raises UserError: Trainer would fail later."""
        try:
            self.create_optimizer_and_scheduler(num_training_steps=1)
        except (ImportError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"params.yaml: train.optim or train.lr_scheduler_type lacks something: {reason}") from error
        self.optimizer = self.lr_scheduler = None

    def _mean_loss(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor) -> torch.Tensor:
        logits = outputs["logits"].float()  # FSDP gives them in the precision of autocast
        return self._summed_loss(logits, labels, self.args.label_smoothing_factor) / num_items_in_batch

    def train(self, *args: Any, **kwargs: Any) -> Any:
        dropout = fast_dropout() if self.args.use_cpu else nullcontext()
        if self.args.process_index:  # else all ranks would drop the same units
            torch.manual_seed(self.args.seed + self.args.process_index)
        with dropout:
            return super().train(*args, **kwargs)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        labelled = int((inputs["labels"] != NO_LABEL).sum())
        with memory_for_batch(inputs["input_ids"], training=True):
            loss = super().training_step(model, inputs, num_items_in_batch)
        demand_finite("loss", loss, self.state.global_step + 1, self._finite_loss)
        if labelled:  # mean of this forward pass, one of an effective batch
            mean_loss = float(loss * num_items_in_batch / labelled / self.args.world_size)
            self._finite_loss = mean_loss * self._summed_loss.unit
        self.losses.add(loss)
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        if not self.args.fp16:  # there the scaler skips the step and lowers its scale, as it should now and then
            demand_finite("gradient norm", norm, self.state.global_step + 1, self._finite_loss)
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "learning_rate" in logs:  # a point of the training curve
            logs["loss"] = self.losses.log(self.state.global_step)
        elif "train_loss" in logs:  # Trainer's summary of the run
            logs["train_loss"] = self.losses.mean(self.state.global_step)
        super().log(logs, start_time)

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        rows: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        assert isinstance(self.processing_class, PreTrainedTokenizerBase) and self.compute_metrics
        precision: Precision = "bf16" if self.args.bf16 else "fp16" if self.args.fp16 else "fp32"
        workers = self.args.dataloader_num_workers
        if callable(getattr(self.optimizer, "eval", None)):  # schedule-free: averages; training_step switches back
            self.optimizer.eval()  # type: ignore[union-attr]
        scored = logits(self.model, rows, self.processing_class, self.args.eval_batch_size, precision, workers)
        scores = self.compute_metrics(EvalPrediction(scored, to_numpy(rows["labels"])))
        metrics = {f"{metric_key_prefix}_{name}": score for name, score in scores.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def get_train_dataloader(self) -> DataLoader[Any]:
        assert isinstance(self.processing_class, PreTrainedTokenizerBase)
        rows: Any = self.train_dataset
        by_length = self.args.train_sampling_strategy == "group_by_length"
        size, accumulation_steps = self.args.train_batch_size, self.args.gradient_accumulation_steps
        batches = TrainingBatches(rows, size, accumulation_steps, self.args.seed, by_length)
        return TrainingLoader(
            rows,
            self.processing_class,
            batches,
            self.args.device.type,
            num_workers=self.args.dataloader_num_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            persistent_workers=self.args.dataloader_persistent_workers,
        )

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with saving(Path(str(self.args.output_dir)), self.state.global_step):
            super()._save_checkpoint(model, trial)


class _Checkpointing(TrainerCallback):
    """Make Trainer save every `save_steps` steps and after each epoch, and stop on a signal; save what it forgets."""

    def __init__(
        self,
        home: Path,
        save_steps: int,
        resumed: Path | None,
        losses: RunningLoss,
        interruption: Interruption,
        watch: Stopwatch,
    ) -> None:
        self._home = home
        self._save_steps = save_steps
        self._resumed = resumed
        self._losses = losses
        self._interruption = interruption
        self._watch = watch

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._resumed:
            progress = progress_of(self._resumed)
            self._losses.load(progress["losses"])
            self._watch.earlier = progress["seconds"]
        if state.best_global_step:  # the path in the state is that of the place where the run began
            state.best_model_checkpoint = str(checkpoint_path(self._home, state.best_global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        due = self._interruption.agreed() or state.global_step % self._save_steps == 0
        # An epoch's last step is saved once validation is scored; a checkpoint without that score would skip it.
        if due and not state.epoch.is_integer():
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        losses = self._losses.state()  # waits until all ranks have written their random states
        if distributed.rank() == 0:
            stopped_after = round(state.epoch) if control.should_training_stop else None
            progress = {"losses": losses, "seconds": self._watch.so_far(), "stopped_after": stopped_after}
            complete(checkpoint_path(self._home, state.global_step), progress, state.best_global_step)
        if self._interruption.agreed():
            self._interruption.stop(state.global_step, state.max_steps)


class _Progress(TrainerCallback):
    """Show the course of the run: in the log, and in the learning curves."""

    def __init__(self, task: Task, curves: Curves) -> None:
        self._task = task
        self._curves = curves

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._curves(state.log_history)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        log_epoch(state.log_history, args.num_train_epochs, self._task)


class _Bar(ProgressCallback):
    def on_log(self, *args: Any, **kwargs: Any) -> None:
        pass
