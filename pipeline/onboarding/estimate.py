"""Estimate the time and the disk space of a run from a few training steps on this machine."""

import json
import logging
import math
import shutil
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from pipeline.core.data_card import MAX_TRUNCATED, read_data_card
from pipeline.core.dataset_files import read_parquet
from pipeline.core.messages import UserError, log
from pipeline.core.output import write_text
from pipeline.core.paths import PRETRAINED, RAW, SOURCE, TOKENIZED
from pipeline.core.task import TRAIN, Task, read_task
from pipeline.modeling.device import set_up_device
from pipeline.onboarding.params_file import edit_values
from pipeline.onboarding.trial import run_stage
from pipeline.params import PARAMS, Params
from pipeline.sources.checkpoints import find_checkpoint, needs_download, parse_name
from pipeline.training.history import History
from pipeline.training.inputs import load_inputs
from pipeline.training.trainer import fit

_STEPS = 10
_SECONDS = 10  # After this time, the measurement ends, even if it has fewer steps.
_FORWARD = 1 / 3  # A forward pass is about a third of a training step.
_START = 40  # seconds, to start the stages and to write their outputs; 42 were measured on two cores
_CHECKPOINTS = 3  # at most, each with the weights and two values of AdamW for each weight


class _Measured(Exception):
    """Ends the measurement."""


def describe_costs(directory: Path, params: Params, small_model: str) -> str:
    """Time a few training steps with rows of the data, and say what a run costs, or why this is not known.

    Args:
        directory: A directory in which the stage download ran. Other files are written there, too.
        small_model: The base model to time if the one in params.yaml is not on this machine. Nothing is downloaded.
    """
    checkpoint, explanation = params.model.checkpoint, ""
    try:
        pretrained = _local_model(directory, checkpoint)
        if pretrained is None:
            explanation = f'The base model {checkpoint} is not on this machine. "dvc repro" downloads it. '
            text = (directory / PARAMS).read_text(encoding="utf-8")
            write_text(directory / PARAMS, edit_values(text, {"model.checkpoint": small_model}))
            pretrained = _local_model(directory, small_model)
            if pretrained is None:
                return f"{explanation}The time of a run is not estimated."
            explanation += f"With {small_model}: "
        return explanation + _measure(directory, pretrained, params)
    except UserError as error:
        return f"{explanation}The time of a run is not estimated: {error}"


def _measure(directory: Path, pretrained: Path, params: Params) -> str:
    """Time a few training steps, and describe the costs of a run. Raises UserError if the run would fail."""
    task, card = read_task(directory / RAW, "download"), read_data_card(directory / RAW)
    tokenized = _tokenize_sample(directory, pretrained, params)
    step_seconds = _time_steps(directory, tokenized, pretrained, task, params)
    train, model = params.train, sum(path.stat().st_size for path in pretrained.glob("model*.safetensors"))
    examples = min(card.splits[TRAIN].rows, train.max_train_samples or card.splits[TRAIN].rows)
    batch = train.batch_size * train.gradient_accumulation_steps
    steps = math.ceil(examples / batch) * train.epochs
    orders = 2 if task.pairs and params.predict.score_swapped_pairs else 1
    sizes = [card.splits[split].rows for split in task.predicted_splits]
    predicted = sum(min(rows, params.predict.max_samples or rows) for rows in sizes)
    scored = train.epochs * card.splits["validation"].rows + orders * predicted
    minutes = max(1, round((_START + step_seconds * (steps + _FORWARD * scored / batch)) / 60))
    duration = f"{minutes / 60:.0f} hours" if minutes >= 100 else f"{minutes} minute{'s' if minutes > 1 else ''}"
    # The base model and the fine-tuned model are in the workspace and in DVC's cache.
    remaining, peak = 4 * model, (4 + 3 * _CHECKPOINTS) * model
    return (
        f"A run takes about {duration} on this machine: {steps:,} optimizer steps of {step_seconds:.2g} seconds each, "
        f"scoring, and the start of the stages. It needs up to {peak / 1e9:.1f} GB of disk space for models and "
        f"checkpoints, and uses {remaining / 1e9:.1f} GB afterwards. {shutil.disk_usage(Path()).free / 1e9:.0f} GB are "
        f"free.{_describe_truncation(tokenized, task, params)}"
    )


def _describe_truncation(tokenized: Path, task: Task, params: Params) -> str:
    """Return a paragraph if the model cannot read many of the sampled texts to their end, and otherwise nothing."""
    lengths = json.loads((tokenized / "lengths.json").read_text(encoding="utf-8"))[TRAIN]
    truncated = lengths["truncated"] / lengths["rows"]
    if truncated <= MAX_TRUNCATED:
        return ""
    return (
        f"\n\nAbout {truncated:.0%} of the {task.noun} are longer than tokenize.max_length "
        f"({params.tokenize.max_length} tokens), so the model would not read their ends. To read more, raise "
        "tokenize.max_length in params.yaml, up to the limit of the model."
    )


def _local_model(directory: Path, checkpoint: str) -> Path | None:
    """Return the directory of a base model, or None if it would have to be downloaded."""
    origin = find_checkpoint(checkpoint)
    if not isinstance(origin, Path) and (PRETRAINED / SOURCE).exists():  # An earlier run may have fetched it.
        source = json.loads((PRETRAINED / SOURCE).read_text(encoding="utf-8"))
        if (source.get("checkpoint"), source.get("revision")) == (parse_name(checkpoint)[0], origin.revision):
            return PRETRAINED
    if needs_download(checkpoint):
        return None
    run_stage("pretrained", directory, HF_HUB_OFFLINE="1", DVC_ROOT=str(Path().absolute()))
    return directory / PRETRAINED


def _tokenize_sample(directory: Path, pretrained: Path, params: Params) -> Path:
    """Tokenize some rows of train, and return the directory for `load_inputs`.

    The validation split is only there because `load_inputs` needs one.
    """
    sample = directory / "sample"
    (sample / "models").mkdir(parents=True)
    (sample / PRETRAINED).symlink_to(pretrained.absolute())
    shutil.copytree(directory / RAW, sample / RAW, ignore=shutil.ignore_patterns("*.parquet"))
    shutil.copy(directory / "params.yaml", sample)
    # With one batch more than steps to measure, no epoch ends, so nothing is scored.
    count = (_STEPS + 1) * params.train.batch_size * params.train.gradient_accumulation_steps
    for path in (directory / RAW).glob("*.parquet"):
        rows = read_parquet(directory / RAW, path.stem, "download", sample / "cache")
        chosen = np.random.default_rng(0).integers(len(rows), size=count if path.stem == TRAIN else 1)
        rows.select(chosen).to_parquet(sample / RAW / path.name)
    run_stage("tokenize_data", sample)
    return sample / TOKENIZED


def _time_steps(directory: Path, tokenized: Path, pretrained: Path, task: Task, params: Params) -> float:
    """Return the seconds per optimizer step."""
    times: list[float] = []

    def record(history: History) -> None:
        times.append(time.perf_counter())
        if len(times) > _STEPS or times[-1] - times[0] > _SECONDS:
            raise _Measured

    settings = params.train.model_copy(update={"logging_steps": 1, "max_train_samples": None, "class_weights": None})
    # The measurement ends before the first checkpoint.
    runtime = params.runtime.model_copy(
        update={"report_to": "none", "dataloader_num_workers": 0, "save_steps": _STEPS + 1}
    )
    level = log.level
    log.setLevel(logging.ERROR)  # Hide the log of training.
    try:
        device = set_up_device(settings.precision, settings.num_threads)
        inputs = load_inputs(task, tokenized, pretrained, settings, device)
        times.append(time.perf_counter())
        with suppress(_Measured):
            fit(inputs, directory / "checkpoints", settings, runtime, record)
    finally:
        log.setLevel(level)
    durations = np.diff(times)
    return float(np.mean(durations[1:] if len(durations) > 1 else durations))  # The first step is slower.
