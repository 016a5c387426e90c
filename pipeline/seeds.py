"""Run a configuration with several seeds, to see how scores vary.

Examples:
  # params.yaml with the seeds 1 to 5; prints the name of the seed group:
  python -m pipeline.seeds --n 5
  # The same seeds with another learning rate, two runs at a time:
  python -m pipeline.seeds --n 5 -S train.lr=1e-4 --jobs 2
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/compare.md
"""

from statistics import mean, stdev

from pipeline.cli import add_group_options, as_command, at_least, command_parser
from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS
from pipeline.experiments.comparison import SCORE_UNITS
from pipeline.experiments.groups import run_seeds
from pipeline.experiments.runs import Side


def summary(side: Side) -> list[str]:
    """Return the lines of the table of scores, and what to type next."""
    rows = [["", "seeds", "mean", "std. dev.", "lowest", "highest"]]
    for split in side.runs[0].predictions:
        for name in side.task.metrics:
            scores = [run.predictions[split].score(name) for run in side.runs]
            statistics = (mean(scores), stdev(scores), min(scores), max(scores))
            cells = [METRICS[name].format(value, 2) for value in statistics]
            rows.append([f"{split} {METRICS[name].title}", f"{len(scores)}", *cells])
    advice = f"To compare with another group: python -m pipeline.compare {side.name} OTHER"
    return [*aligned(rows, "right"), SCORE_UNITS, *side.warnings("validation"), advice]


def main() -> None:
    parser = command_parser("seeds", __doc__)
    parser.add_argument(
        "--n", metavar="NUMBER", type=at_least(2), required=True,
        help="run the seeds 1 to NUMBER, at least 2; finished runs are not repeated (required)",
    )  # fmt: skip
    add_group_options(parser)
    arguments = parser.parse_args()
    with as_command():
        [side] = run_seeds(arguments.n, [arguments.overrides], arguments.jobs)
        print("\n".join(summary(side)))


if __name__ == "__main__":
    main()
