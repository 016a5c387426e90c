"""Stage predict: score every validation and test pair with the trained classifier."""

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
    SCORED,
    SWAPPED,
    TOKENIZED,
    require,
    users_path,
)
from pipeline.core.timing import Stopwatch
from pipeline.modeling.device import set_up_device
from pipeline.modeling.loading import load_classifier, load_tokenizer
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
    """Write `out/{validation,test}.parquet`: `idx, label, prediction, logit_0, logit_1, probability` (of class 1).

    Only the first `params.max_samples` pairs of each split, where that is set.
    With `params.swapped` also {validation,test}_swapped.parquet: the same pairs, the second sentence first. The rows
    are in the data's order. The time goes to `metrics/timing.json`.
    Raises UserError where an input is missing or the device cannot do the precision.
    """
    require(classifier, "train")
    require(tokenized, "tokenize")
    device = set_up_device(precision, num_threads)

    import numpy as np
    import pyarrow as pa

    from pipeline.core.tables import class_names, from_numpy, read_split, schema, write_split
    from pipeline.evaluation.metrics import log_softmax
    from pipeline.modeling.inference import logits

    names = [*SCORED, *(split + SWAPPED for split in SCORED if params.swapped)]
    splits = {name: read_split(tokenized, name, "tokenize") for name in names}
    if params.max_samples is not None:
        splits = {name: of.slice(0, params.max_samples) for name, of in splits.items()}
    model: Any = load_classifier(classifier, device.kind)
    model.to(device.kind)
    tokenizer = load_tokenizer(classifier)
    with atomic_output(out) as draft:
        draft.mkdir()
        # All splits at once, so that few batches of a length lack pairs.
        every = pa.concat_tables(splits.values()).combine_chunks()
        with Stopwatch() as watch:
            scored = logits(model, every, tokenizer, params.batch_size, device.precision).astype(np.float64)
        ends = np.cumsum([len(pairs) for pairs in splits.values()])
        for (split, pairs), own in zip(splits.items(), np.split(scored, ends[:-1]), strict=True):
            columns = {
                "idx": pairs["idx"],
                "label": pairs["labels"],
                "prediction": from_numpy(own.argmax(-1)),
                "logit_0": from_numpy(own[:, 0]),
                "logit_1": from_numpy(own[:, 1]),
                "probability": from_numpy(np.round(np.exp(log_softmax(own)[:, 1]), 6)),
            }
            classes = class_names(pairs.schema, "labels")
            types = {"idx": pa.int32(), "label": classes, "prediction": classes}
            types |= {name: pa.float64() for name in ("logit_0", "logit_1", "probability")}
            write_split(pa.table(columns, schema=schema(types)), draft, split)
            log.info("scored %s: %d pairs", split.replace(SWAPPED, ", sentences swapped"), len(pairs))
    watch.write(metrics / "timing.json", "predict", samples=len(every))


def main() -> None:
    require_locked()
    params = load_params()
    predict(
        TOKENIZED, CLASSIFIER, PREDICTIONS, METRICS, params.predict, params.train.precision, params.train.num_threads
    )
    from pipeline.core.run_directory import remove_finished

    remove_finished(users_path(CHECKPOINTS))  # this stage runs when DVC has recorded the model


if __name__ == "__main__":
    run(main, keys_of("predict", "train.num_threads", "train.precision"))
