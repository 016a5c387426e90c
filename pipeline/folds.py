"""Cross-validate a configuration: score each row of train and validation with a model that has not seen it.

With few labeled rows, a validation split is too small to say much. Folds use all rows of train and validation. They do
not use the test split. The scores and the predictions are written to folds/NAME OF THE GROUP.

Examples:
  # params.yaml with five folds; prints the name of the fold group:
  python -m pipeline.folds
  # Ten folds, two at a time, with another learning rate:
  python -m pipeline.folds --k 10 -S train.lr=1e-4 --jobs 2
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/folds.md
"""

from pipeline.cli import add_group_options, as_command, command_parser

from pipeline.core.messages import UserError
from pipeline.core.packages import require_locked
from pipeline.experiments.cross_validation import run_folds


def main() -> None:
    parser = command_parser("folds", __doc__)
    parser.add_argument(
        "--k", metavar="NUMBER", type=int, default=5, help="number of folds, at least 2 (default: %(default)s)"
    )
    add_group_options(parser)
    arguments = parser.parse_args()
    with as_command():
        if arguments.k < 2:
            raise UserError(f"--k must be at least 2, got {arguments.k}.")
        require_locked()
        run_folds(arguments.k, arguments.overrides, arguments.jobs)


if __name__ == "__main__":
    main()
