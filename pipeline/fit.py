"""The engine "trainer": one run of the Hugging Face Trainer.

The train stage imports it late: its imports take seconds.
"""

from pathlib import Path
from typing import Any

from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import DataCollatorWithPadding, EarlyStoppingCallback, TrainerCallback

from pipeline import processes
from pipeline.arguments import training_arguments
from pipeline.params import TrainParams
from pipeline.resume import Checkpointing, Interruption, epochs_until_stopped, newest
from pipeline.stage import log
from pipeline.task import Fitted, Task, log_epoch, validation_scores
from pipeline.timing import Stopwatch
from pipeline.trainer import PairTrainer


def fit(task: Task, home: Path, params: TrainParams, device: dict[str, Any]) -> Fitted:
    """Fine-tune `task.model` on `task.training`, scored each epoch on `task.validation`.

    home: the directory of this run's checkpoints; training resumes from the newest whole one there.
    device: from `set_up_device`.
    Raises UserError for a parameter that is refused, where training fails, and where a checkpoint cannot be written.
    """
    arguments = training_arguments(params, device, home)
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
    resumed = newest(home, keep_best=params.keep == "best") if processes.index() == 0 else None
    resumed = processes.from_first(resumed)
    if resumed:
        log.info("resuming from %s", resumed)
        arguments.num_train_epochs = epochs_until_stopped(resumed) or params.epochs
    with logging_redirect_tqdm(), Interruption() as interruption, Stopwatch() as watch:  # log lines stand above the bar
        trainer.add_callback(Checkpointing(trainer, home, params.save_steps, resumed, interruption, watch))
        result = trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return Fitted(weights, trainer.state.log_history, result.training_loss, watch)


class _EpochLog(TrainerCallback):
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        log_epoch(state.log_history, args.num_train_epochs)
