"""Stage predict: score every validation and test pair with the trained classifier."""

import tempfile
from pathlib import Path

from pipeline.arguments import prediction_arguments
from pipeline.checkpoint import load_classifier, load_tokenizer
from pipeline.device import set_up_device
from pipeline.params import Precision, PredictParams, load_params
from pipeline.stage import (
    CHECKPOINTS,
    CLASSIFIER,
    METRICS,
    PREDICTIONS,
    SCORED,
    SWAPPED,
    TOKENIZED,
    log,
    require,
    run,
    users_path,
    whole,
)
from pipeline.timing import Stopwatch

# Digits kept of a logit. In batches of another size, fp32 logits agree to 1e-6 on a CPU; the digits behind these are
# noise that would make equal predictions look different.
_DIGITS = 4


def predict(
    tokenized: Path,
    classifier: Path,
    out: Path,
    metrics: Path,
    params: PredictParams,
    precision: Precision,
    num_threads: int | None,
) -> None:
    """Write `out/{validation,test}.parquet`: `idx, label, prediction, logit_0, logit_1, probability` (of class 1).

    With `params.swapped` also {validation,test}_swapped.parquet: the same pairs, the second sentence first. The rows
    are in the data's order; they are scored longest first, then put back. The time goes to `metrics/timing.json`.
    Raises UserError where an input is missing or the device cannot do the precision.
    """
    require(classifier, "train")
    require(tokenized, "tokenize")
    device = set_up_device(precision, num_threads)

    import numpy as np
    from datasets import ClassLabel, Dataset, Features, Value

    from pipeline.batches import longest_first
    from pipeline.metrics import log_softmax
    from pipeline.tables import read_split, write_split
    from pipeline.trainer import PairTrainer

    names = [*SCORED, *(split + SWAPPED for split in SCORED if params.swapped)]
    splits = {name: read_split(tokenized, name, "tokenize") for name in names}
    model, tokenizer = load_classifier(classifier), load_tokenizer(classifier)
    with whole(out) as draft, tempfile.TemporaryDirectory() as scratch:
        arguments = prediction_arguments(params, device, Path(scratch))
        trainer = PairTrainer(model=model, args=arguments, processing_class=tokenizer)
        draft.mkdir()
        # One autocast over all batches: it keeps the weights that it has cast, and casts them once, not for each batch.
        with Stopwatch() as watch, trainer.accelerator.autocast():
            for split, dataset in splits.items():
                ordered = longest_first(dataset.add_column("position", np.arange(len(dataset))))
                scored = np.asarray(trainer.predict(ordered).predictions, dtype=np.float64)
                logits = np.empty_like(scored)
                logits[ordered["position"]] = scored.round(_DIGITS)
                label = ClassLabel(names=dataset.features["labels"].names)
                columns = {
                    "idx": dataset["idx"],
                    "label": dataset["labels"],
                    "prediction": logits.argmax(-1),
                    "logit_0": logits[:, 0],
                    "logit_1": logits[:, 1],
                    "probability": np.round(np.exp(log_softmax(logits)[:, 1]), 6),
                }
                features = Features({name: Value("float64") for name in columns})
                features |= {"idx": Value("int32"), "label": label, "prediction": label}
                write_split(Dataset.from_dict(columns, features=features), draft, split)
                log.info("scored %s: %d pairs", split.replace(SWAPPED, ", sentences swapped"), len(dataset))
    watch.write(metrics / "timing.json", "predict", samples=sum(map(len, splits.values())))


def main() -> None:
    params = load_params()
    predict(
        TOKENIZED, CLASSIFIER, PREDICTIONS, METRICS, params.predict, params.train.precision, params.train.num_threads
    )
    from pipeline.resume import remove_finished

    remove_finished(users_path(CHECKPOINTS))  # this stage runs when DVC has recorded the model


if __name__ == "__main__":
    run(main)
