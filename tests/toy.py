"""A toy pipeline with the outputs of the real one, to test the commands that read results.

It has no model. A prediction is right if a random number, which depends on the seed and the pair, is below
0.7 + 100 lr. In a regression, the random number sets the error, which gets smaller with a higher lr. With more or fewer
training examples than 64, the toy is a bit better or worse. With 7 epochs, seed 2 always predicts the second class.
"""

import copy
import json
import math
import random
import shutil
import sys
import time
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.data_card import DATA_CARD, DataCard, SplitCard
from pipeline.core.output import write_json
from pipeline.core.paths import LINEAR, PREDICTIONS, PROVENANCE, RAW
from pipeline.core.task import Task
from pipeline.evaluation.metrics import scores
from pipeline.evaluation.predictions import load_predictions
from pipeline.evaluation.signature import signature
from pipeline.params import Params, load_params
from pipeline.sources.demo import DEMO
from pipeline.sources.glue import glue_task

if TYPE_CHECKING:
    from conftest import Project

if __name__ != "__main__":
    # Do not import it in a function: DVC logs to the stdout of its first import, and the stdout of a test is closed.
    from dvc.repo import Repo

DVC = """\
stages:
  check:
    cmd: touch data/params_checked
    deps: [params.yaml, requirements.lock]
    outs: [data/params_checked]
  download:
    cmd: python toy.py download
    deps: [toy.py, data/params_checked, pipeline/core]
    params: [data]
    outs: [data/raw]
  baseline:
    cmd: python toy.py baseline
    deps: [toy.py, data/raw]
    params: [predict.max_samples]
    outs: [data/baseline]
  train:
    cmd: python toy.py train
    deps: [toy.py, data/raw]
    params: [train]
    outs: [models/classifier]
    metrics:
      - metrics/train.json: {cache: false}
  predict:
    cmd: python toy.py predict
    deps: [toy.py, data/raw, models/classifier]
    outs: [data/predictions]
    metrics:
      - metrics/diagnostics.json: {cache: false}
      - metrics/evaluation.json: {cache: false}
"""
TRAIN_ROWS = 512  # in the data card; there are no training examples
HOSTILE = "| a <b>table</b> @everyone `code` [link](https://example.org) \x1b[31m\nand a line"


def download(root: Path, params: Params) -> None:
    """Write the corpus."""
    (root / RAW).mkdir(parents=True, exist_ok=True)
    task = task_by_name(params.data.task)
    task.write(root / RAW)
    card = DataCard(splits={"train": SplitCard(rows=TRAIN_ROWS)}, leakage=[], warnings=[])
    write_json(root / RAW / DATA_CARD, asdict(card))
    for split, n in (("validation", 100), ("test", 300)):
        rows = [
            {"idx": 2 * i, "label": min(i % 3, 1), "sentence1": f"{split} pair {i}", "sentence2": HOSTILE}
            for i in range(n)
        ]
        if split == "test" and params.data.split.fold:
            number, k = map(int, params.data.split.fold.split("/"))
            rows = rows[number - 1 :: k]
        if split in task.unlabeled_splits:
            rows = [{name: value for name, value in row.items() if name != "label"} for row in rows]
        pq.write_table(pa.Table.from_pylist(rows), root / RAW / f"{split}.parquet")


def task_by_name(name: str) -> Task:
    return DEMO if name == "demo" else glue_task(name)


def train(root: Path, params: Params) -> None:
    """Write a model and its validation score.

    Seeds 2 and 101 fail if lr > 1, and seed 102 fails with 4 epochs. The score is best with an lr of 1e-3 and with more
    epochs. warmup_ratio is the number of seconds per epoch.
    """
    train = params.train
    if (train.lr > 1 and train.seed in (2, 101)) or (train.epochs == 4 and train.seed == 102):
        sys.exit("error: the loss is not a number")
    for epoch in range(train.epochs):
        print(f"epoch {epoch + 1}/{train.epochs}: training loss 0.5", file=sys.stderr, flush=True)
        time.sleep(train.warmup_ratio)
    (root / "models").mkdir(exist_ok=True)
    (root / "models" / "classifier").unlink(missing_ok=True)  # it may be a link into the cache
    shutil.copy(root / "params.yaml", root / "models" / "classifier")
    (root / "metrics").mkdir(exist_ok=True)
    luck = random.Random(train.seed).random() / 100
    score = 0.9 - abs(math.log10(train.lr) + 3) / 10 - 0.1 / train.epochs + luck
    content = [{"score": round(score, 6), "metric_for_best_model": "f1"}]
    (root / "metrics" / "train.json").write_text(json.dumps(content))


def baseline(root: Path, params: Params) -> None:
    """Write the predictions of a linear model, which is right on 70% of the pairs."""
    linear = params.train.model_copy(update={"lr": 0.0, "seed": 0, "training_args": {}})
    write_predictions(root, LINEAR, params.model_copy(update={"train": linear}), "linear")


def predict(root: Path, params: Params) -> None:
    """Write predictions and metrics."""
    task, evaluation = task_by_name(params.data.task), {}
    write_predictions(root, PREDICTIONS, params)
    scored = {split: load_predictions(root / PREDICTIONS, split, task) for split in task.scored_splits}
    for split, rows in scored.items():
        evaluation[split] = scores(task.metrics, rows.labels, rows.predicted)
    diagnostics = {"signature": signature(root / PREDICTIONS, task, scored)}
    (root / "metrics").mkdir(exist_ok=True)
    for name, content in (("diagnostics", [diagnostics]), ("evaluation", evaluation)):
        (root / "metrics" / f"{name}.json").write_text(json.dumps(content))


def write_predictions(root: Path, directory: Path, params: Params, checkpoint: str = "a checkpoint") -> None:
    train = params.train
    (root / directory).mkdir(parents=True, exist_ok=True)
    task = task_by_name(params.data.task)
    task.write(root / directory)
    provenance = {
        "checkpoint": {"checkpoint": checkpoint, "revision": "0" * 40},
        "code": "0" * 16,
        "data": {"sha256": "0" * 64},
        "environment": {"cpu": train.training_args.get("note", "a CPU"), "torch": "2.13.0"},
        "parameters": {"seed": train.seed},
    }
    (root / directory / PROVENANCE).write_text(json.dumps(provenance))
    gain = 1 / 8 - (train.max_train_samples or TRAIN_ROWS) ** -0.5
    for split in ("validation", "test"):
        rows = []
        examples = pq.read_table(root / "data" / "raw" / f"{split}.parquet").to_pylist()
        for row in examples[: params.predict.max_samples]:
            die = random.Random(f"{train.seed} {row['idx']}").random()
            if task.labels:
                prediction = row["label"] if die < 0.7 + 100 * train.lr + gain else 1 - row["label"]
                if train.epochs == 7 and train.seed == 2:
                    prediction = 1
                confidence = 0.5 + abs(die - 0.7) / 2
                logits = {
                    "logit_0": 0.0,
                    "logit_1": math.log(confidence / (1 - confidence)) * (1 if prediction else -1),
                }
            else:
                prediction = row.get("label", 0) + (die - 0.5) * (1 - gain) / (1 + 1000 * train.lr)
                logits = {"logit_0": prediction}
            known = {name: row[name] for name in ("idx", "label") if name in row}
            rows.append({**known, "prediction": prediction, **logits})
        pq.write_table(pa.Table.from_pylist(rows), root / directory / f"{split}.parquet")


def toy_project(base: Path) -> "Project":
    """Create a project with the toy pipeline and one committed result."""
    from conftest import Project

    root = base / "in a path with spaces"
    root.mkdir()
    project = Project(root, base / "no checkpoint", base / "home")
    shutil.copy(__file__, root)
    (root / "dvc.yaml").write_text(DVC)
    (root / "data" / "params_checked").touch()
    run_stages(project)
    project.commit("a result")
    return project


def run_stages(project: "Project") -> None:
    """Run the stages like `dvc repro --force`, but in this process and ten times faster."""
    params = load_params(project.root / "params.yaml")
    with chdir(project.root), Repo() as repo:  # DVC looks for the outputs in the working directory
        for out in (RAW, LINEAR, PREDICTIONS):
            shutil.rmtree(out, ignore_errors=True)
        for stage in (download, baseline, train, predict):
            stage(project.root, params)
        repo.commit(force=True)


def restore(project: "Project") -> None:
    """Restore params.yaml and the outputs of the current commit."""
    project.git("checkout", "--quiet", ".")
    with chdir(project.root), Repo() as repo:
        repo.checkout(force=True)


def copy_of(project: "Project", base: Path) -> "Project":
    """Copy a project with its repository and cache, in a fraction of the time that a new one takes."""
    duplicate = copy.copy(project)
    duplicate.root = base / project.root.name
    shutil.copytree(project.root, duplicate.root, symlinks=True)
    return duplicate


def experiment(project: "Project", name: str, **overrides: str) -> None:
    """Record an experiment as `dvc exp run --temp --name` would. overrides: train__lr="1e-3"."""
    base = project.git("rev-parse", "HEAD").strip()
    for key, value in overrides.items():
        project.set(key.replace("__", "."), value)
    run_stages(project)
    project.commit(name)
    project.git("update-ref", f"refs/exps/{base[:2]}/{base[2:]}/{name}", "HEAD")
    project.git("reset", "--quiet", "--hard", base)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(), load_params())
