"""Is B better than A? Compare the predictions of two revisions, row by row; or of several B with one A.

A and B are each a branch, a tag, a commit, an experiment, "workspace", or a group of runs made by pipeline.seeds.
The verdict is about the first metric of the task, or of evaluate.metrics in params.yaml, on test: validation has chosen
the epoch, so its scores are optimistic. If the labels of test are not known, it rests on validation, and says so. Two
groups are compared over both seeds and examples: B is better, or worse, if the 95% interval of the difference excludes
0. For two runs, the verdict only says whether these two models differ. If fewer than ten rows changed, there is no
evidence of a difference.

With --gate, the exit status is 0 if no B loses more than the margin, by the 95% interval; 4 if a B is worse than A; and
3 if neither is certain.
"""

import sys

from pipeline.cli import allow_closed_output, as_command, command_parser
from pipeline.experiments.comparison import compare, read_side
from pipeline.experiments.gate import STATUS, decide
from pipeline.experiments.render import as_gate, as_json, as_markdown, as_table, as_text
from pipeline.experiments.revisions import WORKSPACE


def main() -> None:
    parser = command_parser("compare", __doc__)
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B", nargs="*", help=f'default: "{WORKSPACE}"')
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--md", dest="form", action="store_const", const=as_markdown, help="Markdown, for a pull request")
    form.add_argument("--json", dest="form", action="store_const", const=as_json, help="JSON, for machines")
    parser.add_argument(
        "--gate", action="store_true", help="exit with 0 (passes), 3 (undecided) or 4 (fails); 1 is an error"
    )
    parser.add_argument(
        "--margin", type=float, default=0.5,
        help="the loss that --gate accepts, in points, or an error's units; default: 0.5",
    )  # fmt: skip
    arguments = parser.parse_args()
    if not arguments.margin >= 0:
        parser.error(f"--margin must be at least 0, got {arguments.margin}.")
    if arguments.form and len(arguments.b) > 1:
        parser.error("--md and --json are for one B")
    allow_closed_output()
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
