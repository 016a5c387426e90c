"""Run a configuration with several seeds, to see how scores vary.

Examples:
  # params.yaml with the seeds 1 to 5; prints the name of the seed group:
  python -m pipeline.seeds --n 5
  # The same seeds with another learning rate, two runs at a time:
  python -m pipeline.seeds --n 5 -S train.lr=1e-4 --jobs 2
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/compare.md
"""

from pipeline.cli import add_group_options, as_command, command_parser

from pipeline.core.messages import UserError
from pipeline.core.packages import require_locked
from pipeline.experiments.seed_groups import run_seeds


def main() -> None:
    parser = command_parser("seeds", __doc__)
    parser.add_argument(
        "--n", metavar="NUMBER", type=int, required=True,
        help="run the seeds 1 to NUMBER, at least 2; finished runs are not repeated (required)",
    )  # fmt: skip
    add_group_options(parser)
    arguments = parser.parse_args()
    with as_command():
        if arguments.n < 2:
            raise UserError(f"--n must be at least 2, got {arguments.n}. A single run has no standard deviation.")
        require_locked()
        run_seeds(arguments.n, arguments.overrides, arguments.jobs)


if __name__ == "__main__":
    main()
