"""Predict how much more labeled rows would help, by training on samples of different sizes.

The scores, the chart and the prediction are written to learning_curves/NAME OF THE LARGEST GROUP.

Examples:
  # All rows, a half, a quarter, an eighth and a sixteenth of them, each with the seeds 1 to 3:
  python -m pipeline.learning_curve
  # Four sizes with five seeds each, two runs at a time, with another learning rate:
  python -m pipeline.learning_curve --points 4 --seeds 5 --jobs 2 -S train.lr=1e-4
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/learning_curve.md
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.cli import add_group_options, as_command, at_least, command_parser
from pipeline.core.output import write_json, write_text
from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS
from pipeline.experiments.comparison import SCORE_UNITS
from pipeline.experiments.groups import run_sizes
from pipeline.experiments.learning_curves import MIN_SIZES, curve_record

_CAVEATS = [
    "All sizes have the same number of epochs, so a smaller sample gets fewer optimizer steps.",
    "The gains hold only for new rows from the same source as the rows of train.",
    "The form of the curve is an assumption: it never predicts a worse score, and it ends at twice the number of rows.",
]


def learning_curve(points: int, seeds: int, overrides: Sequence[str], jobs: int) -> None:
    """Run the learning curve, write its files, and print the table and the prediction."""
    sides = run_sizes(points, seeds, overrides, jobs)
    content = curve_record(sides)
    directory = Path("learning_curves", sides[max(sides)].name)
    write_json(directory / "curve.json", content)
    from pipeline.reporting.charts import training_sizes  # Importing it takes longer than everything else.

    write_text(directory / "curve.svg", training_sizes(content))
    print("\n".join([*summary(content), f"Chart: {directory / 'curve.svg'}"]))


def summary(content: dict[str, Any]) -> list[str]:
    """Return the lines of the table of scores, the gains from more rows, and what to type next."""
    metric, points = METRICS[content["metric"]], content["points"]
    rows = [["", "rows", "seeds", f"validation {metric.title}", "95% confidence interval"]]
    for point in points:
        value, low, high = (metric.format(point[key], 2) for key in ("value", "low", "high"))
        rows.append([point["group"], f"{point['rows']:,}", f"{len(point['scores'])}", value, f"{low} to {high}"])
    lines = [*aligned(rows, "right"), SCORE_UNITS]
    lines += [*(warning for point in points for warning in point["warnings"]), ""]
    if content["unknown"]:
        lines.append(f"How much more rows would help is unknown: {content['unknown']}.")
    unit = f"in validation {metric.title}" if metric.is_error else f"points of validation {metric.title}"
    for gain in content["gains"]:
        low, high = (metric.format_difference(gain[key]) for key in ("low", "high"))
        lines.append(f"{gain['rows']:,} more rows: {low} to {high} {unit} (80% interval)")
    comparison = f"python -m pipeline.compare {points[-2]['group']} {points[-1]['group']}"
    return [*lines, "", *_CAVEATS, f"To compare two sizes: {comparison}"]


def main() -> None:
    parser = command_parser("learning_curve", __doc__)
    parser.add_argument(
        "--points", metavar="NUMBER", type=at_least(MIN_SIZES), default=5,
        help="number of sizes, at least 3; each size is half the next one (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", metavar="NUMBER", type=at_least(2), default=3,
        help="run each size with the seeds 1 to NUMBER, at least 2 (default: %(default)s)",
    )  # fmt: skip
    add_group_options(parser)
    arguments = parser.parse_args()
    with as_command():
        learning_curve(arguments.points, arguments.seeds, arguments.overrides, arguments.jobs)


if __name__ == "__main__":
    main()
