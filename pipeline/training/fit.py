"""The engine "trainer": one run of the Hugging Face Trainer.

The train stage imports it late: its imports take seconds.
"""

from pathlib import Path
from typing import Any

from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import DataCollatorWithPadding, EarlyStoppingCallback, TrainerCallback

from pipeline.core.messages import log
from pipeline.core.timing import Stopwatch
from pipeline.modeling import distributed
from pipeline.params import RuntimeParams, TrainParams
from pipeline.training.arguments import training_arguments
from pipeline.training.checkpointing import Checkpointing, epochs_until_stopped, newest
from pipeline.training.inputs import TrainInputs, TrainResult, log_epoch, validation_scores
from pipeline.training.interruption import Interruption
from pipeline.training.trainer import PairTrainer


def fit(
    task: TrainInputs, home: Path, params: TrainParams, runtime: RuntimeParams, device: dict[str, Any]
) -> TrainResult:
    """Fine-tune `task.model` on `task.training`, scored each epoch on `task.validation`.

    home: the directory of this run's checkpoints; training resumes from the newest whole one there.
    device: from `set_up_device`.
    Raises UserError for a parameter that is refused, where training fails, and where a checkpoint cannot be written.
    """
    arguments = training_arguments(params, runtime, device, home)
    trainer = PairTrainer(
        model=task.model,
        args=arguments,
        train_dataset=task.training,
        eval_dataset=task.validation,
        processing_class=task.tokenizer,
        data_collator=DataCollatorWithPadding(task.tokenizer, pad_to_multiple_of=None if arguments.use_cpu else 8),
        compute_metrics=lambda scored: validation_scores(scored.predictions, scored.label_ids),
    )
    if params.early_stopping_patience is not None:
        trainer.add_callback(EarlyStoppingCallback(params.early_stopping_patience))
    trainer.add_callback(_EpochLog)
    trainer.check_optimizer()
    resumed = newest(home, keep_best=params.keep == "best") if distributed.rank() == 0 else None
    resumed = distributed.broadcast(resumed)
    if resumed:
        log.info("resuming from %s", resumed)
        arguments.num_train_epochs = epochs_until_stopped(resumed) or params.epochs
    with logging_redirect_tqdm(), Interruption() as interruption, Stopwatch() as watch:  # log lines stand above the bar
        trainer.add_callback(Checkpointing(trainer, home, runtime.save_steps, resumed, interruption, watch))
        result = trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return TrainResult(weights, trainer.state.log_history, result.training_loss, watch)


class _EpochLog(TrainerCallback):
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        log_epoch(state.log_history, args.num_train_epochs)
