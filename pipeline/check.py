"""Stage check: check params.yaml and the installed packages before DVC removes an output."""

from pathlib import Path

from pipeline.cli import parse_arguments, run
from pipeline.core.output import write_text
from pipeline.core.packages import REPORT_PACKAGES, REQUIREMENTS, require_locked
from pipeline.core.paths import CHECKED
from pipeline.core.yaml12 import read_yaml
from pipeline.evaluation.metrics import choosing_by, compared_by, require_known
from pipeline.modeling.device import usable_device
from pipeline.params import LOCAL, Params, keys_of, load_params
from pipeline.sources.checkpoints import find
from pipeline.sources.glue import task_of
from pipeline.training.arguments import check_training

PIPELINE = Path("dvc.yaml")


def check(params: Params) -> None:
    """Raise UserError for a value that a stage would reject.

    What depends on the data or the weights, such as a max_length beyond the model's positions, is left to the stages.
    """
    if params.data.task == "custom":
        require_known(params.evaluate.metrics or [])
    else:
        task = task_of("mrpc" if params.data.task == "demo" else params.data.task)
        choosing_by(task, params.train.metric_for_best_model)
        compared_by(task, params.evaluate.metrics)
    find(params.model.checkpoint)
    if params.runtime.launcher == LOCAL:
        if params.train.precision not in ("auto", "fp32"):  # Every device supports these two.
            usable_device(params.train.precision)
        check_training(params.train, params.runtime)


def remove_scores(pipeline: Path) -> None:
    """Remove the metrics and plots that the stage evaluate of a dvc.yaml has written.

    Git tracks these files, so an experiment that ends before evaluate would show the scores of its parent commit as
    its own. DVC restores them from its run cache if they still belong to the model.
    """
    evaluate = read_yaml(pipeline)["stages"]["evaluate"]
    for output in evaluate["metrics"] + evaluate["plots"]:
        for path in output:  # the only key
            Path(path).unlink(missing_ok=True)


def main() -> None:
    require_locked()
    require_locked(REQUIREMENTS, REPORT_PACKAGES)
    check(load_params())
    remove_scores(PIPELINE)
    # The content is always the same, so that stages that depend on it run after this one, but never because of it.
    write_text(CHECKED, "params.yaml holds what the stages accept.\n")


if __name__ == "__main__":
    run(main, parse_arguments(keys_of("data", "model", "tokenize", "train", "predict", "evaluate", "runtime")))
