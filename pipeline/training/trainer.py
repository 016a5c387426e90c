"""The Hugging Face Trainer for sentence pairs, and every correction that this pipeline makes to it."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.trainer_callback import PrinterCallback, ProgressCallback, TrainerCallback

from pipeline.core.messages import UserError
from pipeline.modeling import distributed
from pipeline.modeling.batching import NO_LABEL, FillablePairs, TrainingOrder, outlive_a_signal, scoring_loader
from pipeline.modeling.cpu import fast_dropout
from pipeline.modeling.failures import demand_finite, memory_for_batch, memory_for_model
from pipeline.training.checkpointing import saving


class PairTrainer(Trainer):
    """Trainer with its loss, its batches and its log corrected.

    Loss. That of an optimizer step is the mean over the effective batch, however it is cut into forward passes. The
    sequence-classification heads return the mean of one forward pass and ignore `num_items_in_batch`; since they take
    **kwargs, Trainer believes that they normalise, and loss and gradients come out multiplied by
    `gradient_accumulation_steps`. (`model_accepts_loss_kwargs = False` would mend passes of equal size; dividing the
    sum by the number of pairs also mends the short one that ends an epoch.)
    Background: https://huggingface.co/blog/gradient_accumulation

    Scoring batches. All of one padded length have one shape, and hold either pairs with padding or pairs without. A
    pair's logits then do not depend on the pairs that happened to share its batch (in bf16 they differ in the third
    digit), so that neither the batch size nor the stage that scores changes a score.

    Training batches of like length come in random order. Trainer sorts 50 batches by length and feeds them as sorted,
    so that the length of the pairs, and with it the gradient, drifts up and down during an epoch.

    Several processes. The last batch of an epoch seldom fills them all. Accelerate then repeats pairs, which count in
    the loss and in the scores; here what fills up counts in neither. But for the masks of dropout, two processes
    of batch 8 give the losses of one of batch 16.

    On a CPU dropout is fast, and attention plain: where there is dropout, PyTorch's own scaled dot product attention
    computes in fp32 what autocast has made bf16.

    Faults. A loss or gradient that is not finite, a full disk and memory that runs out end the run in one line.

    Log. A line for each epoch instead of a dict every few steps; the bar on a terminal stays.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        train_dataset: Dataset | None = None,
        compute_metrics: Callable[[Any], dict[str, float]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._finite_loss: float | None = None
        super().__init__(
            model,
            train_dataset=train_dataset and FillablePairs(train_dataset),
            compute_metrics=compute_metrics and functools.partial(_without_fillers, compute_metrics),
            compute_loss_func=self._mean_loss,
            preprocess_logits_for_metrics=_logits,
            **kwargs,
        )
        if self.args.use_cpu:
            model.set_attn_implementation("eager")
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
        total = torch.nn.functional.cross_entropy(
            outputs["logits"], labels, reduction="sum", label_smoothing=self.args.label_smoothing_factor
        )
        return total / num_items_in_batch

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        labelled = int((inputs["labels"] != NO_LABEL).sum())
        with memory_for_batch(inputs["input_ids"], training=True):
            loss = super().training_step(model, inputs, num_items_in_batch)
        demand_finite("loss", loss, self.state.global_step + 1, self._finite_loss)
        if labelled:  # mean of this forward pass, one of an effective batch
            self._finite_loss = float(loss * num_items_in_batch / labelled / self.args.world_size)
        return loss

    def train(self, *args: Any, **kwargs: Any) -> Any:
        dropout = fast_dropout() if self.args.use_cpu else nullcontext()
        if self.args.process_index:  # else all would drop the same units
            torch.manual_seed(self.args.seed + self.args.process_index)
        with dropout, memory_for_model():
            return super().train(*args, **kwargs)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        # Of the steps since the last logged one Trainer would add this process's share alone to the mean loss.
        losses = distributed.all_gather(self._tr_loss.item())
        self._tr_loss.fill_(sum(losses) / len(losses))
        return super()._finalize_training(*args, **kwargs)  # type: ignore[no-untyped-call]

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self.gather_function = self.accelerator.gather  # not for_metrics, which drops pairs by the training batches
        return super().evaluation_loop(*args, **kwargs)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        if not self.args.fp16:  # there the scaler skips the step and lowers its scale, as it should now and then
            demand_finite("gradient norm", norm, self.state.global_step + 1, self._finite_loss)
        return norm

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        with memory_for_batch(inputs["input_ids"], training=self.is_in_train):
            return super().prediction_step(model, inputs, *args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with saving(Path(str(self.args.output_dir)), self.state.global_step):
            super()._save_checkpoint(model, trial)

    def _get_train_sampler(self, train_dataset: Any = None) -> TrainingOrder:
        dataset: Any = self.train_dataset
        by_length = self.args.train_sampling_strategy == "group_by_length"
        accumulation_steps = self.args.gradient_accumulation_steps
        order = TrainingOrder(dataset.pairs, self.args.train_batch_size, accumulation_steps, self.args.seed, by_length)
        self.add_callback(_EpochOfOrder(order))
        return order

    def get_train_dataloader(self) -> DataLoader[Any]:
        prepared: Any = super().get_train_dataloader()
        loader = prepared.base_dataloader  # Accelerate's own has no use for what is set on it
        loader.worker_init_fn = functools.partial(outlive_a_signal, first=loader.worker_init_fn)
        return prepared  # type: ignore[no-any-return]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        return self.get_test_dataloader(self.eval_dataset if eval_dataset is None else eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        assert isinstance(self.processing_class, PreTrainedTokenizerBase)
        pairs = self._remove_unused_columns(test_dataset)
        return scoring_loader(
            pairs,
            self.processing_class,
            self.args.eval_batch_size,
            self.args.dataloader_num_workers,
            on_cpu=self.args.use_cpu,
        )


def _logits(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    # Encoder-decoders, such as BART, return their encoder's states behind the logits.
    logits: torch.Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
    return logits


class _Bar(ProgressCallback):
    def on_log(self, *args: Any, **kwargs: Any) -> None:
        pass


class _EpochOfOrder(TrainerCallback):
    """Tells the order its epoch. Where several processes resume in the middle of one, Accelerate does not reach it."""

    def __init__(self, order: TrainingOrder) -> None:
        self._order = order

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._order.set_epoch(int(state.epoch))  # of a resumed epoch, the share that is done stands behind the point


def _without_fillers(compute_metrics: Callable[[Any], dict[str, float]], scored: EvalPrediction) -> dict[str, float]:
    labels = np.asarray(scored.label_ids)
    real = labels != NO_LABEL
    return compute_metrics(EvalPrediction(np.asarray(scored.predictions)[real], labels[real]))
