"""Run one configuration with the seeds 1 to n, and print the mean and spread of its scores.

Each seed is a DVC experiment in a temporary directory, so the workspace stays as it is. Finished experiments are found
by name and not repeated. After Ctrl-C or a kill, the same command continues where it was.
"""

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError
from pipeline.core.packages import require_locked
from pipeline.experiments.groups import run_seeds


def main() -> None:
    parser = command_parser("seeds", __doc__)
    parser.add_argument("--n", type=int, required=True, help="how many seeds: 1 to n, at least 2")
    parser.add_argument(
        "-S", "--set-param", dest="overrides", metavar="key=value", action="append", default=[],
        help='a parameter of every run, as for "dvc exp run"',
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at a time; default: 1")
    arguments = parser.parse_args()
    with as_command():
        if arguments.n < 2:
            raise UserError(f"--n is {arguments.n}; it must be at least 2, since one run has no spread")
        if arguments.jobs < 1:
            raise UserError(f"--jobs is {arguments.jobs}; it must be at least 1")
        require_locked()
        run_seeds(arguments.n, arguments.overrides, arguments.jobs)


if __name__ == "__main__":
    main()
