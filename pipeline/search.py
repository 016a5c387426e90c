"""Search for better parameters, and end with a verdict: are the best ones better than those of params.yaml?

SPACE names the parameters and where to search: "train.lr: log(1e-5, 1e-4)", or uniform(0, 0.2), int(1, 5), or a list.
Each trial is a DVC experiment up to train, and is ranked by its score on validation; a third of the trials get a second
seed. The best one and the present parameters then run with five fresh seeds, and are compared: only there test is
scored. Trials are found again by name: after a kill, the same command goes on where it was, and to the same end.
"""

import argparse
from pathlib import Path

from pipeline.cli import as_command
from pipeline.core.messages import UserError
from pipeline.core.packages import require_locked
from pipeline.experiments.comparison import Side, compare
from pipeline.experiments.render import as_text
from pipeline.experiments.revisions import runs
from pipeline.experiments.runner import group_name, run_seeds
from pipeline.experiments.search import Study, rungs
from pipeline.experiments.space import SAMPLERS, Sampler, read_space
from pipeline.params import load_params

_SEEDS = 5  # of the end


def search(space_file: Path, n: int, sampler: str, jobs: int, min_epochs: int | None) -> None:
    """Run the study, and print its table, the comparison of the best trial with params.yaml, and how to adopt it.

    Raises UserError for a space or a number that makes no sense, and where all trials fail.
    """
    if n < 2 or jobs < 1:
        raise UserError(f"--n is {n} and --jobs {jobs}; at least 2 trials, and 1 job, make a search")
    space = read_space(space_file)
    steps = rungs(load_params().train.epochs, min_epochs, space)
    for parameter in space:
        group_name([parameter.override(parameter.first)])  # raises UserError for a key or a value that cannot be
    study = Study(space_file.with_suffix(""), space, jobs)
    best, *_ = study.search(Sampler(space, sampler), n, steps)
    print("\n".join(study.summary(steps)))
    run_seeds(_SEEDS, [])
    run_seeds(_SEEDS, best.overrides)
    groups = group_name([]), group_name(best.overrides)
    verdict = compare(*(Side(name, runs(name)) for name in groups))
    print(as_text(verdict))
    apply = f"dvc exp apply {groups[1]}-1"
    print(
        f"To adopt B: {apply}"
        if verdict.better == "B"
        else f"Keep params.yaml as it is. To take B all the same: {apply}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.search", description=__doc__)
    parser.add_argument("space", metavar="SPACE", type=Path, help="as search.yaml")
    parser.add_argument("--n", type=int, required=True, help="trials, at least 2; a grid may have fewer")
    parser.add_argument(
        "--sampler", choices=SAMPLERS, default="tpe", help="how points are chosen; random is Sobol's sequence; tpe"
    )
    parser.add_argument(
        "--min-epochs", type=int, metavar="E",
        help="successive halving: all trials run E epochs, the best third three times as many, and so on",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time, by DVC's queue; 1")
    arguments = parser.parse_args()
    with as_command():
        require_locked()
        search(arguments.space, arguments.n, arguments.sampler, arguments.jobs, arguments.min_epochs)


if __name__ == "__main__":
    main()
