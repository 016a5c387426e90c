"""The Hugging Face Trainer for sentence pairs, and every correction that this pipeline makes to it."""

import functools
import math
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
)
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from pipeline import processes
from pipeline.batches import NO_LABEL, SCORED_MULTIPLE, EqualLengthBatches, FillablePairs, TrainingOrder, token_counts
from pipeline.cpu import fast_dropout
from pipeline.resume import saving
from pipeline.stage import UserError, log


class PairTrainer(Trainer):
    """Trainer with its loss, its batches and its log corrected.

    Loss. That of an optimizer step is the mean over the effective batch, however it is cut into forward passes. The
    sequence-classification heads return the mean of one forward pass and ignore `num_items_in_batch`; since they take
    **kwargs, Trainer believes that they normalise, and loss and gradients come out multiplied by
    `gradient_accumulation_steps`. (`model_accepts_loss_kwargs = False` would mend passes of equal size; dividing the
    sum by the number of pairs also mends the short one that ends an epoch.)
    Background: https://huggingface.co/blog/gradient_accumulation

    Scoring batches. They end where the padded length changes, and hold either pairs with padding or pairs without. A
    pair's logits then do not depend on the pairs that happened to share its batch (in bf16 they differ in the third
    digit), so that neither the batch size nor the stage that scores changes a score.

    Training batches of like length come in random order. Trainer sorts 50 batches by length and feeds them as sorted,
    so that the length of the pairs, and with it the gradient, drifts up and down during an epoch.

    Several processes. The last batch of an epoch seldom fills them all. Accelerate then repeats pairs, which count in
    the loss and in the scores; here what fills up counts in neither. Two processes of batch 8 give the losses of one
    of batch 16.

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
        self._finite_loss: Any = None
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
        self.add_callback(_EpochLog)

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
        pairs, tokens = inputs["input_ids"].shape
        with _memory(
            f"{pairs} pairs of {tokens} tokens",
            "train.batch_size and raise train.gradient_accumulation_steps as much, or set train.gradient_checkpointing",
        ):
            loss = super().training_step(model, inputs, num_items_in_batch)
        self._demand_finite("loss", loss)
        # Mean of this forward pass, one of an effective batch.
        self._finite_loss = loss * num_items_in_batch / pairs / self.args.world_size
        return loss

    def train(self, *args: Any, **kwargs: Any) -> Any:
        dropout = fast_dropout() if self.args.use_cpu else nullcontext()
        if self.args.process_index:  # else all would drop the same units
            torch.manual_seed(self.args.seed + self.args.process_index)
        with dropout, _memory("the model and the state of its optimizer", "train.batch_size, or take a smaller model"):
            return super().train(*args, **kwargs)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        # Of the steps since the last logged one Trainer would add this process's share alone to the mean loss.
        losses = processes.from_all(self._tr_loss.item())
        self._tr_loss.fill_(sum(losses) / len(losses))
        return super()._finalize_training(*args, **kwargs)  # type: ignore[no-untyped-call]

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self.gather_function = self.accelerator.gather  # not for_metrics, which drops pairs by the training batches
        return super().evaluation_loop(*args, **kwargs)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        if not self.args.fp16:  # there the scaler skips the step and lowers its scale, as it should now and then
            self._demand_finite("gradient norm", norm)
        return norm

    def _demand_finite(self, what: str, value: Any) -> None:
        if math.isfinite(value):
            return
        before = "" if self._finite_loss is None else f", the last finite loss was {float(self._finite_loss):.4f}"
        raise UserError(
            f"the {what} is {float(value)} at step {self.state.global_step + 1}{before}; try a lower train.lr, "
            "a higher train.warmup_ratio, train.precision bf16 or fp32, or train.max_grad_norm 1.0"
        )

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        pairs, tokens = inputs["input_ids"].shape
        batch_size = "train.batch_size" if self.is_in_train else "predict.batch_size"
        with _memory(f"{pairs} pairs of {tokens} tokens", batch_size):
            return super().prediction_step(model, inputs, *args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with saving(Path(str(self.args.output_dir)), self.state.global_step):
            super()._save_checkpoint(model, trial)

    def _get_train_sampler(self, train_dataset: Any = None) -> "TrainingOrder":
        dataset: Any = self.train_dataset
        pairs, batch_size = dataset.pairs, self.args.train_batch_size
        return TrainingOrder(
            len(pairs),
            seed=self.args.seed,
            lengths=token_counts(pairs) if self.args.train_sampling_strategy == "group_by_length" else None,
            batch_size=batch_size * self.args.gradient_accumulation_steps * self.args.world_size,
            filled_to=batch_size * self.args.world_size if self.args.world_size > 1 else 1,
        )

    def get_train_dataloader(self) -> DataLoader[Any]:
        prepared: Any = super().get_train_dataloader()
        loader = prepared.base_dataloader  # Accelerate's own has no use for what is set on it
        loader.worker_init_fn = functools.partial(_outlive_a_signal, first=loader.worker_init_fn)
        return prepared  # type: ignore[no-any-return]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        return self._scoring_dataloader(self.eval_dataset if eval_dataset is None else eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        return self._scoring_dataloader(test_dataset)

    def _scoring_dataloader(self, dataset: Dataset) -> DataLoader[Any]:
        assert isinstance(self.processing_class, PreTrainedTokenizerBase)
        batches = EqualLengthBatches(
            token_counts(dataset), self.args.eval_batch_size, self.args.world_size, self.args.process_index
        )
        return DataLoader(
            FillablePairs(self._remove_unused_columns(dataset)),
            batch_sampler=batches,
            collate_fn=DataCollatorWithPadding(self.processing_class, pad_to_multiple_of=SCORED_MULTIPLE),
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            worker_init_fn=_outlive_a_signal,
        )


def _outlive_a_signal(worker: int, first: Callable[[int], None] | None = None) -> None:
    """Have a process that loads data leave the first signal to the main process, which still wants this step's batches.

    Ctrl-C, and who stops a whole group, send it to all.
    """
    if first:
        first(worker)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: signal.signal(number, signal.SIG_DFL))


def _logits(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    # Encoder-decoders, such as BART, return their encoder's states behind the logits.
    logits: torch.Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
    return logits


@contextmanager
def _memory(holding: str, lower: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # CUDA's has a class of its own; the CPU's and Apple's are told by their text.
        if not isinstance(error, torch.OutOfMemoryError) and not re.search("out of memory|allocate memory", str(error)):
            raise
        raise UserError(f"out of memory with {holding}; lower {lower}") from error


class _Bar(ProgressCallback):
    def on_log(self, *args: Any, **kwargs: Any) -> None:
        pass


class _EpochLog(TrainerCallback):
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        scores = kwargs["metrics"]
        losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
        log.info(
            "epoch %d/%d: train loss %s, validation loss %.4f, accuracy %.4f, f1 %.4f",
            round(state.epoch), args.num_train_epochs, f"{losses[-1]:.4f}" if losses else "-",
            scores["eval_loss"], scores["eval_accuracy"], scores["eval_f1"],
        )  # fmt: skip


def _without_fillers(compute_metrics: Callable[[Any], dict[str, float]], scored: EvalPrediction) -> dict[str, float]:
    labels = np.asarray(scored.label_ids)
    real = labels != NO_LABEL
    return compute_metrics(EvalPrediction(np.asarray(scored.predictions)[real], labels[real]))
