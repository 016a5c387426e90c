"""Cross-validation: score each labeled row of train and validation with a model that has not seen it."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS, scores
from pipeline.evaluation.signature import as_line
from pipeline.evaluation.uncertainty import score_intervals
from pipeline.experiments.comparison import Side, read_side
from pipeline.experiments.folds import OUT_OF_FOLD, fold_scores
from pipeline.experiments.identity import FOLD, identity
from pipeline.experiments.render import SCORE_UNITS
from pipeline.experiments.revisions import group_commits
from pipeline.experiments.running import Experiment, cost, run_all

FOLDS = Path("folds")


def run_folds(k: int, overrides: list[str], jobs: int) -> None:
    """Run the folds that are not finished, `jobs` at a time, and write and print the scores over all rows.

    predictions.parquet and scores.json are written to `folds/<name of the fold group>`.

    Raises:
        UserError: A run failed. The other runs that have started end first.
    """
    group = f"folds-{identity(overrides, FOLD)}-{k}"
    finished = group_commits(group)
    missing = [number for number in range(1, k + 1) if number not in finished]
    log.info("%s: %d of %d folds are finished", group, k - len(missing), k)
    if missing:
        log.info("%d to go: %s", len(missing), cost(len(missing)))
    wanted = [
        Experiment(f"{group}-{number}", [*overrides, f"{FOLD}={number}/{k}"], f"fold {number} of {k}", varied=FOLD)
        for number in missing
    ]
    with closing(run_all(wanted, jobs)) as failures:
        if failure := next(failures, None):
            raise UserError(failure)
    side = read_side(group)
    directory = FOLDS / group
    _write_predictions(directory / "predictions.parquet", side)
    print("\n".join(_scores(side, directory)))


def _write_predictions(path: Path, side: Side) -> None:
    """Write the columns `idx`, `fold`, `label`, `prediction`, and `logit_0`, `logit_1` and so on, ordered by `idx`."""
    pooled = side.runs[0].predictions[OUT_OF_FOLD]
    fold_by_idx = {
        idx: number for number, run in enumerate(side.folds, start=1) for idx in run.predictions["test"].idx.tolist()
    }
    columns = {
        "idx": pooled.idx,
        "fold": np.array([fold_by_idx[idx] for idx in pooled.idx.tolist()]),
        "label": list(pooled.labels),
        "prediction": list(pooled.predicted),
        **{f"logit_{output}": column for output, column in enumerate(pooled.logits.T)},
    }
    with atomic_output(path) as draft:
        pq.write_table(pa.table(columns), draft)


def _scores(side: Side, directory: Path) -> list[str]:
    """Write scores.json, and return the lines of the table."""
    [run] = side.runs
    pooled, task = run.predictions[OUT_OF_FOLD], run.task
    answers = pooled.labels, pooled.predicted, pooled.probability
    values, intervals = scores(task.metrics, *answers), score_intervals(task.metrics, *answers)
    rows = [["", "all rows", "95% confidence interval", "mean of folds", "std. dev.", "lowest", "highest"]]
    content = {}
    for name in task.metrics:
        metric, folds = METRICS[name], fold_scores(name, side.folds)
        low, high = intervals[name]
        statistics = (folds.mean(), folds.std(ddof=1), folds.min(), folds.max())
        rows.append([
            f"{OUT_OF_FOLD} {metric.title}",
            metric.format(values[name], 2),
            f"{metric.format(low, 2)} to {metric.format(high, 2)}",
            *(metric.format(float(value), 2) for value in statistics),
        ])  # fmt: skip
        content[name] = {"value": values[name], "low": low, "high": high, "folds": folds.tolist()}
    write_json(directory / "scores.json", {"n": len(pooled.idx), "metrics": content})
    return [
        *aligned(rows, "right"),
        SCORE_UNITS,
        f"All {len(pooled.idx):,} labeled {task.noun} of train and validation, each predicted by a model that has not "
        "seen it. The interval reflects the choice of these rows.",
        f"Signature: {as_line(run.signature)}",
        f"Predictions: {directory / 'predictions.parquet'}",
        f"To compare with another group: python -m pipeline.compare {side.name} OTHER",
    ]
