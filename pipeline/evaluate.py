"""Stage evaluate: the scores of the predictions, how sure and how well calibrated they are, the data of the plots."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.cli import run
from pipeline.core.messages import log
from pipeline.core.output import write_json, write_text
from pipeline.core.packages import require_locked
from pipeline.core.paths import METRICS, PREDICTIONS, SCORED, SWAPPED
from pipeline.evaluation.calibration import (
    best_threshold,
    expected_calibration_error,
    if_calibrated,
    operating_points,
    precision_recall_curve,
    reliability,
    roc_curve,
)
from pipeline.evaluation.metrics import cross_entropy, score
from pipeline.evaluation.uncertainty import SCORES, score_intervals


def evaluate(predictions: Path, metrics: Path) -> None:
    """Write evaluation.json, intervals.json, diagnostics.json under `metrics`, and under `metrics/plots` curves' data.

    evaluation.json: accuracy, F1 and loss of each split, beside the scores of always giving the more frequent class.
    intervals.json: 95 % intervals of accuracy and F1. diagnostics.json: mean confidence and expected calibration error,
    beside what a perfectly calibrated model would show; the scores at the threshold that gives the best F1 on
    validation, beside those at 0.5; and `order_consistency`, the share of pairs whose class stays when the sentences
    change places, where predict has scored them so.
    Raises UserError where the predictions are missing.
    """
    from pipeline.core.tables import read_split

    tables = {split: read_split(predictions, split, "predict") for split in SCORED}
    validation = tables["validation"]
    threshold = best_threshold(np.asarray(validation["label"]), np.asarray(validation["probability"]))
    evaluation, intervals = {}, {}
    diagnostics: dict[str, Any] = {"threshold": threshold}
    precision_recall, roc, reliability_bins = [], [], []
    for split, table in tables.items():
        names = table.features["label"].names
        labels, predicted = np.asarray(table["label"]), np.asarray(table["prediction"])
        probability = np.asarray(table["probability"])
        majority = int(np.mean(labels) >= 0.5)
        scores, baseline = score(labels, predicted), score(labels, np.full_like(labels, majority))
        evaluation[split] = {
            **scores,
            "loss": cross_entropy(np.column_stack([table["logit_0"], table["logit_1"]]), labels),
            "majority_accuracy": baseline["accuracy"],
            "majority_f1": baseline["f1"],
            "n": len(labels),
        }
        intervals[split] = {name: interval._asdict() for name, interval in score_intervals(labels, predicted).items()}
        confidence = np.where(predicted == 1, probability, 1 - probability)
        bins = reliability(confidence, labels == predicted)
        diagnostics[split] = {
            "at_half": scores,
            "at_threshold": score(labels, (probability >= threshold).astype(int)),
            "confidence": float(confidence.mean()),
            "calibration_error": expected_calibration_error(bins),
            "if_calibrated": if_calibrated(confidence)._asdict(),
        }
        if (predictions / f"{split}{SWAPPED}.parquet").exists():
            swapped = read_split(predictions, split + SWAPPED, "predict")
            diagnostics[split]["order_consistency"] = float(np.mean(predicted == np.asarray(swapped["prediction"])))
        _write_csv(
            metrics / "plots" / f"confusion_{split}.csv",
            ("actual", "predicted"),
            ((names[label], names[prediction]) for label, prediction in zip(labels, predicted, strict=True)),
        )
        counts = operating_points(labels, probability)[:2]
        precision_recall += [(split, *point) for point in precision_recall_curve(*counts)]
        roc += [(split, *point) for point in roc_curve(*counts)]
        reliability_bins += [(split, *of) for of in bins]
        log.info(
            "%s: accuracy %.4f (95 %% interval %.4f to %.4f), f1 %.4f (%.4f to %.4f); always %s: %.4f, %.4f; %d pairs",
            split,
            *(number for name in SCORES for number in (scores[name], *intervals[split][name].values())),
            names[majority], *baseline.values(), len(labels),
        )  # fmt: skip
    plots = metrics / "plots"
    _write_csv(plots / "precision_recall.csv", ("split", "recall", "precision"), precision_recall)
    _write_csv(plots / "roc.csv", ("split", "false_positive_rate", "true_positive_rate"), roc)
    _write_csv(plots / "reliability.csv", ("split", "confidence", "accuracy", "n"), reliability_bins)
    write_json(metrics / "intervals.json", intervals)
    write_json(metrics / "diagnostics.json", diagnostics)
    write_json(metrics / "evaluation.json", evaluation)


def _write_csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[round(cell, 6) if isinstance(cell, float) else cell for cell in row] for row in rows])
    write_text(path, out.getvalue())


def main() -> None:
    require_locked()
    evaluate(PREDICTIONS, METRICS)


if __name__ == "__main__":
    run(main)
