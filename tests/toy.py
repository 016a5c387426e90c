"""A toy pipeline with the stages and outputs of the real one, to test the commands that run experiments and read them.

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
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli import as_command
from pipeline.core.messages import UserError
from pipeline.core.output import write_json, write_text
from pipeline.core.paths import BASELINES, CLASSIFIER, METRICS_DIR, PREDICTIONS, PROVENANCE, RAW, users_path
from pipeline.core.task import Task
from pipeline.params import Params, load_params
from pipeline.sources.demo import DEMO
from pipeline.sources.glue import glue_task

if TYPE_CHECKING:
    from conftest import Project

if __name__ != "__main__":
    # Do not import it in a function: DVC logs to the stdout of its first import, and the stdout of a test is closed.
    from dvc.repo import Repo

STAGES = """\
stages:
  check:
    cmd: touch data/params_checked
    deps: [params.yaml, requirements.lock]
    outs: [data/params_checked]
  download:
    cmd: python -m pipeline.toy download
    deps: [pipeline/toy.py, data/params_checked, pipeline/core, data/custom]
    params: [data]
    outs: [data/raw]
  baseline:
    cmd: python -m pipeline.toy baseline
    deps: [pipeline/toy.py, pipeline/baseline.py, data/raw, data/tokenized, models/pretrained]
    params: [baseline, predict.max_samples]
    outs: [data/baseline]
  pretrained:
    cmd: echo a base model > models/pretrained
    deps: [pipeline/toy.py]
    params: [model]
    outs: [models/pretrained]
  tokenize:
    cmd: echo tokens > data/tokenized
    deps: [pipeline/toy.py, data/raw, models/pretrained]
    params: [tokenize]
    outs: [data/tokenized]
  train:
    cmd: python -m pipeline.toy train
    deps: [pipeline/toy.py, data/tokenized]
    params: [train]
    outs: [models/classifier]
    metrics:
      - metrics/train.json: {cache: false}
  predict:
    cmd: python -m pipeline.toy predict
    deps: [pipeline/toy.py, data/raw, models/classifier]
    params: [predict]
    outs: [data/predictions]
    metrics:
      - metrics/evaluation.json: {cache: false}
"""
ROWS = {"train": 512, "validation": 100, "test": 300}  # Train has no file.
HOSTILE = "| a <b>table</b> @everyone `code` [link](https://example.org) \x1b[31m\nand a line"


def task_by_name(name: str) -> Task:
    return DEMO if name in ("demo", "custom") else glue_task(name)


def download(params: Params) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    RAW.mkdir(parents=True, exist_ok=True)
    task = task_by_name(params.data.task)
    task.write(RAW)
    number, k = map(int, (params.data.split.fold or "1/1").split("/"))
    for split in task.predicted_splits:
        rows = [
            {"sentence1": f"{split} pair {i}", "sentence2": HOSTILE, "label": min(i % 3, 1), "idx": 2 * i, "leakage": 0}
            for i in range(ROWS[split])
        ]
        table = pa.Table.from_pylist(rows[number - 1 :: k] if split == "test" else rows)
        unknown = ["label"] if split in task.unlabeled_splits else []
        pq.write_table(table.drop_columns(unknown), RAW / f"{split}.parquet")
    splits = {split: {"rows": rows} for split, rows in ROWS.items()}
    write_json(RAW / "data_card.json", {"splits": splits, "leakage": [], "warnings": []})
    files = sorted(path.name for path in Path(params.data.directory).iterdir())
    write_json(RAW / "source.json", {"task": task.name, "files": files})


def train(params: Params) -> None:
    """Write a model and its validation score.

    Seeds 2 and 101 fail if lr > 1, and seed 102 fails with 4 epochs. The score is best with an lr of 1e-3 and with more
    epochs. warmup_ratio is the number of seconds per epoch. The checkpoint is the number of finished epochs.
    """
    train = params.train
    if (train.lr > 1 and train.seed in (2, 101)) or (train.epochs == 4 and train.seed == 102):
        raise UserError("the loss is not a number")
    checkpoint = users_path("models/.checkpoints") / f"{train.seed}-{train.lr}-{train.epochs}.txt"
    for epoch in range(int(checkpoint.read_text()) if checkpoint.exists() else 0, train.epochs):
        print(f"epoch {epoch + 1}/{train.epochs}: training loss 0.5", file=sys.stderr, flush=True)
        time.sleep(train.warmup_ratio)
        write_text(checkpoint, f"{epoch + 1}")
    checkpoint.unlink(missing_ok=True)
    CLASSIFIER.unlink(missing_ok=True)  # It may be a link into the cache.
    shutil.copy("params.yaml", CLASSIFIER)
    luck = random.Random(train.seed).random() / 100
    score = 0.9 - abs(math.log10(train.lr) + 3) / 10 - 0.1 / train.epochs + luck
    write_json(METRICS_DIR / "train.json", [{"score": round(score, 6), "metric_for_best_model": "f1"}])


def baseline(params: Params) -> None:
    """Write the predictions of a linear model, which is right on 70% of the pairs, and of a better frozen one."""
    for name, lr in {"linear": 0.0, "frozen": 5e-4}.items():
        train = params.train.model_copy(update={"lr": lr, "seed": 0, "training_args": {}})
        if name == "linear" or params.baseline.frozen:
            write_results(BASELINES / name, params.model_copy(update={"train": train}))


def predict(params: Params) -> None:
    """Write predictions and metrics."""
    from pipeline.evaluation.predictions import load_predictions

    write_results(PREDICTIONS, params)
    task = task_by_name(params.data.task)
    scored = {split: load_predictions(PREDICTIONS, split, task) for split in task.scored_splits}
    content = {split: {name: part.score(name) for name in task.metrics} for split, part in scored.items()}
    write_json(METRICS_DIR / "evaluation.json", content)


def write_results(directory: Path, params: Params) -> None:
    import numpy as np

    from pipeline.core.parquet import read_rows
    from pipeline.evaluation.predictions import write_predictions

    directory.mkdir(parents=True, exist_ok=True)
    train, task = params.train, task_by_name(params.data.task)
    task.write(directory)
    provenance = {
        "checkpoint": {"checkpoint": directory.name, "revision": "0" * 40},
        "data": json.loads((RAW / "source.json").read_text()),
        "environment": {"cpu": train.training_args.get("note", "a CPU"), "torch": "2.13.0"},
        "parameters": {"seed": train.seed},
    }
    (directory / PROVENANCE).write_text(json.dumps(provenance))
    gain = 1 / 8 - (train.max_train_samples or ROWS["train"]) ** -0.5
    for split in task.predicted_splits:
        examples = read_rows(RAW, split).slice(0, params.predict.max_samples)
        logits = []
        for row in examples.to_pylist():
            die, label = random.Random(f"{train.seed} {row['idx']}").random(), row.get("label", 0)
            if task.labels:
                prediction = label if die < 0.7 + 100 * train.lr + gain else 1 - label
                if train.epochs == 7 and train.seed == 2:
                    prediction = 1
                confidence = 0.5 + abs(die - 0.7) / 2
                logits.append([0, math.log(confidence / (1 - confidence)) * (1 if prediction else -1)])
            else:
                logits.append([label + (die - 0.5) * (1 - gain) / (1 + 1000 * train.lr)])
        write_predictions(directory / f"{split}.parquet", task, examples, np.array(logits, dtype=float))


def toy_project(base: Path) -> "Project":
    """Create a project with the toy pipeline and one committed result."""
    from conftest import Project

    root = base / "in a path with spaces"
    root.mkdir()
    project = Project(root, base / "no checkpoint", base / "home")
    shutil.copy(__file__, root / "pipeline")
    (root / "dvc.yaml").write_text(STAGES)
    for name in ("data/params_checked", "data/tokenized", "models/pretrained"):
        (root / name).touch()
    run_stages(project)
    project.commit("a result")
    return project


def run_stages(project: "Project") -> None:
    """Run the stages like `dvc repro --force`, but in this process and ten times faster."""
    params = load_params(project.root / "params.yaml")
    with chdir(project.root), Repo() as repo:  # DVC looks for the outputs in the working directory
        for out in (RAW, BASELINES, PREDICTIONS):
            shutil.rmtree(out, ignore_errors=True)
        for stage in (download, baseline, train, predict):
            stage(params)
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
    """Record an experiment as the commands would. overrides: train__lr="1e-3"."""
    base = project.git("rev-parse", "HEAD").strip()
    for key, value in overrides.items():
        project.set(key.replace("__", "."), value)
    run_stages(project)
    project.commit(name)
    project.git("update-ref", f"refs/exps/{base[:2]}/{base[2:]}/{name}", "HEAD")
    project.git("reset", "--quiet", "--hard", base)


if __name__ == "__main__":
    with as_command():
        globals()[sys.argv[1]](load_params())
