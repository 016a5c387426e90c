"""Tell an experiment tracker where to store a run. The Trainer's callbacks do the rest.

The callbacks read environment variables. A variable that the user has set is left unchanged.
"""

import os

from transformers import TrainingArguments

from pipeline.core.output import output_errors
from pipeline.core.paths import RUNS, users_path


def set_up_tracker(arguments: TrainingArguments, run_key: str) -> None:
    """Name a run after the DVC experiment, and store its files in `runs/` of the user's repository.

    They are not stored in the working directory, because `dvc exp run --temp` removes that directory at the end.

    Args:
        arguments: This function sets `run_name`, unless `train.training_args` has set it.
        run_key: The hash of everything that determines the weights of the run.

    Raises:
        UserError: The directory cannot be written.
    """
    experiment = os.environ.get("DVC_EXP_NAME", "workspace")
    arguments.run_name = arguments.run_name or f"{experiment}-{run_key[:8]}"
    runs = users_path(RUNS).absolute()
    with output_errors(runs):
        runs.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(runs / arguments.run_name))
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{(runs / 'mlflow.db').as_posix()}")
    os.environ.setdefault("WANDB_DIR", str(runs))
