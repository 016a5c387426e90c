"""Search for better parameters than the ones in params.yaml.

Examples:
  # 30 trials, then the best one against params.yaml with five seeds each, 40 runs:
  python -m pipeline.search search.yaml --n 30
  # Every combination of the lists in grid.yaml, up to 100, two runs at a time:
  python -m pipeline.search grid.yaml --n 100 --sampler grid --jobs 2
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/search.md
"""

import shlex
from pathlib import Path

from pipeline.cli import add_jobs_option, as_command, at_least, command_parser
from pipeline.experiments.comparison import compare
from pipeline.experiments.comparison_text import as_text
from pipeline.experiments.groups import run_seeds
from pipeline.experiments.trials import run_search


def search(space_file: Path, n: int, sampler: str, jobs: int) -> None:
    """Run the trials, print their table, and compare the best one with params.yaml, with five new seeds on test."""
    trials, best = run_search(space_file, n, sampler, jobs)
    print(trials.to_string(index=False, float_format="{:.4f}".format, na_rep="failed"), end="\n\n", flush=True)
    result = compare(*run_seeds(5, [[], best], jobs))
    print(as_text(result))
    if result.split == "validation":
        print("The best trial was also chosen on validation, so part of its lead is luck.")
    advice = "To adopt B" if result.better == "B" else "Keep your current params.yaml. To adopt B anyway"
    print(f"\n{advice}: dvc exp run {' '.join(f'-S {shlex.quote(override)}' for override in best)}")


def main() -> None:
    parser = command_parser("search", __doc__)
    parser.add_argument(
        "space", metavar="FILE", type=Path,
        help='YAML file with the keys to search and their values, such as "train.lr: log(1e-5, 1e-4)"',
    )  # fmt: skip
    parser.add_argument(
        "--n", metavar="NUMBER", type=at_least(2), required=True,
        help="number of trials, at least 2; a small grid may have fewer (required)",
    )  # fmt: skip
    parser.add_argument(
        "--sampler", choices=("tpe", "grid"), default="tpe",
        help="how to choose values: tpe learns from earlier trials; grid tries all combinations (default: %(default)s)",
    )  # fmt: skip
    add_jobs_option(parser)
    arguments = parser.parse_args()
    with as_command():
        search(arguments.space, arguments.n, arguments.sampler, arguments.jobs)


if __name__ == "__main__":
    main()
