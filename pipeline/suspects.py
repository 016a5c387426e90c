"""Find labels that are probably wrong, with the models of a fold group.

Examples:
  # Cross-validate params.yaml, then rank the rows by how unlikely the models find their labels:
  python -m pipeline.folds
  python -m pipeline.suspects folds-ee493559-5
  # Enter the correct labels in the column "verdict" of suspects.csv, then train with them:
  cp folds/folds-ee493559-5/suspects.csv data/corrections.csv
  dvc repro

More: docs/suspects.md
"""

from argparse import ArgumentParser
from pathlib import Path

from pipeline.cli import as_command, command_parser


def options_parser() -> ArgumentParser:
    parser = command_parser("suspects", __doc__)
    parser.add_argument("group", metavar="GROUP", help="a fold group, as python -m pipeline.folds prints it")
    return parser


if __name__ == "__main__":  # --help must not wait for the imports below.
    options_parser().parse_args()

import numpy as np
import pandas as pd

from pipeline.cleaning.ranking import rank
from pipeline.cleaning.report import page, require_writable, write_suspects
from pipeline.core.messages import UserError
from pipeline.core.output import write_text
from pipeline.core.task import Task
from pipeline.experiments.cross_validation import FOLDS
from pipeline.experiments.revisions import Run
from pipeline.experiments.sides import OUT_OF_FOLD, describe_degenerate_runs, read_side
from pipeline.params import load_params
from pipeline.sources.corrections import read_verdicts
from pipeline.sources.folds import labeled_rows
from pipeline.sources.loading import load_corpus


def find_suspects(group: str) -> None:
    """Write suspects.csv and suspects.html to the directory of a fold group, and print what to do next.

    Raises:
        UserError: The group does not exist or is not a fold group, its data has changed, a text column has the name
            of a column of suspects.csv, or suspects.csv has verdicts.
    """
    side = read_side(group)
    if not side.folds:
        raise UserError(f"{group} is not a fold group. Run python -m pipeline.folds, which prints the name of one.")
    [run] = side.runs
    task, params, file = run.task, load_params().data, FOLDS / group / "suspects.csv"
    require_writable(file, task)
    corpus = load_corpus(params)
    rows = labeled_rows(corpus)
    if not _matches(corpus.task, rows, run):
        raise UserError(
            f"the data, {params.corrections} or the section data of params.yaml have changed since {group} ran. If it "
            "ran with -S data.KEY=VALUE, set the key in params.yaml. Otherwise, run python -m pipeline.folds again."
        )
    suspects = rank(task, rows, run.predictions[OUT_OF_FOLD])
    write_suspects(file, suspects)
    write_text(file.with_suffix(".html"), page(group, task, suspects))
    if warning := describe_degenerate_runs(side, OUT_OF_FOLD):
        print(f"Warning: {warning}. The ranking is not meaningful.")
    print(f"The {len(suspects):,} most suspicious {task.noun} are in {file}.")
    print(f"Read {file.with_suffix('.html')}, and enter the correct labels in the column verdict of suspects.csv.")
    print("Then run:")
    if read_verdicts(Path(params.corrections), []).empty:
        print(f"  cp {file} {params.corrections}")
    else:  # A copy would remove the earlier verdicts.
        print(f"  tail -n +2 {file} >> {params.corrections}")
    print("  dvc repro")


def _matches(task: Task, rows: pd.DataFrame, run: Run) -> bool:
    """Return whether the out-of-fold predictions of a run are about these rows, with the same texts and labels."""
    predictions = run.predictions[OUT_OF_FOLD]
    if (task.text_columns, task.labels) != (run.task.text_columns, run.task.labels):
        return False
    if rows["idx"].tolist() != predictions.idx.tolist():
        return False
    texts = list(rows[run.task.text_columns].itertuples(index=False, name=None))
    return texts == run.texts[OUT_OF_FOLD] and np.array_equal(np.stack(rows["label"].tolist()), predictions.labels)


def main() -> None:
    arguments = options_parser().parse_args()
    with as_command():
        find_suspects(arguments.group)


if __name__ == "__main__":
    main()
