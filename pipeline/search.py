"""Search for better parameters, and end with a verdict: are the best ones better than those of params.yaml?

SPACE names the parameters and where to search: "train.lr: log(1e-5, 1e-4)", or uniform(0, 0.2), int(1, 5), or a list.
Each trial is a DVC experiment up to train, and is ranked by its score on validation. The best third of the trials get a
second seed. The best one and params.yaml then run with five fresh seeds, and are compared. Only then is test scored.
Finished trials are found by name: after a kill, the same command continues where it was, to the same result.
"""

import shlex
from pathlib import Path

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError
from pipeline.core.output import write_text
from pipeline.core.packages import require_locked
from pipeline.evaluation.metrics import title
from pipeline.experiments.comparison import compare, read_side
from pipeline.experiments.groups import group_name, run_seeds
from pipeline.experiments.identity import overridden
from pipeline.experiments.render import as_text
from pipeline.experiments.search import Study, require_comparable, trial_table
from pipeline.experiments.space import SAMPLERS, Sampler, read_space
from pipeline.params import LOCAL, PARAMS
from pipeline.sources.checkpoints import find
from pipeline.training.arguments import check_training

_SEEDS = 5  # of the verdict


def search(space_file: Path, n: int, sampler: str, jobs: int) -> None:
    """Run the study, print its trials, and compare the best one with params.yaml.

    The trials go to trials.csv in a directory with the name of the space file.

    Raises:
        UserError: The space or a number makes no sense, or all trials fail.
    """
    if n < 2 or jobs < 1:
        raise UserError(f"--n must be at least 2 and --jobs at least 1, got {n} and {jobs}.")
    space, directory = read_space(space_file), space_file.with_suffix("")
    require_comparable(space)
    for parameter in space:
        for text in parameter.extremes():
            _require_accepted(f"{parameter.key}={text}")
    study = Study(directory, Sampler(space, sampler), jobs)
    trials = study.run(n)
    table = trial_table(trials, f"validation {title(study.metric)}")
    write_text(directory / "trials.csv", table.to_csv(index=False, lineterminator="\n"))
    print(table.to_string(index=False, float_format="{:.4f}".format, na_rep="failed"), end="\n\n", flush=True)

    settings = trials[0].settings
    sides = []
    for overrides in ([], settings):
        run_seeds(_SEEDS, overrides, jobs)
        side = read_side(group_name(overrides))
        sides.append(side._replace(runs=side.runs[:_SEEDS]))  # It may have more from another command.
    comparison = compare(*sides)
    print(as_text(comparison))
    if comparison.task.verdict_split == "validation":
        print("The best trial was chosen on validation too, so part of its lead is luck.")
    advice = "To adopt B" if comparison.better == "B" else "Keep your current params.yaml. To adopt B anyway"
    command = shlex.join(["dvc", "exp", "run", *(word for setting in settings for word in ("-S", setting))])
    print(f"\n{advice}: {command}")


def _require_accepted(setting: str) -> None:
    """Raise UserError for a setting that the stage check would reject, in each of its trials."""
    params = overridden([setting])
    try:
        if setting.startswith("model.checkpoint="):
            find(params.model.checkpoint)
        if params.runtime.launcher == LOCAL:
            check_training(params.train, params.runtime)
    except UserError as error:
        raise UserError(str(error).replace(f"{PARAMS}:", f"{PARAMS} with {setting}:")) from None


def main() -> None:
    parser = command_parser("search", __doc__)
    parser.add_argument("space", metavar="SPACE", type=Path, help="a YAML file, such as search.yaml")
    parser.add_argument("--n", type=int, required=True, help="trials, at least 2; a grid may have fewer")
    parser.add_argument(
        "--sampler", choices=SAMPLERS, default="tpe",
        help="how points are chosen; random is Sobol's sequence; default: tpe",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at a time; default: 1")
    arguments = parser.parse_args()
    with as_command():
        require_locked()
        search(arguments.space, arguments.n, arguments.sampler, arguments.jobs)


if __name__ == "__main__":
    main()
