"""Compare runs to find out whether a change made the model better.

Examples:
  # Compare the results in this directory (B) with the branch main (A):
  python -m pipeline.compare main
  # Compare two seed groups by the names that pipeline.seeds printed:
  python -m pipeline.compare seeds-ee493559 seeds-87cc67dd
  # Compare two fold groups by the names that pipeline.folds printed:
  python -m pipeline.compare folds-ee493559-5 folds-87cc67dd-5
  # Compare the linear model (A) with the results in this directory (B):
  python -m pipeline.compare baseline
  # Print the comparison for a pull request:
  python -m pipeline.compare main my-branch --md
  # In CI, fail unless a drop of one point or more is ruled out:
  python -m pipeline.compare main --gate --margin 1

More: docs/compare.md
"""

import signal
import sys

from pipeline.cli import as_command, command_parser

from pipeline.evaluation.uncertainty import MIN_CHANGED
from pipeline.experiments.comparison import compare
from pipeline.experiments.gate import STATUS, decide
from pipeline.experiments.render import as_gate, as_json, as_markdown, as_table, as_text
from pipeline.experiments.revisions import BASELINE, WORKSPACE
from pipeline.experiments.sides import read_side

_EXIT_STATUS = f"""\
exit status with --gate (without it, 0 instead of 3 and 4):
  0  passes: the 95% interval of the difference rules out a drop of the margin
     or more, or B gives exactly the same predictions as A
  1  an error, and no verdict
  2  wrong arguments, and no verdict
  3  undecided: the interval contains both -margin and 0, or
     fewer than {MIN_CHANGED} examples changed
  4  fails: B is worse than A, and the drop may reach the margin
With several candidates, the exit status is the highest one.
"""


def main() -> None:
    parser = command_parser("compare", __doc__)
    parser.epilog = _EXIT_STATUS
    parser.add_argument(
        "a", metavar="A",
        help="the run to compare with: a branch, tag, commit, DVC experiment, seed group or fold group, "
        f'"{WORKSPACE}", or "{BASELINE}" for the linear model',
    )  # fmt: skip
    parser.add_argument(
        "b", metavar="B", nargs="*",
        help=f"the candidate, or several of them (default: {WORKSPACE}, the results in this directory)",
    )  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--md", dest="form", action="store_const", const=as_markdown,
        help="print Markdown, for a pull request; with a single B (default: text)",
    )  # fmt: skip
    form.add_argument(
        "--json", dest="form", action="store_const", const=as_json,
        help="print JSON, for scripts; with a single B (default: text)",
    )  # fmt: skip
    parser.add_argument(
        "--gate", action="store_true",
        help="make the exit status say whether B is good enough; see below (default: off)",
    )  # fmt: skip
    parser.add_argument(
        "--margin", metavar="POINTS", type=float, default=0.5,
        help="the smallest drop that --gate rejects, in points of the score, or in the units of an error such "
        "as RMSE (default: %(default)s)",
    )  # fmt: skip
    arguments = parser.parse_args()
    if not arguments.margin >= 0:
        parser.error(f"--margin must be at least 0, got {arguments.margin}.")
    if arguments.form and len(arguments.b) > 1:
        parser.error(f"--md and --json compare A with a single B, got {len(arguments.b)}.")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # A reader such as "| head" may close the output early.
    with as_command():
        a = read_side(arguments.a)
        comparisons = [compare(a, read_side(name)) for name in arguments.b or [WORKSPACE]]
        decisions = [decide(comparison, arguments.margin) for comparison in comparisons]
        if len(comparisons) > 1:
            print(as_table(comparisons, decisions))
        else:
            print((arguments.form or as_text)(comparisons[0]))
        if arguments.gate:
            for comparison, decision in zip(comparisons, decisions, strict=True):
                print(as_gate(comparison, decision), file=sys.stderr)
            sys.exit(max(STATUS[decision.outcome] for decision in decisions))


if __name__ == "__main__":
    main()
