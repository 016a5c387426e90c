"""Search for better parameters than the ones in params.yaml.

Examples:
  # 30 trials, then the best one against params.yaml with five seeds each, about 50 runs:
  python -m pipeline.search search.yaml --n 30
  # Two runs at a time:
  python -m pipeline.search search.yaml --n 30 --jobs 2
  # Every combination of the lists in grid.yaml, up to 100:
  python -m pipeline.search grid.yaml --n 100 --sampler grid
  # After Ctrl-C or a kill, repeat the command to continue.

More: docs/search.md
"""

import shlex
from pathlib import Path

from pipeline.cli import add_jobs_option, as_command, command_parser

import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.output import write_text
from pipeline.core.packages import require_locked
from pipeline.evaluation.metrics import SCORES
from pipeline.experiments.comparison import compare
from pipeline.experiments.identity import as_dvc_override, load_overridden_params
from pipeline.experiments.render import as_text
from pipeline.experiments.search import Study, require_comparable
from pipeline.experiments.seed_groups import run_seeds
from pipeline.experiments.space import SAMPLERS, Sampler, read_space

_SEEDS = 5  # for the verdict


def search(space_file: Path, n: int, sampler: str, jobs: int) -> None:
    """Run the trials, print their table, and compare the best one with params.yaml.

    The table is also written to searches/NAME/trials.csv, where NAME is the name of the space file without its suffix.
    Test is scored only for the comparison, which uses five new seeds.

    Raises:
        UserError: The space file, `n` or `jobs` is invalid, or all trials fail.
    """
    if n < 2:
        raise UserError(f"--n must be at least 2, got {n}.")
    space = read_space(space_file)
    require_comparable(space)
    for parameter in space:
        for text in parameter.values_to_check():
            # This raises UserError if params.yaml cannot have the value.
            load_overridden_params([f"{parameter.key}={text}"])
    study = Study(Sampler(space, sampler), jobs)
    trials = study.run(n)
    score_title = f"validation {SCORES[study.metric].title}"
    table = pd.DataFrame(
        {"trial": trial.number, score_title: trial.score, "seeds": len(trial.scores), **trial.values}
        for trial in trials
    )
    write_text(Path("searches", space_file.stem, "trials.csv"), table.to_csv(index=False, lineterminator="\n"))
    print(table.to_string(index=False, float_format="{:.4f}".format, na_rep="failed"), end="\n\n", flush=True)

    best = trials[0].overrides
    current_side = run_seeds(_SEEDS, [], jobs)
    study.require_unchanged()
    comparison = compare(current_side, run_seeds(_SEEDS, best, jobs))
    print(as_text(comparison))
    if comparison.verdict_split == "validation":
        print("The best trial was also chosen on validation, so part of its lead is luck.")
    advice = "To adopt B" if comparison.better_side == "B" else "Keep your current params.yaml. To adopt B anyway"
    options = [word for override in best for word in ("-S", _command_override(override))]
    print(f"\n{advice}: {shlex.join(['dvc', 'exp', 'run', *options])}")


def _command_override(override: str) -> str:
    """Return an override for DVC, which adds a key that params.yaml may lack only after ++."""
    may_be_new = override.startswith(("train.training_args.", "train.class_weights."))
    return as_dvc_override(override) if may_be_new else override


def main() -> None:
    parser = command_parser("search", __doc__)
    parser.add_argument(
        "space", metavar="FILE", type=Path,
        help='YAML file with the keys to search and their values, such as "train.lr: log(1e-5, 1e-4)"',
    )  # fmt: skip
    parser.add_argument(
        "--n", metavar="NUMBER", type=int, required=True,
        help="number of trials, at least 2; a small grid may have fewer (required)",
    )  # fmt: skip
    parser.add_argument(
        "--sampler", choices=SAMPLERS, default="tpe",
        help="how to choose values: tpe learns from earlier trials; random covers the space evenly (a Sobol sequence); "
        "grid tries all combinations in order (default: %(default)s)",
    )  # fmt: skip
    add_jobs_option(parser)
    arguments = parser.parse_args()
    with as_command():
        require_locked()
        search(arguments.space, arguments.n, arguments.sampler, arguments.jobs)


if __name__ == "__main__":
    main()
