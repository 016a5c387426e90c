"""Predict the validation and test examples with the fine-tuned model."""

import shutil
import time
from pathlib import Path

import numpy as np

from pipeline.cli import run_stage
from pipeline.core.dataset_files import load_examples, read_column
from pipeline.core.messages import log
from pipeline.core.output import atomic_output
from pipeline.core.parquet import read_rows
from pipeline.core.paths import CLASSIFIER, PREDICTIONS, PROVENANCE, RAW, TOKENIZED, require
from pipeline.core.task import TASK, read_task
from pipeline.evaluation.predictions import write_predictions
from pipeline.modeling import distributed
from pipeline.modeling.classifier import Classifier
from pipeline.modeling.windows import windows_of
from pipeline.params import Params, PrecisionSetting, PredictParams


def predict(
    raw: Path,
    tokenized: Path,
    classifier: Path,
    out: Path,
    params: PredictParams,
    precision: PrecisionSetting,
    num_threads: int | None,
) -> None:
    """Write the predictions for each split except train to `out/<split>.parquet`, in the order of the examples.

    The columns are those of `raw`, `prediction`, and `logit_0`, `logit_1` and so on, so that whoever reads predictions
    needs no other file. `out` also gets task.json and the provenance.json of the model. With several processes, each
    one scores a part of the examples, and only rank 0 writes.

    Args:
        precision: "auto" means the precision in which the model was trained, if this machine has it.
    """
    require(classifier)
    task = read_task(tokenized)
    model = Classifier(classifier, params.batch_size, None if precision == "auto" else precision, num_threads)
    scored = {}
    for split in task.predicted_splits:
        examples = load_examples(tokenized, split)
        if params.max_samples is not None:
            texts = np.arange(min(params.max_samples, len(examples)))
            examples = examples.select(windows_of(texts, read_column(examples, "idx")))
        started = time.perf_counter()
        scored[split] = model.logits(examples)
        seconds = time.perf_counter() - started
        log.info("scored %s: %s %s in %.1f seconds", split, f"{len(scored[split]):,}", task.noun, seconds)
    if distributed.rank() > 0:
        return
    with atomic_output(out) as draft:
        draft.mkdir()
        for split, logits in scored.items():
            examples = read_rows(raw, split).slice(0, len(logits))
            write_predictions(draft / f"{split}.parquet", task, examples, logits)
        shutil.copy(tokenized / TASK, draft)
        shutil.copy(require(classifier / PROVENANCE), draft)


def main(params: Params) -> None:
    with distributed.connected():
        precision, num_threads = params.train.precision, params.train.num_threads
        predict(RAW, TOKENIZED, CLASSIFIER, PREDICTIONS, params.predict, precision, num_threads)


if __name__ == "__main__":
    run_stage("predict", main)
