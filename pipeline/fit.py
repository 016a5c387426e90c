"""One run of the Hugging Face Trainer: the pretrained model under a new head, fitted to the tokenized pairs.

The train stage imports it late: its imports take seconds.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import (
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
    set_seed,
)

from pipeline import processes
from pipeline.batches import longest_first
from pipeline.checkpoint import load_classifier, load_tokenizer
from pipeline.metrics import cross_entropy, paraphrase_metric
from pipeline.params import TrainParams
from pipeline.resume import Checkpointing, epochs_until_stopped, newest
from pipeline.stage import log
from pipeline.tables import read_split
from pipeline.timing import Stopwatch
from pipeline.trainer import PairTrainer


@dataclass(frozen=True)
class Fitted:
    """What a run leaves.

    weights: of the whole model, also where each process held a part of it. pairs: of an epoch.
    """

    model: PreTrainedModel
    weights: dict[str, Any]
    tokenizer: PreTrainedTokenizerBase
    history: list[dict[str, Any]]
    train_loss: float
    pairs: int
    effective_batch_size: int
    watch: Stopwatch


def fit(tokenized: Path, pretrained: Path, home: Path, params: TrainParams, arguments: TrainingArguments) -> Fitted:
    """Fine-tune `pretrained` on `tokenized/train.parquet`, scored each epoch on `tokenized/validation.parquet`.

    home: the directory of this run's checkpoints; training resumes from the newest whole one there.
    Raises UserError where an input does not load, where training fails, and where a checkpoint cannot be written.
    """
    training = read_split(tokenized, "train", "tokenize")
    if params.max_train_samples is not None:
        training = training.select(range(min(params.max_train_samples, len(training))))
    validation = longest_first(read_split(tokenized, "validation", "tokenize"))
    names = training.features["labels"].names

    set_seed(params.seed)  # before the model: its new head is drawn at random
    model = load_classifier(
        pretrained,
        id2label=dict(enumerate(names)),
        label2id={name: label for label, name in enumerate(names)},
    )
    tokenizer = load_tokenizer(pretrained)
    metric = paraphrase_metric()

    def compute_metrics(scored: Any) -> dict[str, float]:
        predictions = scored.predictions.argmax(-1)
        scores = metric.compute(predictions=predictions, references=scored.label_ids)
        # The loss too: Trainer's own mean weighs every batch alike, however few pairs it has.
        loss = cross_entropy(scored.predictions, scored.label_ids)
        return {**scores, "loss": loss, "classes": len(set(predictions.tolist()))}

    trainer = PairTrainer(
        model=model,
        args=arguments,
        train_dataset=training,
        eval_dataset=validation,
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=None if arguments.use_cpu else 8),
        compute_metrics=compute_metrics,
    )
    if params.early_stopping_patience is not None:
        trainer.add_callback(EarlyStoppingCallback(params.early_stopping_patience))
    trainer.check_optimizer()
    effective_batch_size = params.batch_size * params.gradient_accumulation_steps * processes.count()
    steps = math.ceil(len(training) / effective_batch_size) * params.epochs
    log.info(
        "training on %d pairs, effective batch %d, %d epochs, %d steps",
        len(training), effective_batch_size, params.epochs, steps,
    )  # fmt: skip
    resumed = newest(home, keep_best=params.keep == "best") if processes.index() == 0 else None
    resumed = processes.from_first(resumed)
    if resumed:
        log.info("resuming from %s", resumed)
        arguments.num_train_epochs = epochs_until_stopped(resumed) or params.epochs
    watch = Stopwatch()
    checkpointing = Checkpointing(trainer, home, params.save_steps, resumed, watch)
    trainer.add_callback(checkpointing)
    with logging_redirect_tqdm(), checkpointing.signals(), watch:  # log lines stand above the bar
        result = trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    return Fitted(
        model=model,
        weights=trainer.accelerator.get_state_dict(trainer.model_wrapped),
        tokenizer=tokenizer,
        history=trainer.state.log_history,
        train_loss=result.training_loss,
        pairs=len(training),
        effective_batch_size=effective_batch_size,
        watch=watch,
    )
