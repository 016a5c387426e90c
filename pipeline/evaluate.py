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
from pipeline.evaluation.metrics import baseline, compared_by, loss, scores
from pipeline.evaluation.predictions import load_predictions
from pipeline.evaluation.signature import as_line, signature
from pipeline.evaluation.uncertainty import Interval, score_intervals
from pipeline.params import keys_of, load_params


def evaluate(predictions: Path, metrics: Path, names: list[str] | None = None) -> None:
    """Write evaluation.json, intervals.json and diagnostics.json to `metrics`, and the plots' data to `metrics/plots`.

    evaluation.json has the metrics that models are compared by and the loss of each split with labels, and the metrics
    of always predicting the majority class, or the mean. intervals.json has their 95% intervals. diagnostics.json has
    all metrics and more, see `diagnostics.diagnostics`; with two classes also the `threshold` with the best F1 on
    validation. A number that is not defined, such as the precision of a class that is never predicted, is null.

    Args:
        predictions: what stage predict has written.
        metrics: the directory to write to.
        names: the metrics to compare models by; None means the task's own.

    Raises:
        UserError: if the predictions are missing, or if a metric does not apply to the task.
    """
    task = compared_by(read_task(predictions, "predict"), names)
    splits = {split: load_predictions(predictions, split, task) for split in task.scored}
    cut = threshold(splits["validation"]) if task.binary else None
    entries = signature(predictions, task, splits)
    details: dict[str, Any] = {"metrics": task.metrics, "signature": entries} | (
        {} if cut is None else {"threshold": cut}
    )
    evaluation, intervals = {}, {}
    points: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for split, rows in splits.items():
        answers = rows.labels, rows.predicted, rows.probability
        guesses = baseline(task.problem_type, rows.labels, task.outputs)
        values, limits = scores(task.metrics, *answers), score_intervals(task.metrics, *answers)
        guessed = scores(task.metrics, rows.labels, *guesses)
        evaluation[split] = {
            **values,
            "loss": loss(task.problem_type, rows.logits, rows.labels),
            **{f"{task.baseline}_{name}": score for name, score in guessed.items()},
            "n": len(rows.labels),
        }
        intervals[split] = {name: interval._asdict() for name, interval in limits.items()}
        details[split] = diagnostics(task, rows, cut)
        for name, lines in plots(task, rows).items():
            points[name] += [(split, *line) for line in lines]
        single = task.problem_type == "single_label_classification"
        log.info(
            "%s: %s; always %s: %s; %d %s",
            split, _line(values, limits), task.labels[guesses[0][0]] if single else f"the {task.baseline}",
            ", ".join(f"{score:.4f}" for score in guessed.values()), len(rows.labels), task.noun,
        )  # fmt: skip
    log.info("signature: %s", as_line(entries))
    for name, header in PLOTS.items():
        _write_csv(metrics / "plots" / f"{name}.csv", ("split", *header), points[name])
    write_details(metrics / "intervals.json", intervals)
    write_details(metrics / "diagnostics.json", details)
    write_json(metrics / "evaluation.json", evaluation)


def _line(values: Mapping[str, float], limits: Mapping[str, Interval]) -> str:
    """The scores with their intervals."""
    first, *rest = (
        f"{name} {score:.4f} (95% interval {limits[name].low:.4f} to {limits[name].high:.4f})"
        for name, score in values.items()
    )
    return ", ".join([first, *(text.replace("95% interval ", "") for text in rest)])


def _write_csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[round(cell, 6) if isinstance(cell, float) else cell for cell in row] for row in rows])
    write_text(path, out.getvalue())


def main() -> None:
    require_locked()
    params = load_params()
    evaluate(PREDICTIONS, METRICS, params.evaluate.metrics)


if __name__ == "__main__":
    run(main, keys_of("evaluate"))
