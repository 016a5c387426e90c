"""Stage predict: score every validation and test row with the trained model."""

import shutil
from pathlib import Path
from typing import Any, Literal

from pipeline.cli import run
from pipeline.core.messages import log
from pipeline.core.output import atomic_output
from pipeline.core.packages import require_locked
from pipeline.core.paths import (
    CHECKPOINTS,
    CLASSIFIER,
    METRICS,
    PREDICTIONS,
    PROVENANCE,
    SWAPPED,
    TOKENIZED,
    require,
    users_path,
)
from pipeline.core.task import TASK, read_task
from pipeline.core.timing import Stopwatch
from pipeline.modeling import distributed
from pipeline.modeling.device import precision_of_scores, set_up_device
from pipeline.modeling.loading import load_classifier, load_tokenizer
from pipeline.modeling.settings import read_settings
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
    """Write a parquet file of each split but train to `out`: `idx, label, prediction, logit_0, ...`.

    Beside them task.json, and the model's provenance.json.
    label only where it is known. Only the first `params.max_samples` rows of each split, where that is set.
    With `params.swapped` also <split>_swapped.parquet of each scored one: the same pairs, the second text first. The
    rows are in the data's order. The time goes to `metrics/timing.json`.
    precision: `auto` is the one that the model was trained in, if this machine has it.
    Of several processes, each scores its share, and rank 0 alone writes.
    Raises UserError where an input is missing or the device cannot do the precision.
    """
    require(classifier, "train")
    require(tokenized, "tokenize")
    if precision == "auto":
        precision = precision_of_scores(read_settings(classifier).precision)
    device = set_up_device(precision, num_threads)

    import numpy as np
    import pyarrow as pa

    from pipeline.core.tables import from_numpy, kind_of, open_arrow, schema, write_split
    from pipeline.evaluation.metrics import predicted
    from pipeline.modeling.failures import demand_finite_logits, memory_for_model
    from pipeline.modeling.inference import logits

    task = read_task(tokenized, "tokenize")
    names = [*task.predicted, *(split + SWAPPED for split in task.scored if params.swapped and task.pairs)]
    splits = {name: open_arrow(tokenized, name, "tokenize") for name in names}
    if params.max_samples is not None:
        splits = {name: of.slice(0, params.max_samples) for name, of in splits.items()}
    model: Any = load_classifier(classifier, device.kind, trained=True)
    with memory_for_model(training=False):
        model.to(device.kind)
    tokenizer = load_tokenizer(classifier)
    # All splits at once, so that few batches of a length lack rows.
    every = pa.concat_tables([rows.select([*tokenizer.model_input_names, "length"]) for rows in splits.values()])
    if distributed.rank() > 0:
        logits(model, every, tokenizer, params.batch_size, device.precision)
        return
    with atomic_output(out) as draft:
        draft.mkdir()
        with Stopwatch() as watch:
            scored = logits(model, every, tokenizer, params.batch_size, device.precision).astype(np.float64)
        demand_finite_logits(classifier, scored, device.precision)
        ends = np.cumsum([len(rows) for rows in splits.values()])
        label = kind_of(splits["validation"].schema, "labels")
        for (split, rows), own in zip(splits.items(), np.split(scored, ends[:-1]), strict=True):
            columns, types = {"idx": rows["idx"]}, {"idx": pa.int32()}
            if "labels" in rows.column_names:
                columns["label"], types["label"] = rows["labels"], label
            columns["prediction"], types["prediction"] = from_numpy(predicted(task.problem_type, own)), label
            for output in range(task.outputs):
                columns[f"logit_{output}"], types[f"logit_{output}"] = from_numpy(own[:, output]), pa.float64()
            write_split(pa.table(columns, schema=schema(types)), draft, split)
            log.info("scored %s: %d %s", split.replace(SWAPPED, ", texts swapped"), len(rows), task.noun)
        shutil.copy(tokenized / TASK, draft)
        shutil.copy(require(classifier / PROVENANCE, "train"), draft)
    watch.write(metrics / "timing.json", "predict", samples=len(every))


def main() -> None:
    require_locked()
    params = load_params()
    with distributed.process_group(params.runtime.timeout):
        predict(
            TOKENIZED, CLASSIFIER, PREDICTIONS, METRICS, params.predict, params.train.precision,
            params.train.num_threads,
        )  # fmt: skip
    if distributed.rank() == 0:
        from pipeline.core.run_directory import remove_finished

        remove_finished(users_path(CHECKPOINTS))  # this stage runs when DVC has recorded the model


if __name__ == "__main__":
    run(main, keys_of("predict", "train.num_threads", "train.precision", "runtime.timeout"))
