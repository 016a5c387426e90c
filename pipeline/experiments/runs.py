"""Read what models predict, and where the predictions come from, out of git and DVC's cache, without a checkout."""

import re
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError
from pipeline.core.paths import BASELINES, LOCK, PARAMS, PREDICTIONS, PROVENANCE, read_json
from pipeline.core.stage import leaves
from pipeline.core.task import TASK, Task, read_task
from pipeline.core.text import listing
from pipeline.core.yaml12 import load_yaml
from pipeline.evaluation.metrics import METRICS, with_compared_metrics
from pipeline.evaluation.predictions import Predictions, load_predictions, pool
from pipeline.experiments.launch import FOLD, SEED, STAGES, cache_directory, experiments, git, hash_record
from pipeline.params import load_params

WORKSPACE = "workspace"
SIMPLE_MODELS = ("linear", "frozen")  # in the workspace
OUT_OF_FOLD = "out-of-fold"  # the only split of the pooled run of a fold group
BASELINE_STAGES = ("download", "pretrained", "baseline")


@dataclass(frozen=True)
class Run:
    """The predictions of a model, and their origin.

    Attributes:
        origin: Everything that may differ between two runs: the "model", the parameters ("train.lr"), the hashes of
            code and files ("pipeline/core", "data", "base model"), and the environment ("environment.torch").
        predictions: Keyed by split.
    """

    name: str
    task: Task
    origin: dict[str, Any]
    predictions: dict[str, Predictions] = field(repr=False)


@dataclass(frozen=True)
class Side:
    """A single run, a seed group, or a fold group.

    Attributes:
        runs: For a fold group, a single run with the predictions of all folds.
        folds: The runs of the folds. Empty unless this is a fold group.
    """

    name: str
    runs: list[Run]
    folds: list[Run] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return "fold group" if self.folds else "seed group" if len(self.runs) > 1 else "single run"

    @property
    def task(self) -> Task:
        return self.runs[0].task

    @property
    def seeds(self) -> list[int]:
        return [run.origin[SEED] for run in self.runs]

    def scored(self, split: str) -> dict[str, Predictions]:
        """Return what each run predicts for a split, or each fold for the rows that it left out, by name."""
        if self.folds:
            return {fold.name: fold.predictions["test"] for fold in self.folds}
        return {run.name: run.predictions[split] for run in self.runs}

    def warnings(self, split: str) -> list[str]:
        """Return a sentence that names the runs or folds that have learned nothing, or an empty list."""
        if METRICS[self.task.metrics[0]].is_ranking:  # Such a score does not depend on the predictions.
            return []
        names = [name for name, part in self.scored(split).items() if part.is_constant]
        return [f"Warning: the same prediction for all {split} {self.task.noun} in {listing(names)}."] if names else []


def read_side(name: str, model: str | None = None) -> Side:
    """Read a run or a group. Raises UserError if it does not exist, or its runs do not belong together.

    Args:
        name: A branch, tag, commit, experiment or group, "workspace", "linear" or "frozen".
        model: "linear" or "frozen". By default, a group of `folds --model frozen` is frozen, and others are fine-tuned.
    """
    if name == "frozen" and not (load_params().baseline.frozen or (BASELINES / name).exists()):
        raise UserError('params.yaml: baseline.frozen is false. Set it to true, and run "dvc repro".')
    if name in (WORKSPACE, *SIMPLE_MODELS):
        return Side(name, [_read_run(name, None, None if name == WORKSPACE else name)])
    if model is None and name.startswith("frozen-folds"):
        model = "frozen"
    commits = experiments()
    commit = commits.get(name)
    with suppress(UserError):  # Git does not know the name of a group.
        commit = commit or git("rev-parse", "--verify", f"{name}^{{commit}}").strip()
    if commit:
        return Side(name, [_read_run(name, commit, model)])
    numbers = {int(run.rpartition("-")[2]): run for run in commits if re.fullmatch(re.escape(name) + "-[0-9]+", run)}
    if not numbers:
        raise UserError(f'"{name}" is not a branch, tag, commit, experiment or group. "dvc exp list -A" lists runs.')
    runs = [_read_run(run, commits[run], model) for _, run in sorted(numbers.items())]
    varied = FOLD if name.startswith(("folds", "frozen-folds")) and runs[0].origin[FOLD] else SEED
    for run in runs[1:]:
        if keys := sorted(changes(runs[0].origin, run.origin).keys() - {varied}):
            advice = f'Remove the wrong one, for example with "dvc exp remove {run.name}", and run the group again.'
            raise UserError(f"{runs[0].name} and {run.name} are not a group: they differ in {listing(keys)}. {advice}")
    return Side(name, runs) if varied == SEED else _fold_side(name, runs)


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the entries that differ. A missing entry has the value None."""
    return {key: (a.get(key), b.get(key)) for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)}


def outdated_stages() -> list[str]:
    """Return the stages that have to run again before the predictions in the workspace are up to date."""
    from dvc.repo import Repo

    with Repo() as repo:
        return list(repo.status([*STAGES, *BASELINE_STAGES]))


def _fold_side(name: str, folds: list[Run]) -> Side:
    """Return a fold group with a pooled run. Raises UserError if a fold is missing."""
    origin = folds[0].origin
    k = int(origin[FOLD].partition("/")[2])
    if missing := {f"{number}/{k}" for number in range(1, k + 1)} - {fold.origin[FOLD] for fold in folds}:
        raise UserError(f'{name} has no fold {listing(sorted(missing))}. Repeat "python -m pipeline.folds".')
    task = replace(folds[0].task, predicted_splits=[OUT_OF_FOLD])
    pooled = pool([fold.predictions["test"] for fold in folds])
    return Side(name, [Run(name, task, origin | {FOLD: f"{k} folds"}, {OUT_OF_FOLD: pooled})], folds)


def _read_run(name: str, commit: str | None, model: str | None) -> Run:
    """Read the run of a commit, or of the workspace if `commit` is None."""
    output, stages = (BASELINES / model, BASELINE_STAGES) if model else (PREDICTIONS, STAGES)
    with tempfile.TemporaryDirectory() as scratch:
        directory = output if commit is None else _fetch(name, commit, output, Path(scratch))
        task = with_compared_metrics(read_task(directory), load_params().evaluate.metrics)
        provenance = read_json(directory / PROVENANCE)
        predictions = {split: load_predictions(directory, split, task) for split in task.scored_splits}
    lock = LOCK.read_text(encoding="utf-8") if commit is None else git("show", f"{commit}:{LOCK}")
    origin = {"model": model or "fine-tuned"} | _origin(load_yaml(lock)["stages"], stages, provenance)
    return Run(name, task, origin, predictions)


def _fetch(name: str, commit: str, output: Path, scratch: Path) -> Path:
    """Copy an output of a commit from DVC's cache. Raises UserError if it is not there."""
    from dvc.api import DVCFileSystem

    # The commit may name another cache. Without a remote, DVC does not wait for files that are missing from the cache.
    config = {"core": {"remote": ""}, "cache": {"dir": cache_directory()}}
    try:
        with closing(DVCFileSystem(rev=commit, config=config)) as files:
            if not files.isfile(f"/{output.as_posix()}/{TASK}"):  # not even the list of the files
                raise FileNotFoundError
            files.get(f"/{output.as_posix()}", str(scratch / output.name), recursive=True)
    except FileNotFoundError:
        raise UserError(
            f'{name}: {output} is not in the DVC cache. If you have a remote, run "dvc exp pull GIT_REMOTE {name}" for '
            f'an experiment, or "git switch {name}" and "dvc pull". Otherwise, run it again (for an experiment, after '
            f'"dvc exp remove {name}").'
        ) from None
    return scratch / output.name


def _origin(lock: dict[str, Any], stages: tuple[str, ...], provenance: dict[str, Any]) -> dict[str, Any]:
    """Return `Run.origin`: what dvc.lock says that stages depend on, and what the model was really made from."""
    if missing := [stage for stage in stages if stage not in lock]:
        raise UserError(f'dvc.lock has no results of {listing(missing)}. Run "dvc repro", and commit the result.')
    written = {entry["path"] for stage in lock.values() for entry in stage.get("outs", [])}
    origin: dict[str, Any] = {SEED: 0}  # for the simple models, which do not depend on a seed
    for stage in [lock[name] for name in stages]:
        origin |= dict(leaves(stage.get("params", {}).get(str(PARAMS), {})))
        origin |= {entry["path"]: entry["md5"][:12] for entry in stage["deps"] if entry["path"] not in written}
    origin |= {f"environment.{key}": value for key, value in provenance["environment"].items()}
    return origin | {"data": hash_record(provenance["data"]), "base model": hash_record(provenance["checkpoint"])}
