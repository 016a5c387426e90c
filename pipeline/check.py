"""Check params.yaml and the packages, and remove the previous model's scores."""

from pathlib import Path
from typing import Any

from pipeline.cli import run
from pipeline.core.messages import log
from pipeline.core.output import write_text
from pipeline.core.packages import REPORT_PACKAGES, REQUIREMENTS, require_locked
from pipeline.core.paths import CHECKED
from pipeline.core.yaml12 import read_yaml
from pipeline.evaluation.metrics import require_known, with_compared_metrics, with_selection_metric
from pipeline.modeling.device import usable_device
from pipeline.params import LOCAL, Params, load_params
from pipeline.sources.checkpoints import find_checkpoint, local_model_files
from pipeline.sources.fetch import file_sha256
from pipeline.sources.glue import glue_task
from pipeline.tabular.opening import text_codec
from pipeline.training.arguments import check_training

# The keys that GLUE tasks and the demo ignore, and their defaults.
_IGNORED_KEYS: dict[str, Any] = {
    "dataset": None, "config": None, "splits": None, "directory": "data/custom", "delimiter": None,
    "encoding": "utf-8", "header": True, "text_column_names": ["text"], "label_column_name": "label",
    "problem_type": None, "id2label": None, "slice_columns": [], "split.type": "stratify", "split.column": None,
    "split.fractions": [0.8, 0.1, 0.1],
}  # fmt: skip


def check(params: Params) -> None:
    """Raise UserError for a value that a stage would reject.

    The stages themselves check values that depend on the data or the weights, such as a max_length that is too long for
    the model, and combinations of arguments that the Trainer rejects.
    """
    if params.data.task in ("custom", "hub"):
        require_known(params.evaluate.metrics or [])
    else:
        task = glue_task("mrpc" if params.data.task == "demo" else params.data.task)
        with_selection_metric(task, params.train.metric_for_best_model)
        with_compared_metrics(task, params.evaluate.metrics)
        values = vars(params.data) | {f"split.{key}": value for key, value in vars(params.data.split).items()}
        ignored = [f"data.{key}" for key, default in _IGNORED_KEYS.items() if values[key] != default]
        # "make demo" sets data/empty, because it must run without the user's data.
        if ignored and params.data.directory != "data/empty":
            log.warning(
                "data.task is %s, which ignores %s. Set data.task=custom for your own files, or data.task=hub for a "
                "dataset on the Hub.",
                params.data.task, ", ".join(ignored),
            )  # fmt: skip
    text_codec(params.data.encoding)  # raises UserError if Python does not know the encoding
    find_checkpoint(params.model.checkpoint)
    # With another launcher, other machines may train. Every device supports "auto" and "fp32".
    if params.runtime.launcher == LOCAL and params.train.precision not in ("auto", "fp32"):
        usable_device(params.train.precision)
    check_training(params.train, params.runtime)


def remove_scores() -> None:
    """Remove the metrics and plots that the evaluate stage has written.

    Git tracks these files, so an experiment that ends before evaluate would show the scores of its parent commit as its
    own. If the files still belong to the model, DVC restores them from its run cache.
    """
    evaluate = read_yaml(Path("dvc.yaml"))["stages"]["evaluate"]
    for output in evaluate["metrics"] + evaluate["plots"]:
        path = output if isinstance(output, str) else next(iter(output))  # with options, the only key of a mapping
        Path(path).unlink(missing_ok=True)


def main() -> None:
    require_locked()
    require_locked(REQUIREMENTS, REPORT_PACKAGES)
    params = load_params()
    check(params)
    remove_scores()
    write_text(CHECKED, f"params.yaml holds what the stages accept.\n{_hashes_of_local_model(params)}")


def _hashes_of_local_model(params: Params) -> str:
    """Return a line with the hash of each file of a local base model, or nothing for a model on the Hub.

    The other stages depend on the output of this stage so that they run after it. Apart from these hashes, its content
    never changes, so a change of a parameter does not make them run again. With the hashes, DVC does not restore the
    files that a local base model had at an earlier run from its run cache.
    """
    model = find_checkpoint(params.model.checkpoint)
    if not isinstance(model, Path):
        return ""
    return "".join(f"{file_sha256(file)} {file.name}\n" for file in local_model_files(model))


if __name__ == "__main__":
    run(main, keys=["all of them"])
