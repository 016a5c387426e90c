"""Write all inputs of the report stage for each type of task. The evaluate stage computes the metrics."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from demo_pairs import pairs

from pipeline.core.data_card import DATA_CARD, LEAKAGE, DataCard, Leak, SplitCard
from pipeline.core.output import write_details, write_json
from pipeline.core.paths import LINEAR, METRICS_DIR, PREDICTIONS, PROVENANCE, RAW, TOKENIZATION, TOKENIZED
from pipeline.core.task import Task
from pipeline.evaluate import evaluate
from pipeline.evaluation.prediction_files import write_predictions
from pipeline.params import load_params
from pipeline.report import report
from pipeline.sources.demo import DEMO
from pipeline.sources.glue import glue_task

SIZES = {"train": 60, "validation": 30, "test": 60, "validation_mismatched": 40, "test_mismatched": 20}
ATTACK = "<script>document.title = 'taken'</script> </script><img src=x onerror=\"document.title = 'taken'\">"
HOSTILE = (f"{ATTACK} {{{{ 7 * 7 }}}} <!-- &amp; ' \"", "<style>* {{ display: none }}</style> " + "unbroken" * 30)
WARNINGS = ["train: duplicates of earlier rows: 2 (idx 3, 7)", f"test: rows that are also in train: 1 (idx 0) {ATTACK}"]
TASKS = {
    "pairs": DEMO,
    "text": glue_task("cola"),
    "mismatched": glue_task("mnli"),
    "classes": Task(
        name="custom", problem_type="single_label_classification", text_columns=["text"],
        labels=[f"topic {number} of the forum" for number in range(20)],
        metrics=["accuracy", "f1_macro", "matthews_correlation"], metric_for_best_model="f1_macro",
        predicted_splits=["validation", "test"], slice_columns=["source", "Source"],
    ),
    "multi_label": Task(
        name="custom", problem_type="multi_label_classification", text_columns=["question", "answer"],
        labels=["rude", "off_topic", "spam"], metrics=["f1_micro", "f1_macro", "accuracy"],
        metric_for_best_model="f1_micro", predicted_splits=["validation"],
    ),
    "regression": Task(
        name="custom", problem_type="regression", text_columns=["one", "two"], labels=[],
        metrics=["pearson", "spearmanr", "rmse"], metric_for_best_model="pearson",
        predicted_splits=["validation", "test"],
        slice_columns=["source"],
    ),
}  # fmt: skip


def write(path: Path, content: dict[str, Any] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def labels_and_logits(task: Task, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a classifier that is right on about three of four rows, or a regression with small errors."""
    if task.problem_type == "regression":
        labels = rng.uniform(0, 5, n).round(1)
        return labels, (labels + rng.normal(scale=0.5, size=n)).round(3)[:, None]
    if task.problem_type == "multi_label_classification":
        labels = (rng.random((n, len(task.labels))) < 0.3).astype(np.int64)
        predicted = np.where(rng.random(labels.shape) < 0.8, labels, 1 - labels)
        return labels, (np.where(predicted == 1, 1, -1) * rng.uniform(0.1, 3, labels.shape)).round(3)
    labels = rng.integers(0, len(task.labels), n)
    predicted = np.where(rng.random(n) < 0.75, labels, rng.integers(0, len(task.labels), n))
    return labels, (rng.normal(size=(n, len(task.labels))) + 4 * np.eye(len(task.labels))[predicted]).round(3)


def history(task: Task) -> str:
    """Return history.csv for two epochs. The second one is better by seven points."""
    values_by_epoch = {"loss": (0.6, 0.5), **dict.fromkeys(task.metrics, (0.8, 0.87))}
    values_by_epoch["score"] = values_by_epoch[task.metric_for_best_model]
    names = list(values_by_epoch)
    rows = [f"step,epoch,split,{','.join(names)},lr"]
    for epoch, losses in enumerate(((0.69, 0.61), (0.5, 0.4))):
        for half, loss in enumerate(losses):
            rows.append(
                f"{4 * epoch + 2 * half + 2},{epoch + half / 2 + 0.5},train,{loss},{',' * (len(names) - 1)}1e-05"
            )
        scores = ",".join(str(values[epoch]) for values in values_by_epoch.values())
        rows.append(f"{4 * epoch + 4},{epoch + 1}.0,validation,{scores},")
    return "\n".join(rows) + "\n"


def write_inputs(root: Path, case: str = "pairs", sizes: dict[str, int] = SIZES, **changes: Any) -> None:
    """Write the inputs.

    The first row of each split has hostile text. It is also the most confident mistake of a classifier.
    """
    task, rng = replace(TASKS[case], **changes), np.random.default_rng(0)
    examples = pairs(sum(sizes.values()))
    for directory in (RAW, LINEAR, PREDICTIONS):
        (root / directory).mkdir(parents=True)
        task.write(root / directory)
    cards = {}
    for split in task.splits:
        n = sizes[split]
        rows = [HOSTILE, *([next(examples)[:2] for _ in range(n - 1)])]
        labels, logits = labels_and_logits(task, n, rng)
        if task.problem_type == "single_label_classification":
            labels[0], logits[0] = 0, [-7, 0, *[-12] * (len(task.labels) - 2)]
        columns: dict[str, Any] = {"label": labels, "idx": np.arange(n, dtype=np.int32)}
        columns |= {name: [row[number] for row in rows] for number, name in enumerate(task.text_columns)}
        for name in task.slice_columns:
            columns[name] = [f"site {site} {ATTACK if site == 0 else ''}" for site in rng.integers(0, 30, n)]
        if split != "train":
            columns[LEAKAGE] = np.arange(n, dtype=np.int8) % 3
        counts: list[int] = []
        numbers: dict[str, float] = {}
        if split in task.unlabeled_splits:
            del columns["label"]
        elif task.problem_type == "regression":
            numbers = {name: float(getattr(np, name)(labels)) for name in ("mean", "std", "min", "max")}
        elif task.problem_type == "single_label_classification":
            counts = np.bincount(labels, minlength=len(task.labels)).tolist()
        else:
            counts = labels.sum(axis=0).tolist()
        Dataset.from_dict(columns).to_parquet(root / RAW / f"{split}.parquet")
        cards[split] = SplitCard(rows=n, labels=counts, numbers=numbers, repeated=2)
        if split == "train":
            continue
        known_labels = columns.get("label")
        write_predictions(root / PREDICTIONS, split, task, columns["idx"], known_labels, logits)
        weaker = np.where(rng.random((n, 1)) < 0.5, logits, rng.permutation(logits))
        write_predictions(root / LINEAR, split, task, columns["idx"], known_labels, weaker)
    card = DataCard(
        splits=cards,
        leakage=[Leak(later=split, earlier="train", rows=1, texts=3) for split in task.predicted_splits],
        warnings=WARNINGS,
    )
    write_json(root / RAW / DATA_CARD, asdict(card))
    provenance = {
        "checkpoint": {"checkpoint": "a local directory", "revision": None},
        "code": "0123456789abcdef",
        "data": {"task": task.name, "sha256": dict.fromkeys(task.splits, "0f" * 32)},
        "environment": {"torch": "2.13.0", "threads": 2, "processes": 1, "precision": "bf16"},
        "parameters": {
            "keep": "best", "seed": 42, "lr": 3e-05, "batch_size": 16, "gradient_accumulation_steps": 1, "epochs": 3,
            "precision": "auto", "max_train_samples": None, "training_args": {"label_smoothing_factor": 0.1},
        },
    }  # fmt: skip
    write(root / PREDICTIONS / PROVENANCE, provenance)
    evaluate(root / RAW, root / PREDICTIONS, root / LINEAR, root / METRICS_DIR)
    write(root / METRICS_DIR / "plots" / "history.csv", history(task))
    training = {"kept_epoch": 2, "degenerate": False, "effective_batch_size": 16, "epochs": 3, "epochs_run": 2}
    training |= {"metric_for_best_model": task.metric_for_best_model}
    write_details(root / METRICS_DIR / "train.json", {**training, "steps": 8})
    lengths = {split: {"rows": sizes[split], "mean": 30.25, "longest": 52, "truncated": 7} for split in task.splits}
    write(root / TOKENIZED / "lengths.json", lengths)
    write(root / TOKENIZED / TOKENIZATION, {"max_length": 96, "pair_separator": ""})


def make_report(root: Path, name: str | None = None) -> str:
    """Run the report stage with `name` as data.name, and return the page."""
    params = load_params(Path(__file__).with_name("params.yaml")).data.model_copy(update={"name": name})
    report(root / RAW, root / TOKENIZED, root / PREDICTIONS, root / METRICS_DIR, params)
    return (root / METRICS_DIR / "report.html").read_text()


def evaluate_and_report(root: Path, metrics: list[str] | None = None, name: str | None = None) -> str:
    """Run the stages evaluate, with `metrics` as evaluate.metrics, and report, and return the page."""
    evaluate(root / RAW, root / PREDICTIONS, root / LINEAR, root / METRICS_DIR, metrics)
    return make_report(root, name)
