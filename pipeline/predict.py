"""Predict every validation and test example with the fine-tuned model."""

from pipeline.cli import run  # First, because it sets variables that the packages read when they are imported.

# isort: split

import shutil
import time
from pathlib import Path
from typing import Literal

import numpy as np
from datasets import Dataset, Features, Value
from numpy.typing import NDArray

from pipeline.core.dataset_files import label_feature, load_split
from pipeline.core.messages import log
from pipeline.core.output import atomic_output
from pipeline.core.packages import require_locked
from pipeline.core.paths import (
    CHECKPOINTS,
    CLASSIFIER,
    METRICS_DIR,
    PREDICTIONS,
    PRETRAINED,
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
from pipeline.evaluation.metrics import logits_to_predictions
from pipeline.modeling import distributed
from pipeline.modeling.classifier import Classifier
from pipeline.params import Precision, PredictParams, keys_of, load_params


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
    model = Classifier(classifier, params.batch_size, chosen_precision, num_threads, "train.precision")
    splits = [
        *task.predicted_splits,
        *(split + SWAPPED for split in task.scored_splits if params.score_swapped_pairs and task.pairs),
    ]
    predictions = {}
    started = time.perf_counter()
    for split in splits:
        examples = load_split(tokenized, split, "tokenize")
        if params.max_samples is not None:
            examples = examples.select(range(min(params.max_samples, len(examples))))
        predictions[split] = _predictions(task, examples, model.logits(examples))
        log.info("scored %s: %s %s", split.replace(SWAPPED, ", texts swapped"), f"{len(examples):,}", task.noun)
    seconds = time.perf_counter() - started
    if distributed.rank() > 0:
        return
    with atomic_output(out) as draft:
        draft.mkdir()
        for split, rows in predictions.items():
            rows.to_parquet(draft / f"{split}.parquet")
        shutil.copy(tokenized / TASK, draft)
        shutil.copy(require(classifier / PROVENANCE, "train"), draft)
    write_timing(metrics / "timing.json", "predict", seconds)


def _predictions(task: Task, examples: Dataset, logits: NDArray[np.float64]) -> Dataset:
    """Return the rows of the file with the predictions for a split."""
    arrays = examples.with_format("numpy")
    known_labels = {}
    if "labels" in examples.column_names:
        labels = np.asarray(arrays["labels"][:])
        known_labels = {"label": labels if task.problem_type == "regression" else labels.astype(np.int64)}
    columns = {
        "idx": arrays["idx"][:],
        **known_labels,
        "prediction": logits_to_predictions(task.problem_type, logits),
        **{f"logit_{output}": logits[:, output] for output in range(task.outputs)},
    }
    features = {
        "idx": Value("int32"),
        "label": label_feature(task),
        "prediction": label_feature(task),
        **{f"logit_{output}": Value("float64") for output in range(task.outputs)},
    }
    return Dataset.from_dict(columns, features=Features({name: features[name] for name in columns}))


def main() -> None:
    require_locked()
    params = load_params()
    with distributed.process_group(params.runtime.timeout):
        predict(
            TOKENIZED, CLASSIFIER, PREDICTIONS, METRICS_DIR, params.predict, params.train.precision,
            params.train.num_threads,
        )  # fmt: skip
    if distributed.rank() == 0:
        # DVC runs this stage only after it has recorded the model, so no run needs its checkpoints again.
        key = run_key(read_json(CLASSIFIER / PROVENANCE, "train"), [TOKENIZED, PRETRAINED])
        remove_run_directory(users_path(CHECKPOINTS), key)


if __name__ == "__main__":
    run(main, keys_of("predict", "train.num_threads", "train.precision", "runtime.timeout"))
