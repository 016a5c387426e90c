"""Tell a tracker where to keep a run. The Trainer's callbacks do the rest.

They read environment variables. If the user has set a variable, it wins.
"""

import os

from transformers import TrainingArguments

from pipeline.core.output import output_errors
from pipeline.core.paths import RUNS, users_path


def set_up_tracker(arguments: TrainingArguments, run_key: str) -> None:
    """Name a run after DVC's experiment, and keep its files in `runs/` of the user's repository.

    The working directory would not do: DVC removes it after `dvc exp run --temp`.

    Args:
        arguments: Their `run_name` is set, unless `train.training_args` has set it.
        run_key: Hash of everything that determines the run's weights.

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
