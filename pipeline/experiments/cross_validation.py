"""Cross-validation: score each labeled row of train and validation with a model that has not seen it."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS, scores
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.uncertainty import score_intervals
from pipeline.experiments.comparison import judged_by
from pipeline.experiments.identity import FOLD, identity, overridden
from pipeline.experiments.render import SCORE_UNITS
from pipeline.experiments.revisions import Run, commits_by_seed, read_runs
from pipeline.experiments.running import Experiment, run_all

FOLDS = Path("folds")


def run_folds(k: int, overrides: list[str], jobs: int) -> None:
    """Run the folds that are not finished, `jobs` at a time, and write and print the scores over all rows.

    The output is in `folds/<group>`: predictions.parquet has a row for each labeled row of train and validation, and
    scores.json the scores.

    Raises:
        UserError: A run failed. The other runs that have started end first.
    """
    params = overridden(overrides, FOLD)
    group = f"folds-{identity(overrides, FOLD)}-{k}"
    finished = commits_by_seed(group)
    missing = [number for number in range(1, k + 1) if number not in finished]
    log.info("%s: %d of %d folds are finished", group, k - len(missing), k)
    wanted = [
        Experiment(f"{group}-{number}", [*overrides, f"{FOLD}={number}/{k}"], f"fold {number} of {k}", varied=FOLD)
        for number in missing
    ]
    with closing(run_all(wanted, jobs)) as failures:
        if failure := next(failures, None):
            raise UserError(failure)
    runs = [judged_by(run, params.evaluate.metrics) for run in read_runs(group)]
    pooled = pool(runs)
    write_predictions(FOLDS / group / "predictions.parquet", runs)
    summary = summarize(runs, pooled)
    write_json(FOLDS / group / "scores.json", summary)
    print("\n".join(_table(runs[0], summary, group)))


def pool(runs: list[Run]) -> Predictions:
    """Return the predictions of all folds together, in the order of their ids."""
    parts = [run.predictions["test"] for run in runs]
    order = np.argsort(np.concatenate([part.idx for part in parts]))

    def together(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    pooled = replace(parts[0], **{name: together(name) for name in ("idx", "labels", "predicted", "logits")})
    probability = None if parts[0].probability is None else together("probability")
    return replace(pooled, probability=probability, swapped=None)


def write_predictions(path: Path, runs: list[Run]) -> None:
    """Write the columns `idx`, `fold`, `label`, `prediction`, and `logit_0`, `logit_1` and so on."""
    tables = []
    for number, run in enumerate(runs, start=1):
        part = run.predictions["test"]
        columns = {"idx": part.idx, "fold": np.full(len(part.idx), number)}
        columns |= {"label": list(part.labels), "prediction": list(part.predicted)}
        columns |= {f"logit_{output}": part.logits[:, output] for output in range(run.task.outputs)}
        tables.append(pa.table(columns))
    with atomic_output(path) as draft:
        pq.write_table(pa.concat_tables(tables).sort_by("idx"), draft)


def summarize(runs: list[Run], pooled: Predictions) -> dict[str, Any]:
    """Return the scores over all rows with their intervals, and the scores of each fold, by metric."""
    names = runs[0].task.metrics
    answers = pooled.labels, pooled.predicted, pooled.probability
    values, intervals = scores(names, *answers), score_intervals(names, *answers)
    folds = [
        scores(names, part.labels, part.predicted, part.probability) for part in (run.predictions["test"] for run in runs)
    ]
    return {
        "n": len(pooled.idx),
        **{
            name: {"value": values[name], **intervals[name]._asdict(), "folds": [fold[name] for fold in folds]}
            for name in names
        },
    }


def _table(run: Run, summary: dict[str, Any], group: str) -> list[str]:
    rows = [["", "all rows", "95% confidence interval", "std. dev. of folds", "lowest", "highest"]]
    for name in run.task.metrics:
        metric, entry = METRICS[name], summary[name]
        folds = entry["folds"]
        numbers = [metric.format(value, 2) for value in (stdev(folds), min(folds), max(folds))]
        interval = f"{metric.format(entry['low'], 2)} to {metric.format(entry['high'], 2)}"
        rows.append([metric.title, metric.format(entry["value"], 2), interval, *numbers])
    return [
        f"{summary['n']:,} {run.task.noun} of train and validation, each predicted by a model that has not seen it.",
        *aligned(rows, "right"),
        SCORE_UNITS,
        "The interval reflects the choice of the rows. The folds differ in their rows and in their models.",
        f"The predictions are in {FOLDS / group}/predictions.parquet.",
    ]
