"""Write all inputs of the report stage for each kind of task. The evaluate stage computes the metrics."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from demo_pairs import pairs

from pipeline.core.output import write_details, write_json
from pipeline.core.paths import BASELINES, METRICS_DIR, PREDICTIONS, PROVENANCE, RAW, TOKENIZATION, TOKENIZED
from pipeline.core.task import LEAKAGE, Task
from pipeline.evaluate import evaluate
from pipeline.evaluation.predictions import write_predictions
from pipeline.params import load_params
from pipeline.report import report
from pipeline.reporting.results import Results, load_results
from pipeline.sources.data_card import DATA_CARD, DataCard, Leak, SplitCard
from pipeline.sources.demo import DEMO
from pipeline.sources.glue import glue_task

SIZES = {"train": 200, "validation": 60, "test": 120, "validation_mismatched": 40, "test_mismatched": 20}
ATTACK = "<script>document.title = 'taken'</script> </script><img src=x onerror=\"document.title = 'taken'\">"
HOSTILE = (f"{ATTACK} {{{{ 7 * 7 }}}} <!-- &amp; ' \"", "<style>* {{ display: none }}</style> " + "unbroken" * 30)
WARNINGS = ["train: duplicates of earlier rows: 2 (idx 3, 7)", f"test: rows that are also in train: 1 (idx 0) {ATTACK}"]
_SINGLE: dict[str, Any] = {"name": "custom", "problem_type": "single_label_classification", "text_columns": ["text"]}
TASKS = {
    "pairs": DEMO,
    "mismatched": glue_task("mnli"),
    "classes": Task(
        labels=[f"topic {number} of the forum" for number in range(20)], slice_columns=["source", "Source"],
        metrics=["accuracy", "f1_macro", "matthews_correlation"], metric_for_best_model="f1_macro",
        predicted_splits=["validation", "test"], **_SINGLE,
    ),
    "multi_label": Task(
        name="custom", problem_type="multi_label_classification", text_columns=["question", "answer"],
        labels=["rude", "off_topic", "spam"], metrics=["f1_micro", "f1_macro", "accuracy"],
        metric_for_best_model="f1_micro", predicted_splits=["validation"],
    ),
    "regression": Task(
        name="custom", problem_type="regression", text_columns=["one", "two"], labels=[], slice_columns=["source"],
        metrics=["pearson", "spearmanr", "rmse"], metric_for_best_model="pearson",
        predicted_splits=["validation", "test"],
    ),
    "rare": Task(
        labels=["ordinary", "urgent"], metrics=["balanced_accuracy", "f1"], metric_for_best_model="f1",
        predicted_splits=["validation", "test"], **_SINGLE,
    ),
}  # fmt: skip


def write(path: Path, content: dict[str, Any] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def labels_and_logits(task: Task, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a classifier that is right on about five of six rows, or a regression with small errors."""
    labels: np.ndarray
    if task.is_regression:
        labels = rng.uniform(0, 5, n).round(1)
        return labels, (labels + rng.normal(scale=0.5, size=n)).round(3)[:, None]
    classes = len(task.labels)
    if task.is_multi_label:
        labels = (rng.random((n, classes)) < 0.3).astype(np.int64)
        predicted = np.where(rng.random(labels.shape) < 0.8, labels, 1 - labels)
        return labels, (np.where(predicted == 1, 1, -1) * rng.uniform(0.1, 3, labels.shape)).round(3)
    labels = rng.integers(0, classes, n)
    if "urgent" in task.labels:
        labels = (np.arange(n) % 20 == 1).astype(np.int64)
    predicted = np.where(rng.random(n) < 0.8, labels, rng.integers(0, classes, n))
    return labels, (rng.normal(scale=0.8, size=(n, classes)) + 3 * np.eye(classes)[predicted]).round(3)


def history(task: Task, loss: tuple[float, ...], score: tuple[float, ...]) -> str:
    """Return history.csv with these validation losses and scores after the epochs."""
    names = list(dict.fromkeys(["score", *task.metrics]))
    rows = [f"step,epoch,split,loss,{','.join(names)},lr"]
    for epoch, (loss_of_epoch, score_of_epoch) in enumerate(zip(loss, score, strict=True)):
        for half in (1, 2):
            train_loss = round(0.7 * 0.8 ** (epoch + half / 2), 4)
            rows.append(f"{4 * epoch + 2 * half},{epoch + half / 2},train,{train_loss},{',' * len(names)}1e-05")
        scores = f"{score_of_epoch}," * len(names)
        rows.append(f"{4 * epoch + 4},{epoch + 1}.0,validation,{loss_of_epoch},{scores}")
    return "\n".join(rows) + "\n"


def write_inputs(root: Path, case: str = "pairs", sizes: dict[str, int] = SIZES, **changes: Any) -> None:
    """Write the inputs.

    The first row of each split has hostile text. It is also the most confident mistake of a classifier.
    """
    task, rng = replace(TASKS[case], **changes), np.random.default_rng(0)
    examples = pairs(sum(sizes.values()))
    for directory in (RAW, BASELINES / "linear", BASELINES / "frozen", PREDICTIONS):
        (root / directory).mkdir(parents=True)
        task.write(root / directory)
    cards = {}
    for split in task.splits:
        n = sizes[split]
        texts = [HOSTILE, *([next(examples)[:2] for _ in range(n - 1)])]
        labels, logits = labels_and_logits(task, n, rng)
        if task.is_single_label:
            labels[0], logits[0] = 0, [-7, 0, *[-12] * (len(task.labels) - 2)]
        columns: dict[str, Any] = {"label": labels.tolist(), "idx": np.arange(n, dtype=np.int32)}
        columns |= {name: [row[number] for row in texts] for number, name in enumerate(task.text_columns)}
        for name in task.slice_columns:
            columns[name] = [f"site {site} {ATTACK if site == 0 else ''}" for site in rng.integers(0, 30, n)]
        if split != "train":
            columns[LEAKAGE] = np.arange(n, dtype=np.int8) % 3
        counts: list[int] = []
        numbers: dict[str, float] = {}
        if split in task.unlabeled_splits:
            del columns["label"]
        elif task.is_regression:
            numbers = {name: float(getattr(np, name)(labels)) for name in ("mean", "std", "min", "max")}
        elif task.is_single_label:
            counts = np.bincount(labels, minlength=len(task.labels)).tolist()
        else:
            counts = labels.sum(axis=0).tolist()
        rows = pa.table(columns)
        pq.write_table(rows, root / RAW / f"{split}.parquet")
        cards[split] = SplitCard(rows=n, labels=counts, numbers=numbers, repeated=2)
        if split != "train":
            write_predictions(root / PREDICTIONS / f"{split}.parquet", task, rows, logits)
            weaker = np.where(rng.random((n, 1)) < 0.5, logits, rng.permutation(logits))
            for model in ("linear", "frozen"):
                write_predictions(root / BASELINES / model / f"{split}.parquet", task, rows, weaker)
    leakage = [Leak(later=split, earlier="train", rows=1, texts=3) for split in task.predicted_splits]
    write_json(root / RAW / DATA_CARD, asdict(DataCard(splits=cards, leakage=leakage, warnings=WARNINGS)))
    parameters = {"keep": "best", "seed": 42, "lr": 3e-05, "batch_size": 16, "epochs": 3, "max_train_samples": None}
    provenance = {
        "checkpoint": {"checkpoint": "a local directory", "revision": None},
        "code": "0123456789abcdef",
        "data": {"task": task.name, "sha256": dict.fromkeys(task.splits, "0f" * 32)},
        "environment": {"torch": "2.13.0", "threads": 2, "processes": 1, "precision": "bf16"},
        "parameters": parameters,
    }
    write(root / PREDICTIONS / PROVENANCE, provenance)
    write(root / METRICS_DIR / "plots" / "history.csv", history(task, (0.6, 0.5, 0.52), (0.8, 0.87, 0.85)))
    training: dict[str, Any] = {
        "kept_epoch": 2, "degenerate": False, "effective_batch_size": 16, "epochs": 3, "epochs_run": 3,
    }  # fmt: skip
    training |= {"metric_for_best_model": task.metric_for_best_model, "steps": 12}
    write_details(root / METRICS_DIR / "train.json", training)
    lengths = {split: {"rows": sizes[split], "mean": 30.25, "longest": 52, "truncated": 7} for split in task.splits}
    tokenization = {"max_length": 96, "stride": None, "pair_separator": "", "splits": lengths}
    write(root / TOKENIZED / TOKENIZATION, tokenization)
    evaluate_inputs(root)


def evaluate_inputs(root: Path, metrics: list[str] | None = None) -> None:
    """Run the stage evaluate, with `metrics` as evaluate.metrics."""
    evaluate(root / RAW, root / PREDICTIONS, root / BASELINES, root / METRICS_DIR, metrics)


def load(root: Path) -> Results:
    return load_results(root / RAW, root / TOKENIZED, root / PREDICTIONS, root / METRICS_DIR, "demo", "stratify")


def make_report(root: Path, name: str | None = None) -> str:
    """Run the stage report with `name` as data.name, and return the page."""
    params = load_params(Path(__file__).with_name("params.yaml")).data.model_copy(update={"name": name})
    report(root / RAW, root / TOKENIZED, root / PREDICTIONS, root / METRICS_DIR, params)
    return (root / METRICS_DIR / "report.html").read_text()
