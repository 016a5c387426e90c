"""Predict how much more labeled rows would help, by training on samples of different sizes.

The scores, the chart and the prediction are written to learning_curves/NAME OF THE CURVE.

Examples:
  # All rows, a half, a quarter, an eighth and a sixteenth of them, each with the seeds 1 to 3:
  python -m pipeline.learning_curve
  # Four sizes with five seeds each, two runs at a time, with another learning rate:
  python -m pipeline.learning_curve --points 4 --seeds 5 --jobs 2 -S train.lr=1e-4
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/learning_curve.md
"""

from pathlib import Path

from pipeline.cli import add_group_options, as_command, command_parser

from pipeline.core.messages import UserError
from pipeline.core.output import write_json, write_text
from pipeline.core.packages import require_locked
from pipeline.experiments.learning_curve import describe_gains, run_learning_curve, summary_lines
from pipeline.experiments.power_law import MIN_SIZES


def learning_curve(points: int, seeds: int, overrides: list[str], jobs: int) -> None:
    """Run the learning curve, write its files, and print the table and the prediction."""
    if points < MIN_SIZES:
        raise UserError(f"--points must be at least {MIN_SIZES}, got {points}. A curve has three parameters.")
    if seeds < 2:
        raise UserError(f"--seeds must be at least 2, got {seeds}. A single run does not show how scores vary.")
    from pipeline.reporting.page import training_sizes_page  # Importing it takes longer than everything else.

    content = run_learning_curve(points, seeds, overrides, jobs)
    directory = Path("learning_curves", content["name"])
    write_json(directory / "curve.json", content)
    write_text(directory / "curve.html", training_sizes_page(content, describe_gains(content)))
    print("\n".join([*summary_lines(content), f"Chart: {directory / 'curve.html'}"]))


def main() -> None:
    parser = command_parser("learning_curve", __doc__)
    parser.add_argument(
        "--points", metavar="NUMBER", type=int, default=5,
        help="number of sizes, at least 3; each size is half the next one (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", metavar="NUMBER", type=int, default=3,
        help="run each size with the seeds 1 to NUMBER, at least 2 (default: %(default)s)",
    )  # fmt: skip
    add_group_options(parser)
    arguments = parser.parse_args()
    with as_command():
        require_locked()
        learning_curve(arguments.points, arguments.seeds, arguments.overrides, arguments.jobs)


if __name__ == "__main__":
    main()
