"""`make demo`: on the embedded corpus a fine-tuned model beats word overlap."""

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, committed, sections
from test_demo_corpus import best_threshold_accuracy, overlap

from pipeline.params import ModelParams, load_params
from pipeline.predict import predict
from pipeline.pretrained import pretrained
from pipeline.tokenize_data import tokenize
from pipeline.train import train


@pytest.mark.slow  # 50 seconds on two cores
def test_the_demos_model_beats_every_threshold_on_word_overlap(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(committed("params.yaml"))  # the demo runs in a clone of HEAD
    params = load_params(tmp_path / "params.yaml")
    settings = dict(re.findall(r"--set-param train\.(\w+)=(\S+)", (ROOT / "Makefile").read_text()))
    threads = 1  # other tests run beside
    numbers = {"lr": float(settings["lr"]), "epochs": int(settings["epochs"]), "num_threads": threads}
    demo = sections(params, metric_for_best_model=None, class_weights=None, **numbers)
    checkpoint, tokenized, classifier = tmp_path / "pretrained", tmp_path / "tokenized", tmp_path / "classifier"
    pretrained(checkpoint, ModelParams(checkpoint="sentence-transformers/all-MiniLM-L6-v2"))
    tokenize(raw, checkpoint, tokenized, params.tokenize, 1)
    train(tokenized, checkpoint, classifier, tmp_path, tmp_path, *demo)
    predict(tokenized, classifier, tmp_path / "predictions", tmp_path, params.predict, params.train.precision, threads)
    rows = pq.read_table(tmp_path / "predictions" / "test.parquet").to_pylist()
    pairs = pq.read_table(raw / "test.parquet").to_pylist()
    accuracy = np.mean([row["prediction"] == row["label"] for row in rows])
    shared = np.array([overlap(pair["sentence1"], pair["sentence2"]) for pair in pairs])
    labels = np.array([pair["label"] for pair in pairs])
    assert accuracy > best_threshold_accuracy(shared, labels) + 0.15
