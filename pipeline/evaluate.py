"""Stage evaluate: accuracy, F1 and loss of the predictions, and the data of the plots."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.metrics import Floats, Ints, cross_entropy, score
from pipeline.stage import METRICS, PREDICTIONS, SCORED, log, run, write_json, write_text


def evaluate(predictions: Path, metrics: Path) -> None:
    """Write `metrics/evaluation.json`, and under `metrics/plots` confusion, precision-recall and ROC data.

    Raises UserError where the predictions are missing.
    """
    from pipeline.tables import read_split

    report = {}
    precision_recall, roc = [], []
    for split in SCORED:
        table = read_split(predictions, split, "predict")
        names = table.features["label"].names
        labels, predicted = np.asarray(table["label"]), np.asarray(table["prediction"])
        logits = np.column_stack([table["logit_0"], table["logit_1"]])
        majority = int(np.mean(labels) >= 0.5)
        baseline = score(labels, np.full_like(labels, majority))
        report[split] = {
            **score(labels, predicted),
            "loss": cross_entropy(logits, labels),
            "majority_accuracy": baseline["accuracy"],
            "majority_f1": baseline["f1"],
            "n": len(labels),
        }
        _write_csv(
            metrics / "plots" / f"confusion_{split}.csv",
            ("actual", "predicted"),
            ((names[label], names[prediction]) for label, prediction in zip(labels, predicted, strict=True)),
        )
        counts = operating_points(labels, np.asarray(table["probability"]))
        precision_recall += [(split, *point) for point in precision_recall_curve(*counts)]
        roc += [(split, *point) for point in roc_curve(*counts)]
        log.info(
            "%s: accuracy %.4f, f1 %.4f (always %s: %.4f, %.4f), %d pairs",
            split, *score(labels, predicted).values(), names[majority], *baseline.values(), len(labels),
        )  # fmt: skip
    _write_csv(metrics / "plots" / "precision_recall.csv", ("split", "recall", "precision"), precision_recall)
    _write_csv(metrics / "plots" / "roc.csv", ("split", "false_positive_rate", "true_positive_rate"), roc)
    write_json(metrics / "evaluation.json", report)


def operating_points(labels: Ints, probability: Floats) -> tuple[Ints, Ints]:
    """True and false positives when every pair at or above a threshold is called positive.

    labels, probability: shape (n,). Returns two arrays, one entry for each distinct probability, highest first.
    """
    order = np.argsort(-probability, kind="stable")
    last_of_equals = np.append(np.flatnonzero(np.diff(probability[order])), len(order) - 1)
    true_positives = np.cumsum(labels[order])[last_of_equals]
    return true_positives, last_of_equals + 1 - true_positives


def precision_recall_curve(true_positives: Ints, false_positives: Ints) -> list[tuple[float, float]]:
    """(recall, precision) at each operating point, behind the convention's first point (0, 1)."""
    recall = true_positives / max(true_positives[-1], 1)
    precision = true_positives / (true_positives + false_positives)
    return [(0.0, 1.0), *zip(recall.tolist(), precision.tolist(), strict=True)]


def roc_curve(true_positives: Ints, false_positives: Ints) -> list[tuple[float, float]]:
    """(false positive rate, true positive rate) at each operating point, behind the first point (0, 0)."""
    false_rate = false_positives / max(false_positives[-1], 1)
    true_rate = true_positives / max(true_positives[-1], 1)
    return [(0.0, 0.0), *zip(false_rate.tolist(), true_rate.tolist(), strict=True)]


def _write_csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[round(cell, 6) if isinstance(cell, float) else cell for cell in row] for row in rows])
    write_text(path, out.getvalue())


def main() -> None:
    evaluate(PREDICTIONS, METRICS)


if __name__ == "__main__":
    run(main)
