"""Cross-validate a configuration: score each labeled row of train and validation with a model that has not seen it.

With few labeled rows, the score of a small validation split says little. Folds use all of them. The test split is not
used, so that it stays unseen until the end.

Examples:
  # params.yaml with 5 folds:
  python -m pipeline.folds --k 5
  # Two folds at a time, with another learning rate:
  python -m pipeline.folds --k 5 -S train.lr=1e-4 --jobs 2
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/your_data.md
"""

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError
from pipeline.core.packages import require_locked
from pipeline.experiments.cross_validation import run_folds


def main() -> None:
    parser = command_parser("folds", __doc__)
    parser.add_argument("--k", metavar="NUMBER", type=int, default=5, help="number of folds (default: %(default)s)")
    parser.add_argument(
        "-S", "--set-param", dest="overrides", metavar="KEY=VALUE", action="append", default=[],
        help='change a key of params.yaml in every run, as in "dvc exp run"; can be repeated (default: params.yaml as '
        "it is)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", metavar="NUMBER", type=int, default=1,
        help="number of runs to execute at the same time (default: %(default)s)",
    )  # fmt: skip
    arguments = parser.parse_args()
    with as_command():
        if arguments.k < 2:
            raise UserError(f"--k must be at least 2, got {arguments.k}.")
        if arguments.jobs < 1:
            raise UserError(f"--jobs must be at least 1, got {arguments.jobs}.")
        require_locked()
        run_folds(arguments.k, arguments.overrides, arguments.jobs)


if __name__ == "__main__":
    main()
