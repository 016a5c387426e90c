"""Find labels that are probably wrong, with the models of a fold group.

Examples:
  # Cross-validate params.yaml, then rank the rows by how unlikely the models find their labels:
  python -m pipeline.folds
  python -m pipeline.suspects folds5-base-3f2a1c
  # Enter the correct labels in the column "correct_label" of suspects.csv, then train with them:
  cp folds/folds5-base-3f2a1c/suspects.csv data/corrections.csv
  dvc repro

More: docs/suspects.md
"""

from pathlib import Path

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError
from pipeline.core.output import write_text
from pipeline.experiments.label_errors import rank
from pipeline.experiments.runs import OUT_OF_FOLD, read_side
from pipeline.params import load_params
from pipeline.reporting.suspects_page import render_page
from pipeline.sources.corrections import read_corrections, write_suspects


def find_suspects(group: str) -> None:
    """Write suspects.csv and suspects.html to the directory of a fold group, and print what to do next."""
    side = read_side(group)
    if not side.folds:
        raise UserError(f"{group} is not a fold group. Run python -m pipeline.folds, which prints the name of one.")
    file, corrections = Path("folds", group, "suspects.csv"), Path(load_params().data.corrections)
    if file.exists() and len(read_corrections(file, [])):
        raise UserError(f"{file} has correct labels, which would be lost. Move the file.")
    suspects = rank(side.task, side.runs[0].predictions[OUT_OF_FOLD])
    write_suspects(file, suspects)
    page = file.with_suffix(".html")
    write_text(page, render_page(group, side.task, suspects))
    print(f"The {len(suspects):,} most suspicious {side.task.noun} are in {file}.")
    print(f"Read {page}, and enter the correct labels in the column correct_label of {file.name}. Then run:")
    if read_corrections(corrections, []).empty:
        print(f"  cp {file} {corrections}")
    else:  # A copy would remove the earlier corrections.
        print(f"  tail -n +2 {file} >> {corrections}")
    print("  dvc repro")


def main() -> None:
    parser = command_parser("suspects", __doc__)
    parser.add_argument("group", metavar="GROUP", help="a fold group, as python -m pipeline.folds prints it")
    arguments = parser.parse_args()
    with as_command():
        find_suspects(arguments.group)


if __name__ == "__main__":
    main()
