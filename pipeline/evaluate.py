"""Stage evaluate: scores of the predictions with their intervals, calibration, and the data of the plots."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.cli import run
from pipeline.core.details import write_details
from pipeline.core.messages import log
from pipeline.core.output import write_json, write_text
from pipeline.core.packages import require_locked
from pipeline.core.paths import METRICS, PREDICTIONS, SCORED
from pipeline.evaluation.calibration import (
    best_threshold,
    expected_calibration_error,
    if_calibrated,
    operating_points,
    precision_and_recall,
    precision_recall_curve,
    reliability,
    roc_auc,
    roc_curve,
)
from pipeline.evaluation.metrics import cross_entropy, score
from pipeline.evaluation.predictions import load_predictions
from pipeline.evaluation.uncertainty import SCORES, score_intervals


def evaluate(predictions: Path, metrics: Path) -> None:
    """Write evaluation.json, intervals.json and diagnostics.json to `metrics`, and the curves' data to `metrics/plots`.

    evaluation.json: accuracy, F1 and loss of each split, and the scores of always predicting the majority class.
    intervals.json: 95 % intervals of accuracy and F1. diagnostics.json: mean confidence and expected calibration error,
    with what a perfectly calibrated model would show; the area under the ROC curve; the scores, precision and recall at
    the threshold with the best F1 on validation, and at 0.5; and where predict has scored the sentences swapped,
    `order_consistency`, the share of pairs with the same prediction in both orders. A number that is not defined, as
    the precision of class 1 where it is never predicted, is null. Raises UserError where the predictions are missing.
    """
    splits = {split: load_predictions(predictions, split) for split in SCORED}
    threshold = best_threshold(splits["validation"].labels, splits["validation"].probability)
    evaluation, intervals = {}, {}
    diagnostics: dict[str, Any] = {"threshold": threshold}
    precision_recall, roc, reliability_bins = [], [], []
    for split, of in splits.items():
        scores = score(of.labels, of.predicted)
        baseline = score(of.labels, np.full_like(of.labels, of.majority))
        evaluation[split] = {
            **scores,
            "loss": cross_entropy(of.logits, of.labels),
            "majority_accuracy": baseline["accuracy"],
            "majority_f1": baseline["f1"],
            "n": len(of.labels),
        }
        intervals[split] = {name: limits._asdict() for name, limits in score_intervals(of.labels, of.predicted).items()}
        bins = reliability(of.confidence, of.labels == of.predicted)
        counts = operating_points(of.labels, of.probability)[:2]
        above = (of.probability >= threshold).astype(int)
        diagnostics[split] = {
            "at_half": {**scores, **precision_and_recall(of.labels, of.predicted)},
            "at_threshold": {**score(of.labels, above), **precision_and_recall(of.labels, above)},
            "confidence": float(of.confidence.mean()),
            "calibration_error": expected_calibration_error(bins),
            "if_calibrated": if_calibrated(of.confidence)._asdict(),
            "roc_auc": roc_auc(*counts),
        }
        if of.swapped is not None:
            diagnostics[split]["order_consistency"] = float(np.mean(of.predicted == of.swapped))
        names = np.array(of.classes)
        _write_csv(
            metrics / "plots" / f"confusion_{split}.csv",
            ("actual", "predicted"),
            zip(names[of.labels], names[of.predicted], strict=True),
        )
        precision_recall += [(split, *point) for point in precision_recall_curve(*counts)]
        roc += [(split, *point) for point in roc_curve(*counts)]
        reliability_bins += [(split, *one) for one in bins]
        log.info(
            "%s: accuracy %.4f (95 %% interval %.4f to %.4f), f1 %.4f (%.4f to %.4f); always %s: %.4f, %.4f; %d pairs",
            split,
            *(number for name in SCORES for number in (scores[name], *intervals[split][name].values())),
            of.classes[of.majority], *baseline.values(), len(of.labels),
        )  # fmt: skip
    plots = metrics / "plots"
    _write_csv(plots / "precision_recall.csv", ("split", "recall", "precision"), precision_recall)
    _write_csv(plots / "roc.csv", ("split", "false_positive_rate", "true_positive_rate"), roc)
    _write_csv(plots / "reliability.csv", ("split", "confidence", "accuracy", "n"), reliability_bins)
    write_details(metrics / "intervals.json", intervals)
    write_details(metrics / "diagnostics.json", diagnostics)
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
