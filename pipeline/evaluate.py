"""Stage evaluate: scores of the predictions with their intervals, what is behind them, and the data of the plots."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.cli import run
from pipeline.core.details import write_details
from pipeline.core.messages import log
from pipeline.core.output import write_json, write_text
from pipeline.core.packages import require_locked
from pipeline.core.paths import METRICS, PREDICTIONS
from pipeline.core.task import read_task
from pipeline.evaluation.diagnostics import PLOTS, diagnostics, plots, threshold
from pipeline.evaluation.metrics import baseline, loss, scores
from pipeline.evaluation.predictions import load_predictions
from pipeline.evaluation.signature import as_line, signature
from pipeline.evaluation.uncertainty import Interval, score_intervals


def evaluate(predictions: Path, metrics: Path) -> None:
    """Write evaluation.json, intervals.json and diagnostics.json to `metrics`, and the plots' data to `metrics/plots`.

    evaluation.json: the task's metrics and the loss of each split with labels, and the metrics of always predicting
    the majority class, or the mean. intervals.json: their 95 % intervals. diagnostics.json: see
    `diagnostics.diagnostics`; and for two classes `threshold`, the one with the best F1 on validation; and the
    `signature` of the scores. A number that is not defined, as the precision of a class that is never predicted, is
    null.
    Raises UserError where the predictions are missing.
    """
    task = read_task(predictions, "predict")
    splits = {split: load_predictions(predictions, split, task) for split in task.scored}
    cut = threshold(splits["validation"]) if task.binary else None
    evaluation, intervals = {}, {}
    signed = signature(predictions, task, splits)
    details: dict[str, Any] = {"signature": signed} | ({} if cut is None else {"threshold": cut})
    points: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for split, of in splits.items():
        found = scores(task.metrics, of.labels, of.predicted)
        guess = baseline(task.problem_type, of.labels)
        guessed = scores(task.metrics, of.labels, guess)
        limits = score_intervals(task.metrics, of.labels, of.predicted)
        evaluation[split] = {
            **found,
            "loss": loss(task.problem_type, of.logits, of.labels),
            **{f"{task.baseline}_{name}": score for name, score in guessed.items()},
            "n": len(of.labels),
        }
        intervals[split] = {name: interval._asdict() for name, interval in limits.items()}
        details[split] = diagnostics(task, of, cut)
        for name, rows in plots(task, of).items():
            points[name] += [(split, *row) for row in rows]
        always = task.labels[guess[0]] if task.problem_type == "single_label_classification" else f"the {task.baseline}"
        log.info(
            "%s: %s; always %s: %s; %d %s",
            split, _line(found, limits), always, ", ".join(f"{score:.4f}" for score in guessed.values()),
            len(of.labels), task.noun,
        )  # fmt: skip
    log.info("signature: %s", as_line(signed))
    for name, header in PLOTS.items():
        _write_csv(metrics / "plots" / f"{name}.csv", ("split", *header), points[name])
    write_details(metrics / "intervals.json", intervals)
    write_details(metrics / "diagnostics.json", details)
    write_json(metrics / "evaluation.json", evaluation)


def _line(found: Mapping[str, float], limits: Mapping[str, Interval]) -> str:
    """The scores with their intervals."""
    texts = [
        f"{name} {score:.4f} (95 % interval {limits[name].low:.4f} to {limits[name].high:.4f})"
        for name, score in found.items()
    ]
    return ", ".join([texts[0], *(text.replace("95 % interval ", "") for text in texts[1:])])


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
