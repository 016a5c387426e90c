"""Search for better parameters, and end with a verdict: are the best ones better than those of params.yaml?

SPACE names the parameters and where to search: "train.lr: log(1e-5, 1e-4)", or uniform(0, 0.2), int(1, 5), or a list.
Each trial is a DVC experiment up to train, and is ranked by its score on validation; a third of the trials get a second
seed. The best one and the present parameters then run with five fresh seeds, and are compared: only then is test
scored. Trials are found again by name: after a kill, the same command goes on where it was, to the same result.
"""

import shlex
from pathlib import Path

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError
from pipeline.core.output import require_file_path, write_text
from pipeline.core.packages import require_locked
from pipeline.core.text import aligned
from pipeline.evaluation.signature import as_line
from pipeline.experiments.comparison import Comparison, Side, compare, judged_by
from pipeline.experiments.groups import group_name, run_seeds
from pipeline.experiments.identity import identity, overridden
from pipeline.experiments.render import as_text, score_rows
from pipeline.experiments.revisions import is_of_head, runs
from pipeline.experiments.search import Study, Trial, require_comparable, require_same_study, rungs
from pipeline.experiments.space import SAMPLERS, Parameter, Sampler, read_space
from pipeline.params import LOCAL, PARAMS, load_params
from pipeline.reporting.learning_curves import title
from pipeline.reporting.search_page import SearchResults, search_page
from pipeline.sources.checkpoints import find
from pipeline.training.arguments import check_training

_SEEDS = 5  # of the end
_CHOSEN = "The best trial was chosen on validation too: part of its lead is luck."


def search(space_file: Path, n: int, name: str, jobs: int, min_epochs: int | None) -> None:
    """Run the study, and print its best trials; of the best, the comparison with params.yaml, and how to adopt it.

    Raises UserError for a space or a number that makes no sense, and where all trials fail.
    """
    if n < 2 or jobs < 1:
        raise UserError(f"--n is {n} and --jobs {jobs}; at least 2 trials, and 1 job, make a search")
    space, directory = read_space(space_file), space_file.with_suffix("")
    require_comparable(space)
    if directory.is_file():
        raise UserError(
            f"{directory} is a file, and the results of {space_file} need a directory of that name; rename one"
        )
    for file in ("failed.json", "report.html", "study.json", "trials.csv"):
        require_file_path(directory / file)
    steps = rungs(load_params().train.epochs, min_epochs, space)
    for parameter in space:
        for value in parameter.to_check:
            _require_accepted(f"{parameter.key}={parameter.text(value)}")
    sampler = Sampler(space, name)
    study = Study(directory, space, sampler, steps, jobs)
    require_same_study(directory, jobs)
    trials = study.run(n)
    present, best = group_name([]), group_name(trials[0].settings)
    print("\n".join([*_best_trials(study, trials), ""]), flush=True)
    for settings in ([], trials[0].settings):
        run_seeds(_SEEDS, settings, jobs)
    # The first seeds: a group may have more, of another command, and the other side has not.
    metrics = load_params().evaluate.metrics
    sides = (Side(group, [judged_by(run, metrics) for run in runs(group)[:_SEEDS]]) for group in (present, best))
    comparison = compare(*sides)
    adopt = _adopt(best, trials[0].settings)
    results = _results(study, space, trials, sampler.importances(), comparison, adopt)
    write_text(directory / "report.html", search_page(results))
    print("\n".join([as_text(comparison), "", _expected(study)]))
    print(
        f"{'To adopt B' if comparison.better == 'B' else 'Keep params.yaml as it is; to take B all the same'}: {adopt}"
    )
    print(f"All trials: {directory / 'report.html'}")


def _require_accepted(setting: str) -> None:
    """Raise UserError for a setting that the stage check would reject, in each of its trials."""
    identity([setting])
    params = overridden([setting])
    try:
        if setting.startswith("model.checkpoint="):
            find(params.model.checkpoint)
        if params.runtime.launcher == LOCAL:
            check_training(params.train, params.runtime)
    except UserError as error:
        raise UserError(str(error).replace(f"{PARAMS}:", f"{PARAMS} with {setting}:")) from None


def _adopt(best: str, settings: list[str]) -> str:
    """The command that takes the best trial's parameters.

    "dvc exp apply" checks out all files as the run had them, and would undo what has been committed since.
    """
    if is_of_head(f"{best}-1"):
        return f"dvc exp apply {best}-1"
    return shlex.join(["dvc", "exp", "run", *(word for setting in settings for word in ("-S", setting))])


def _best_trials(study: Study, trials: list[Trial]) -> list[str]:
    """The lines of those that reached the last rung."""
    rows = [["trial", f"validation {title(study.metric)}", *trials[0].overrides]]
    for trial in trials:
        if study.reached(trial) == len(study.rungs):
            rows.append([str(trial.number), _shown(study.last_score(trial)), *trial.overrides.values()])
    return [*aligned(rows, "right"), f"Means over {len(study.rungs[-1].seeds)} seeds."]


def _expected(study: Study) -> str:
    """What fewer trials would find, in a line."""
    expected = study.expected_best()
    shown = [k for k in (1, 2, 5, 10, 20, 50, 100, 200) if k < len(expected)] + [len(expected)]
    length = study.rungs[0].length
    after = f" after {length}" if length else ""
    curve = ", ".join(f"{expected[k - 1]:.4f} of {k}" for k in shown)
    return f"The expected best validation {title(study.metric)} of one seed{after} is {curve} trials."


def _shown(score: float | None) -> str:
    return "failed" if score is None else f"{score:.4f}"


def _results(
    study: Study, space: list[Parameter], trials: list[Trial], importances: dict[str, float],
    comparison: Comparison, adopt: str,
) -> SearchResults:  # fmt: skip
    first = study.rungs[0]
    return SearchResults(
        title=title(study.metric),
        verdict=comparison.verdict,
        better=comparison.better == "B",
        caveats=[*comparison.caveats, *([] if comparison.task.verdict_split == "test" else [_CHOSEN])],
        signatures=[as_line(of) for of in comparison.signatures],
        scores=score_rows(comparison),
        adopt=adopt,
        trials=[
            {"number": trial.number, "score": study.last_score(trial), "rung": study.reached(trial),
             "first": trial.score(first), "overrides": trial.overrides}
            for trial in trials
        ],
        parameters={of.key: [of.shown(trial.overrides[of.key]) for trial in trials] for of in space},
        scales={parameter.key: parameter.scale for parameter in space},
        importances=importances,
        expected=study.expected_best(),
        length=first.length,
    )  # fmt: skip


def main() -> None:
    parser = command_parser("search", __doc__)
    parser.add_argument("space", metavar="SPACE", type=Path, help="a YAML file, as search.yaml")
    parser.add_argument("--n", type=int, required=True, help="trials, at least 2; a grid may have fewer")
    parser.add_argument(
        "--sampler", choices=SAMPLERS, default="tpe",
        help="how points are chosen; random is Sobol's sequence; default: tpe",
    )  # fmt: skip
    parser.add_argument(
        "--min-epochs", type=int, metavar="E",
        help="successive halving: all trials run E epochs, the best third three times as many, and so on",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, by DVC's queue; default: 1")
    arguments = parser.parse_args()
    with as_command():
        require_locked()
        search(arguments.space, arguments.n, arguments.sampler, arguments.jobs, arguments.min_epochs)


if __name__ == "__main__":
    main()
