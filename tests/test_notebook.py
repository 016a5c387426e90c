"""The datasets and the Trainer of the pipeline work in a notebook, with the usual methods of the Trainer."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import TinyMaker, predict_splits, read_history, read_logits, sections, train_model
from datasets import load_from_disk
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

from pipeline.core.task import read_task
from pipeline.evaluate import evaluate
from pipeline.modeling.device import Device
from pipeline.params import Params
from pipeline.training.arguments import training_arguments
from pipeline.training.losses import SummedLoss
from pipeline.training.sampler import EpochSampler
from pipeline.training.trainer import CorrectedTrainer
from pipeline.training.validation import compute_metrics


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, tiny: TinyMaker, raw: Path, tokenized: Callable[..., Path]
) -> Path:
    """Run the stages from train to evaluate, and return the directory of their outputs."""
    root = tmp_path_factory.mktemp("results")
    (root / "tokenized").symlink_to(tokenized(tiny()))
    train_model(root / "tokenized", tiny(), root, epochs=2, max_train_samples=320, lr=3e-3, keep="last")
    predictions = predict_splits(raw, root / "tokenized", root)
    baselines = root / "baselines"
    shutil.copytree(predictions, baselines / "linear")
    evaluate(raw, predictions, baselines, root / "metrics")
    return root


@pytest.fixture(scope="module")
def trainer(results: Path, params: Params) -> CorrectedTrainer:
    task = read_task(results / "tokenized")
    settings = sections(params)
    examples = load_from_disk(results / "tokenized" / "train")
    lengths = examples.with_format("numpy")["length"][:]
    tokenizer = AutoTokenizer.from_pretrained(results / "classifier")
    return CorrectedTrainer(
        model=AutoModelForSequenceClassification.from_pretrained(results / "classifier"),
        args=training_arguments(*settings, Device("cpu", "fp32"), results / "notebook", task),
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=examples,
        eval_dataset=load_from_disk(results / "tokenized" / "validation"),
        processing_class=tokenizer,
        compute_metrics=lambda scored: compute_metrics(task, scored.predictions, scored.label_ids),
        summed_loss=SummedLoss(task.problem_type, None, 1.0),
        sampler=EpochSampler(np.arange(len(examples)), lengths, effective_batch=16, seed=0),
    )


def test_evaluate_gives_the_metrics_of_the_stages(trainer: CorrectedTrainer, results: Path) -> None:
    scores = trainer.evaluate()
    expected = json.loads((results / "metrics" / "evaluation.json").read_text())["validation"]
    task = read_task(results / "tokenized")
    for name in (*task.metrics, "loss"):
        assert scores[f"eval_{name}"] == pytest.approx(expected[name], abs=1e-5)
    last = [row for row in read_history(results) if row["split"] == "validation"][-1]
    assert scores["eval_loss"] == pytest.approx(float(last["loss"]), abs=1e-5)
    assert scores[f"eval_{task.metric_for_best_model}"] == pytest.approx(
        json.loads((results / "metrics" / "train.json").read_text())[0]["score"], abs=1e-5
    )


def test_predict_keeps_the_order_of_the_examples(trainer: CorrectedTrainer, results: Path) -> None:
    logits = trainer.predict(load_from_disk(results / "tokenized" / "test")).predictions
    assert len(np.unique(logits.round(5), axis=0)) > len(logits) / 2, "most logits must be distinct"
    np.testing.assert_allclose(logits, read_logits(results / "predictions" / "test.parquet"), atol=1e-5)
