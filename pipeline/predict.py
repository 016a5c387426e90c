"""Predict every validation and test example with the fine-tuned model."""

from pipeline.cli import as_command, parse_arguments
from pipeline.params import Precision, PredictParams, keys_of, load_params, require_unchanged

if __name__ == "__main__":  # --help must not wait for the imports below.
    parse_arguments(keys_of("predict", "train.num_threads", "train.precision", "runtime.timeout"))

import shutil
import time
from pathlib import Path
from typing import Literal

import numpy as np
from datasets import Dataset

from pipeline.core.dataset_files import load_split
from pipeline.core.messages import log
from pipeline.core.output import atomic_output
from pipeline.core.packages import require_locked
from pipeline.core.paths import (
    CHECKPOINTS,
    CLASSIFIER,
    METRICS_DIR,
    PREDICTIONS,
    PROVENANCE,
    SWAPPED,
    TOKENIZED,
    read_json,
    require,
    users_path,
)
from pipeline.core.run_directory import remove_run_directory, run_key
from pipeline.core.task import TASK, Task, read_task
from pipeline.core.timing import write_timing
from pipeline.evaluation.metrics import Values
from pipeline.evaluation.prediction_files import write_predictions
from pipeline.modeling import distributed
from pipeline.modeling.classifier import Classifier


def predict(
    tokenized: Path,
    classifier: Path,
    out: Path,
    metrics: Path,
    params: PredictParams,
    precision: Literal["auto", Precision],
    num_threads: int | None,
) -> None:
    """Write the predictions for each split except train to `out/<split>.parquet`, in the order of the examples.

    The columns are `idx`, `label` (if it is known), `prediction`, and `logit_0`, `logit_1` and so on. With
    `params.score_swapped_pairs`, `<split>_swapped.parquet` has the predictions for the same pairs with their texts
    swapped. `out` also gets task.json and the provenance.json of the model. The time is written to
    `metrics/timing.json`. With several processes, each one scores a part of the examples, and only rank 0 writes.

    Args:
        precision: "auto" means the precision in which the model was trained, if this machine has it.

    Raises:
        UserError: An input is missing, or the device cannot compute in the precision.
    """
    require(classifier, "train")
    task = read_task(tokenized, "tokenize")
    chosen_precision = None if precision == "auto" else precision
    model = Classifier(classifier, params.batch_size, chosen_precision, num_threads)
    splits = [
        *task.predicted_splits,
        *(split + SWAPPED for split in task.scored_splits if params.score_swapped_pairs and task.pairs),
    ]
    scored = {}
    started = time.perf_counter()
    for split in splits:
        examples = load_split(tokenized, split, "tokenize")
        if params.max_samples is not None:
            examples = examples.select(range(min(params.max_samples, len(examples))))
        scored[split] = examples.with_format("numpy"), model.logits(examples)
        log.info("scored %s: %s %s", split.replace(SWAPPED, ", texts swapped"), f"{len(examples):,}", task.noun)
    seconds = time.perf_counter() - started
    if distributed.rank() > 0:
        return
    with atomic_output(out) as draft:
        draft.mkdir()
        for split, (examples, logits) in scored.items():
            write_predictions(draft, split, task, examples["idx"][:], _known_labels(task, examples), logits)
        shutil.copy(tokenized / TASK, draft)
        shutil.copy(require(classifier / PROVENANCE, "train"), draft)
    write_timing(metrics / "timing.json", "predict", seconds)


def _known_labels(task: Task, examples: Dataset) -> Values | None:
    """Return the labels as `metrics.Values`. The tokenized labels are floats if an example can have several."""
    if "labels" not in examples.column_names:
        return None
    dtype = np.float64 if task.problem_type == "regression" else np.int64  # By default, floats become float32.
    return np.asarray(examples.with_format("numpy", dtype=dtype)["labels"][:])


def main() -> None:
    require_locked()
    params = load_params()
    with distributed.process_group(params.runtime.timeout):
        predict(
            TOKENIZED, CLASSIFIER, PREDICTIONS, METRICS_DIR, params.predict, params.train.precision,
            params.train.num_threads,
        )  # fmt: skip
    require_unchanged(params, ["predict", "train.num_threads", "train.precision"])
    if distributed.rank() == 0:
        # DVC runs this stage only after it has recorded the model, so no run needs its checkpoints again.
        remove_run_directory(users_path(CHECKPOINTS), run_key(read_json(CLASSIFIER / PROVENANCE, "train")))


if __name__ == "__main__":
    with as_command():
        main()
