"""Stage train: fine-tune the pretrained transformer on the tokenized training pairs with the Hugging Face Trainer."""

import csv
import io
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.arguments import training_arguments
from pipeline.checkpoint import load_classifier, load_tokenizer
from pipeline.device import device_arguments
from pipeline.environment import environment
from pipeline.params import TrainParams, load_params
from pipeline.stage import (
    CHECKPOINTS,
    CLASSIFIER,
    METRICS,
    PRETRAINED,
    TOKENIZED,
    UserError,
    log,
    require,
    run,
    users_path,
    whole,
    write_json,
    write_text,
)
from pipeline.timing import Stopwatch

if TYPE_CHECKING:
    from transformers import TrainingArguments

HISTORY_COLUMNS = ("step", "epoch", "split", "loss", "accuracy", "f1", "lr")


# Of `train.*`, what cannot change the weights: a run that was stopped resumes under another value.
_HARMLESS = ("dataloader_num_workers", "report_to", "save_steps")


def train(
    tokenized: Path,
    pretrained: Path,
    classifier: Path,
    metrics: Path,
    checkpoints: Path,
    params: TrainParams,
    fresh: bool = False,
) -> None:
    """Fine-tune `pretrained` on `tokenized/train.parquet`, scored each epoch on `tokenized/validation.parquet`.

    Writes the model directory `classifier`, and under `metrics` train.json, environment.json, plots/history.csv and
    timing.json. A run that was stopped left a checkpoint under `checkpoints`, and is resumed from it unless `fresh`.
    Raises UserError for a parameter or an input that the user can mend.
    """
    require(pretrained, "pretrained")
    require(tokenized, "tokenize")
    device = device_arguments(params.precision, params.num_threads)

    from pipeline.resume import own_directory, run_key

    surroundings = environment(params.precision)
    ingredients = {**surroundings, **asdict(params)}
    for name in _HARMLESS:
        del ingredients[name]
    # Around all that is written: the checkpoints go when nothing is left that a kill could lose.
    with own_directory(checkpoints, run_key(ingredients, [tokenized, pretrained])) as home:
        arguments = training_arguments(params, device, home)
        _fit(tokenized, pretrained, classifier, metrics, params, arguments, fresh)
        write_json(metrics / "environment.json", surroundings)


def _fit(
    tokenized: Path,
    pretrained: Path,
    classifier: Path,
    metrics: Path,
    params: TrainParams,
    arguments: "TrainingArguments",
    fresh: bool,
) -> None:
    from safetensors import SafetensorError
    from tqdm.contrib.logging import logging_redirect_tqdm
    from transformers import DataCollatorWithPadding, EarlyStoppingCallback, set_seed

    from pipeline.metrics import cross_entropy, paraphrase_metric
    from pipeline.resume import Checkpointing, epochs_until_stopped, newest
    from pipeline.tables import read_split
    from pipeline.trainer import PairTrainer, longest_first

    with whole(classifier) as draft:
        training = read_split(tokenized, "train", "tokenize")
        if params.max_train_samples is not None:
            training = training.select(range(min(params.max_train_samples, len(training))))
        validation = longest_first(read_split(tokenized, "validation", "tokenize"))
        names = training.features["labels"].names

        set_seed(params.seed)  # before the model: its new head is drawn at random
        model = load_classifier(
            pretrained,
            id2label=dict(enumerate(names)),
            label2id={name: label for label, name in enumerate(names)},
        )
        tokenizer = load_tokenizer(pretrained)
        metric = paraphrase_metric()

        def compute_metrics(scored: Any) -> dict[str, float]:
            predictions = scored.predictions.argmax(-1)
            scores = metric.compute(predictions=predictions, references=scored.label_ids)
            # The loss too: Trainer's own mean weighs every batch alike, however few pairs it has.
            loss = cross_entropy(scored.predictions, scored.label_ids)
            return {**scores, "loss": loss, "classes": len(set(predictions.tolist()))}

        trainer = PairTrainer(
            model=model,
            args=arguments,
            train_dataset=training,
            eval_dataset=validation,
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=None if arguments.use_cpu else 8),
            compute_metrics=compute_metrics,
        )
        if params.early_stopping_patience is not None:
            trainer.add_callback(EarlyStoppingCallback(params.early_stopping_patience))
        trainer.check_optimizer()
        effective_batch = params.batch_size * params.gradient_accumulation_steps
        steps = math.ceil(len(training) / effective_batch) * params.epochs
        log.info(
            "training on %d pairs, effective batch %d, %d epochs, %d steps",
            len(training), effective_batch, params.epochs, steps,
        )  # fmt: skip
        home = Path(str(arguments.output_dir))
        resumed = None if fresh else newest(home, keep_best=params.keep == "best")
        if resumed:
            log.info("resuming from %s", resumed)
            arguments.num_train_epochs = epochs_until_stopped(resumed) or params.epochs
        checkpointing = Checkpointing(trainer, home, params.save_steps, resumed)
        trainer.add_callback(checkpointing)
        with logging_redirect_tqdm(), checkpointing.signals(), Stopwatch() as watch:  # log lines stand above the bar
            result = trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
        try:
            model.save_pretrained(draft)
            tokenizer.save_pretrained(draft)
        except SafetensorError as error:  # its way of telling a full disk
            raise UserError(f"{classifier} cannot be written: {error}") from error

    history = trainer.state.log_history
    epochs = [entry for entry in history if "eval_f1" in entry]
    kept = max(epochs, key=lambda entry: entry["eval_f1"]) if params.keep == "best" else epochs[-1]
    degenerate = kept["eval_classes"] == 1
    if degenerate:
        log.warning(
            "DEGENERATE: this model gives every validation pair the same class, so its scores are those of no model at "
            "all; try another train.lr, more train.epochs or another train.seed"
        )
    write_json(
        metrics / "train.json",  # no clock in it: the same run gives the same bytes
        {
            "best_epoch": epochs.index(kept) + 1,
            "degenerate": degenerate,
            "effective_batch_size": effective_batch,
            "epochs_run": len(epochs),
            "steps": epochs[-1]["step"],
            "train_loss": result.training_loss,
        },
    )
    write_text(metrics / "plots" / "history.csv", history_csv(history))
    watch.write(metrics / "timing.json", "train", samples=len(training) * len(epochs))


def history_csv(history: list[dict[str, Any]]) -> str:
    """The learning curves from Trainer's log: a row for each logged step of training and each scoring of validation."""
    out = io.StringIO()
    writer = csv.DictWriter(out, HISTORY_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for entry in history:
        row = {"step": entry["step"], "epoch": round(entry["epoch"], 4)}
        if "loss" in entry:
            row |= {"split": "train", "loss": round(entry["loss"], 6), "lr": f"{entry['learning_rate']:.6g}"}
        elif "eval_loss" in entry:
            scores = {name: round(entry[f"eval_{name}"], 6) for name in ("loss", "accuracy", "f1")}
            row |= {"split": "validation", **scores}
        else:
            continue  # Trainer's summary of the run
        writer.writerow(row)
    return out.getvalue()


def main(fresh: bool = False) -> None:
    params = load_params()
    train(TOKENIZED, PRETRAINED, CLASSIFIER, METRICS, users_path(CHECKPOINTS), params.train, fresh)


if __name__ == "__main__":
    run(main, fresh="start anew, whatever checkpoints a stopped run has left")
