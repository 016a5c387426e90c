"""Find labels that are probably wrong, with the models of a fold group.

Examples:
  # Cross-validate params.yaml, then rank the rows by how unlikely the models find their labels:
  python -m pipeline.folds
  python -m pipeline.suspects folds-ee493559-5
  # Enter the correct labels in the column "verdict" of folds/folds-ee493559-5/suspects.csv, then:
  python -m pipeline.suspects --apply folds/folds-ee493559-5/suspects.csv

More: docs/suspects.md
"""

from argparse import ArgumentParser
from pathlib import Path

from pipeline.cli import as_command, command_parser


def options_parser() -> ArgumentParser:
    parser = command_parser("suspects", __doc__)
    parser.add_argument("group", metavar="GROUP", nargs="?", help="a fold group, as python -m pipeline.folds prints it")
    parser.add_argument(
        "--apply", metavar="FILE", type=Path,
        help="write copies of your data files in which the verdicts in this file replace the labels, and name them in "
        "params.yaml",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="DIRECTORY", type=Path, default=Path("data/corrected"),
        help="the directory for the copies, which must not exist yet (default: %(default)s)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":  # --help must not wait for the imports below.
    options_parser().parse_args()

import shlex

import numpy as np
import pandas as pd

from pipeline.cleaning.corrections import correct, require_custom_data
from pipeline.cleaning.error_count import describe_agreement, estimate_label_errors
from pipeline.cleaning.ranking import rank
from pipeline.cleaning.report import page, read_verdicts, require_writable, write_suspects
from pipeline.cleaning.source_rows import load_source_rows
from pipeline.core.messages import UserError
from pipeline.core.output import write_text
from pipeline.core.paths import PARAMS
from pipeline.core.task import Task
from pipeline.core.text import aligned
from pipeline.experiments.cross_validation import FOLDS
from pipeline.experiments.revisions import Run
from pipeline.experiments.sides import OUT_OF_FOLD, describe_degenerate_runs, read_side
from pipeline.sources.params_file import edit_values
from pipeline.params import load_params


def find_suspects(group: str) -> None:
    """Write suspects.csv and suspects.html to the directory of a fold group, and print what to do next.

    Raises:
        UserError: The group does not exist or is not a fold group, its data has changed, a text column has the name
            of a column of suspects.csv, a label contains "|", or suspects.csv has verdicts.
    """
    side = read_side(group)
    if not side.folds:
        raise UserError(f"{group} is not a fold group. Run python -m pipeline.folds, which prints the name of one.")
    [run] = side.runs
    task, predictions, directory = run.task, run.predictions[OUT_OF_FOLD], FOLDS / group
    require_writable(directory / "suspects.csv", task)
    remedy = f"If {group} ran with -S data.KEY=VALUE, set the key in params.yaml."
    try:
        source = load_source_rows(load_params().data)
    except UserError as error:
        raise UserError(f"{error} {remedy}") from None
    rows = source.labeled
    if not _matches(source.corpus.task, rows, run):
        raise UserError(
            f"the data or the section data of params.yaml have changed since {group} ran. {remedy} Otherwise, run "
            "python -m pipeline.folds again."
        )
    suspects, errors = rank(task, rows, predictions), estimate_label_errors(task, predictions)
    agreement = describe_agreement(predictions)
    write_suspects(directory / "suspects.csv", suspects)
    write_text(directory / "suspects.html", page(group, task, suspects, errors, agreement))
    if len(errors):
        table = [["labeled as", task.noun, "suspected errors", "95% confidence interval"]]
        table += [
            [row.name, f"{row.rows:,}", f"{row.wrong:,.0f}", f"{row.low:,.0f} to {row.high:,.0f}"]
            for row in errors.itertuples()
        ]
        print("\n".join(aligned(table, "right")))
        print(agreement)
        print("The intervals reflect only the choice of the rows.")
    if warning := describe_degenerate_runs(side, OUT_OF_FOLD):
        print(f"Warning: {warning}. The estimate and the ranking are not meaningful.")
    print(f"The {len(suspects):,} most suspicious {task.noun} are in {directory / 'suspects.csv'}.")
    print(f"Read {directory / 'suspects.html'}, and enter the correct labels in the column verdict of suspects.csv.")
    print("Then run:")
    print(f"  python -m pipeline.suspects --apply {directory / 'suspects.csv'}")


def _matches(task: Task, rows: pd.DataFrame, run: Run) -> bool:
    """Return whether the out-of-fold predictions of a run are about these rows, with the same texts and labels."""
    predictions = run.predictions[OUT_OF_FOLD]
    if (task.text_columns, task.labels) != (run.task.text_columns, run.task.labels):
        return False
    if rows["idx"].tolist() != predictions.idx.tolist():
        return False
    texts = list(rows[run.task.text_columns].itertuples(index=False, name=None))
    return texts == run.texts[OUT_OF_FOLD] and np.array_equal(np.stack(rows["label"].tolist()), predictions.labels)


def apply_verdicts(file: Path, out: Path) -> None:
    """Write copies of the user's files with the verdicts as labels, and name them in params.yaml.

    Raises:
        UserError: `require_custom_data` or `correct` raises it, or the file has no verdicts.
    """
    params = load_params().data
    require_custom_data(params, out)
    verdicts = read_verdicts(file, params.text_column_names)
    if verdicts.empty:
        raise UserError(f"{file} has no verdicts. Enter the correct label of a row in the column verdict.")
    corrections = correct(params, verdicts, out)
    counts = ", ".join(f"{count} in {split}" for split, count in corrections.counts.items())
    settings = {f"data.{name}": value for name, value in corrections.settings.items()}
    write_text(PARAMS, edit_values(PARAMS.read_text(encoding="utf-8"), settings))
    print(f"Changed labels: {counts}. {PARAMS} now names the corrected files. To train with them:")
    print("  " + shlex.join(["dvc", "add", *map(str, corrections.files)]))
    print("  " + shlex.join(["git", "add", str(out), str(PARAMS)]))
    print("  dvc repro")


def main() -> None:
    parser = options_parser()
    arguments = parser.parse_args()
    if (arguments.group is None) == (arguments.apply is None):
        parser.error("name a fold group, or a file with --apply")
    if arguments.group and arguments.out != parser.get_default("out"):
        parser.error("--out is only for --apply")
    with as_command():
        if arguments.apply:
            apply_verdicts(arguments.apply, arguments.out)
        else:
            find_suspects(arguments.group)


if __name__ == "__main__":
    main()
