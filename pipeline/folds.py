"""Cross-validate a configuration: score each row of train and validation with a model that has not seen it.

With few labeled rows, a validation split is too small to say much. Folds use all rows of train and validation. They do
not use the test split. The scores and the predictions are written to folds/NAME OF THE GROUP.

Examples:
  # params.yaml with five folds; prints the name of the fold group:
  python -m pipeline.folds
  # Ten folds, two at a time, with another learning rate:
  python -m pipeline.folds --k 10 -S train.lr=1e-4 --jobs 2
  # Without training: a logistic (or ridge) regression on the base model:
  python -m pipeline.folds --model frozen
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/folds.md
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from pipeline.cli import add_group_options, as_command, at_least, command_parser
from pipeline.core.messages import UserError
from pipeline.core.output import write_text
from pipeline.core.text import aligned
from pipeline.evaluation.diagnostics import constant_predictions
from pipeline.evaluation.intervals import caveats, score_interval
from pipeline.evaluation.metrics import METRICS
from pipeline.experiments.comparison import SCORE_UNITS, compare
from pipeline.experiments.groups import run_folds
from pipeline.experiments.runs import OUT_OF_FOLD, Side
from pipeline.sources.tables import write_rows


def folds(k: int, overrides: Sequence[str], jobs: int, model: str = "fine-tuned") -> None:
    """Run the folds that are not finished, write predictions.csv and scores.csv, and print the scores."""
    side, simpler = run_folds(k, overrides, jobs, model)
    task, pooled = side.task, side.runs[0].predictions[OUT_OF_FOLD]
    directory, table = Path("folds", side.name), score_table(side, simpler)
    write_rows(prediction_table(side), directory / "predictions.csv")
    write_text(directory / "scores.csv", table.to_csv())
    rows = [["", *table.columns]]
    for name, scores in table.iterrows():
        metric = METRICS[str(name)]
        rows.append([f"{OUT_OF_FOLD} {metric.title}", *(metric.format(score, 2) for score in scores)])
    lines = [
        *aligned(rows, "right"),
        SCORE_UNITS,
        f"Each of the {len(pooled):,} labeled {task.noun} of train and validation was predicted by a model that was "
        "not trained on it. The interval reflects the choice of the rows that these models predict, but not of the "
        "rows that they learned from.",
    ]
    for name, a in simpler.items():
        try:
            lines.append(f"Compared with the {name} model (A), B is the {model} model: {compare(a, side).verdict}.")
        except UserError as error:  # The metric is not defined in a fold.
            lines.append(f"Warning: these scores cannot be compared with the {name} model. {error}")
    lines += caveats(task.metrics, task, OUT_OF_FOLD, pooled.labels, side.runs[0].origin.get("data.split.type"))
    lines += side.warnings(OUT_OF_FOLD)
    lines.append(f"Predictions: {directory / 'predictions.csv'}")
    lines.append(f"To compare with another group: python -m pipeline.compare {side.name} OTHER")
    print("\n".join(lines))


def score_table(side: Side, simpler: Mapping[str, Side]) -> pd.DataFrame:
    """Return a row for each metric: over all rows with a 95% interval, over the folds, and of simpler models."""
    pooled = side.runs[0].predictions[OUT_OF_FOLD]
    constant = constant_predictions(side.task, pooled.labels, pooled)  # The models together learn from these rows.
    rows = {}
    for name in side.task.metrics:
        by_fold = pd.Series([part.score(name) for part in side.scored(OUT_OF_FOLD).values()])
        others = {model: other.runs[0].predictions[OUT_OF_FOLD] for model, other in simpler.items()}
        others[side.task.constant_baseline] = constant
        rows[name] = {
            **score_interval(name, side.task, pooled)._asdict(),
            **by_fold.agg(["mean", "std", "min", "max"]).add_prefix("fold ").to_dict(),
            **{title: predictions.score(name) for title, predictions in others.items()},
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def prediction_table(side: Side) -> pd.DataFrame:
    """Return a row for each labeled row of train and validation, with its fold, its texts and its prediction."""
    pooled = side.runs[0].predictions[OUT_OF_FOLD]
    parts = side.scored(OUT_OF_FOLD).values()
    fold_by_idx = {idx: number for number, part in enumerate(parts, 1) for idx in part.idx}
    columns = {"idx": pooled.idx, "fold": [fold_by_idx[idx] for idx in pooled.idx]}
    columns |= {"label": pooled.labels.tolist(), "prediction": pooled.predicted.tolist()}
    columns |= {f"logit_{output}": column for output, column in enumerate(pooled.logits.T)}
    return pd.concat([pd.DataFrame(columns), pooled.rows], axis=1)


def main() -> None:
    parser = command_parser("folds", __doc__)
    parser.add_argument(
        "--k", metavar="NUMBER", type=at_least(2), default=5, help="number of folds, at least 2 (default: %(default)s)"
    )
    parser.add_argument(
        "--model", choices=("fine-tuned", "frozen"), default="fine-tuned",
        help="frozen: a logistic or ridge regression on the base model, without fine-tuning (default: %(default)s)",
    )  # fmt: skip
    add_group_options(parser)
    arguments = parser.parse_args()
    with as_command():
        folds(arguments.k, arguments.overrides, arguments.jobs, arguments.model)


if __name__ == "__main__":
    main()
