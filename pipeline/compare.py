"""Compare two runs or groups of runs to find out whether a change made the model better.

Examples:
  # Compare the results in this directory (B) with the branch main (A):
  python -m pipeline.compare main
  # Compare two seed groups, or two fold groups, by the names that pipeline.seeds and pipeline.folds printed:
  python -m pipeline.compare base-3f2a1c lr=1e-4-9c01d7
  # Compare the linear model (A) with the results in this directory (B); "frozen" is the other simple model:
  python -m pipeline.compare linear
  # In CI, fail unless a drop of one point or more is ruled out:
  python -m pipeline.compare main --gate --margin 1

Exit status with --gate (without it, 0 instead of 3 and 4):
  0  passes: a drop of the margin or more is ruled out
  1  an error, or 2 for wrong arguments
  3  undecided: the interval contains -margin and 0, or too little changed
  4  fails: B is worse than A, and the drop may reach the margin

More: docs/compare.md
"""

import sys

from pipeline.cli import as_command, command_parser
from pipeline.experiments.comparison import compare
from pipeline.experiments.comparison_text import as_json, as_markdown, as_text
from pipeline.experiments.runs import WORKSPACE, read_side

_FORMATS = {"text": as_text, "md": as_markdown, "json": as_json}
_STATUS = {"passes": 0, "undecided": 3, "fails": 4}


def main() -> None:
    parser = command_parser("compare", __doc__)
    parser.add_argument(
        "a", metavar="A",
        help="a branch, tag, commit, DVC experiment, seed group or fold group, "
        f'"{WORKSPACE}", "linear" for the linear model, or "frozen" for the base model without fine-tuning',
    )  # fmt: skip
    parser.add_argument(
        "b", metavar="B", nargs="?", default=WORKSPACE, help="what to compare with A (default: %(default)s)"
    )
    parser.add_argument(
        "--format", choices=_FORMATS, default="text", help="md is for pull requests (default: %(default)s)"
    )
    parser.add_argument("--gate", action="store_true", help="make the exit status say whether B is good enough")
    parser.add_argument(
        "--margin", metavar="POINTS", type=float, default=0.5,
        help="the smallest drop that --gate rejects, in points or in the units of an error (default: %(default)s)",
    )  # fmt: skip
    arguments = parser.parse_args()
    if not arguments.margin >= 0:
        parser.error(f"argument --margin: must be at least 0, got {arguments.margin}")
    with as_command():
        result = compare(read_side(arguments.a), read_side(arguments.b))
        print(_FORMATS[arguments.format](result), flush=True)
        if arguments.gate:
            outcome = result.gate(arguments.margin)
            print(f"Gate: {outcome}, with a margin of {arguments.margin:g}", file=sys.stderr)
            sys.exit(_STATUS[outcome])


if __name__ == "__main__":
    main()
