"""Run seed groups, fold groups, and learning curves. Each size of a learning curve is a seed group."""

from collections.abc import Sequence

from pipeline.core.messages import UserError, log
from pipeline.core.paths import RAW
from pipeline.core.task import TRAIN
from pipeline.evaluation.intervals import MIN_EXAMPLES
from pipeline.experiments.launch import FOLD, SEED, STAGES, group_name, run_experiments, split_overrides
from pipeline.experiments.learning_curves import TOO_FEW_ROWS
from pipeline.experiments.runs import BASELINE_STAGES, Side, outdated_stages, read_side
from pipeline.params import load_params
from pipeline.sources.data_card import read_data_card

SIZE = "train.max_train_samples"


def run_seeds(n: int, settings: Sequence[Sequence[str]], jobs: int) -> list[Side]:
    """Run the seeds from 1 to n of each list of overrides. Runs that are finished do not run again."""
    groups = {group_name(overrides): overrides for overrides in settings}
    runs = {f"{group}-{seed}": [*groups[group], f"{SEED}={seed}"] for group in groups for seed in range(1, n + 1)}
    run_experiments(runs, jobs, ["predict"])
    return [Side(group, read_side(group).runs[:n]) for group in groups]


def run_folds(k: int, overrides: Sequence[str], jobs: int, model: str) -> tuple[Side, dict[str, Side]]:
    """Run the folds that are not finished. Return the fold group of `model`, and those of simpler models by name."""
    stages = BASELINE_STAGES if model == "frozen" else (*STAGES, "baseline")
    group = f"folds{k}-{group_name(overrides, FOLD, stages)}"
    if model == "frozen":
        group, overrides = f"frozen-{group}", [*overrides, "baseline.frozen=true"]
    runs = {f"{group}-{number}": [*overrides, f"{FOLD}={number}/{k}"] for number in range(1, k + 1)}
    run_experiments(runs, jobs, stages)
    simpler = {"linear": read_side(group, "linear")}
    if model != "frozen" and simpler["linear"].runs[0].origin["baseline.frozen"]:
        simpler["frozen"] = read_side(group, "frozen")
    return read_side(group), simpler


def run_sizes(points: int, seeds: int, overrides: Sequence[str], jobs: int) -> dict[int, Side]:
    """Run seed groups with all rows of train, a half, a quarter and so on, and return them by size, smallest first."""
    is_changed = any(key.startswith(("data.", SIZE)) for key in split_overrides(overrides))
    if is_changed or load_params().train.max_train_samples is not None:
        raise UserError(f"the sizes follow from {RAW}. Set {SIZE} to null, and do not use -S for it or for data.")
    splits = read_data_card(RAW).splits
    sizes = [splits[TRAIN].rows >> halvings for halvings in range(points)]
    if sizes[-1] == 0:
        raise UserError(f"train has {sizes[0]:,} rows, too few for {points} sizes. Use a smaller number of --points.")
    if splits["validation"].rows < MIN_EXAMPLES:
        log.warning("the answer to how much more rows would help will be unknown, because %s", TOO_FEW_ROWS)
    if "download" in outdated_stages():
        raise UserError(f'{RAW} is not up to date. Run "dvc repro download" first.')
    settings = [overrides, *([*overrides, f"{SIZE}={size}"] for size in sizes[1:])]
    sides = run_seeds(seeds, settings, jobs)
    return dict(zip(sizes[::-1], sides[::-1], strict=True))
