"""Read the results of a revision from git and from DVC's cache, without a checkout and without asking a remote."""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from yaml import YAMLError

from pipeline.core.data_card import DATA_CARD, read_data_card
from pipeline.core.messages import UserError, log
from pipeline.core.output import parse_details
from pipeline.core.parquet import read_split
from pipeline.core.paths import LINEAR, LOCK, METRICS_DIR, PARAMS, PREDICTIONS, PROVENANCE, RAW
from pipeline.core.task import TASK, TRAIN, Task, read_task
from pipeline.core.yaml12 import load_yaml
from pipeline.evaluation.predictions import Predictions, load_predictions
from pipeline.evaluation.signature import Signature, digest, signature
from pipeline.experiments.identity import SEED_KEY

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem

WORKSPACE = "workspace"
BASELINE = "baseline"  # the linear model in the workspace
# DVC keeps an experiment in refs/exps/<2 digits>/<38 digits>/<name>. The digits are the hash of the commit that it
# started from. Git lists the experiments here, because "dvc exp list" shows neither full hashes next to the names nor
# the order of creation.
EXPERIMENTS = "refs/exps/[0-9a-f][0-9a-f]/*/*"
# The names that `seeds` and `folds` give to their groups. The hash covers everything except the seed or the fold.
_GROUP = re.compile("seeds-[0-9a-f]{8}|folds-[0-9a-f]{8}-[0-9]+")
# The stages that lead to the predictions of a model.
_STAGES = ("download", "pretrained", "tokenize", "train", "predict")
_LINEAR_STAGES = ("download", "baseline")


class Run(NamedTuple):
    """Predictions and their origin.

    Attributes:
        commit: None for the workspace.
        parameters: The parameters in dvc.lock, because params.yaml may have been edited since. Also hashes of the data
            and of the base model, because a parameter may refer to different content under the same name.
        code: A hash of the modules that trained the model.
        environment: The environment of the training.
        signature: The score signature.
        predictions, texts: Keyed by split, in the same order.
    """

    name: str
    commit: str | None
    parameters: dict[str, Any]
    code: str
    environment: dict[str, Any]
    task: Task
    signature: Signature
    predictions: dict[str, Predictions]
    texts: dict[str, list[tuple[str, ...]]]

    @property
    def seed(self) -> int:
        return int(self.parameters[SEED_KEY])

    @property
    def split_parameters(self) -> dict[str, Any]:
        """The section data.split of params.yaml. Empty if the run has no such section."""
        return dict(self.parameters.get("data.split", {}))


def read_runs(name: str, seeds: int | None = None, *, linear: bool = False) -> list[Run]:
    """Read the run of a revision, or the runs of a group in the order of their seeds or folds.

    Args:
        name: A branch, tag, commit, experiment, seed group or fold group, "workspace", or "baseline" for the linear
            model there.
        seeds: The highest seed to read from a seed group. None means all seeds.
        linear: Whether to read the predictions of the linear model instead of those of the fine-tuned model.

    Raises:
        UserError: The run does not exist, or a result is incomplete, mixes several runs or is not in the cache.
    """
    if name == BASELINE and _commit(name):
        log.warning('"%s" means the linear model. To compare the revision with this name, use its commit.', BASELINE)
    if name in (WORKSPACE, BASELINE):
        _require_repository()
        commits: dict[str, str | None] = {name: None}
    elif commit := _commit(name):
        commits = {name: commit}
    else:
        group = group_commits(name) if _GROUP.fullmatch(name) else {}
        commits = {f"{name}-{number}": group[number] for number in group if seeds is None or number <= seeds}
    if not commits:
        raise UserError(
            f'"{name}" is not a branch, tag, commit, experiment, seed group or fold group. '
            'Run "git branch" or "dvc exp list -A" to list them.'
        )
    runs = []
    for run_name, commit in commits.items():
        with _open_revision(run_name, commit) as revision:
            runs.append(revision.read_run(linear or name == BASELINE))
    return runs


def experiment_commits() -> dict[str, str]:
    """Return the commit of each experiment, keyed by name. If several have the same name, the newest one counts."""
    _require_repository()
    listing = _git("for-each-ref", "--sort=creatordate", "--format=%(objectname) %(refname)", EXPERIMENTS) or ""
    references = [line.split(" ", 1) for line in listing.splitlines()]
    return {reference.rpartition("/")[2]: commit for commit, reference in references}


def group_commits(group: str) -> dict[int, str]:
    """Return the commits of the experiments named `group-<number>`, keyed by the number: the seed or the fold."""
    commits = {}
    for name, commit in experiment_commits().items():
        prefix, _, number = name.rpartition("-")
        if prefix == group and number.isdecimal():
            commits[int(number)] = commit
    return dict(sorted(commits.items()))


def read_train_details(commit: str) -> dict[str, Any]:
    """Read metrics/train.json of an experiment."""
    file = (METRICS_DIR / "train.json").as_posix()
    return parse_details(_git("show", f"{commit}:{file}") or "")


def count_train_rows(name: str) -> int:
    """Return the number of training examples in an experiment's data. Raises UserError if it is not in the cache."""
    with _open_revision(name, experiment_commits()[name]) as revision:
        return read_data_card(revision.fetch(RAW, DATA_CARD)).splits[TRAIN].rows


def _commit(name: str) -> str | None:
    """Return the commit of a name that git knows, or of the newest experiment with this name, or None."""
    experiment = experiment_commits().get(name)
    commit = (_git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") or "").strip()
    return commit if re.fullmatch("[0-9a-f]{40,64}", commit) else experiment  # For "^main", git prints a "^" first.


def _git(*arguments: str) -> str | None:
    """Return what a git command prints, or None if it fails."""
    result = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return None if result.returncode else result.stdout


def _require_repository() -> None:
    """Raise UserError unless the working directory is the top level of a git repository that uses DVC."""
    # Git prints the path from the top level to the working directory.
    result = subprocess.run(["git", "rev-parse", "--show-prefix"], capture_output=True, text=True)
    if result.returncode or result.stdout.strip() or not Path(".dvc").is_dir():
        reason = f" Git says: {result.stderr.splitlines()[0]}" if result.stderr else ""
        raise UserError(
            f"{Path.cwd()} is not the top level of a git repository that uses DVC. Run this in the directory that "
            f"contains dvc.yaml, which must be the top level of its repository.{reason}"
        )


@contextmanager
def _open_revision(name: str, commit: str | None) -> "Iterator[_Revision]":
    from dvc.api import DVCFileSystem
    from dvc.repo import Repo

    with closing(Repo()) as workspace:
        cache = workspace.cache.local_cache_dir  # The commit may name another cache, or a relative path to it.
    # Without a remote, DVC does not wait for files that are missing from the cache.
    config = {"core": {"remote": ""}, "cache": {"dir": cache}}
    with closing(DVCFileSystem(rev=commit, config=config)) as files, tempfile.TemporaryDirectory() as scratch:
        yield _Revision(name, commit, files, Path(scratch))


class _Revision(NamedTuple):
    """The files of a commit, or of the workspace.

    Attributes:
        scratch: A directory for copies of files from the cache.
    """

    name: str
    commit: str | None
    files: "DVCFileSystem"
    scratch: Path

    def read_run(self, linear: bool) -> Run:
        stages, output = (_LINEAR_STAGES, LINEAR) if linear else (_STAGES, PREDICTIONS)
        parameters, hashes = self._read_lock(stages, output)
        self._warn_of_edits(parameters)
        if self.commit is None:
            self._require_recorded_outputs(hashes)
        task = read_task(self.fetch(output, TASK), stages[-1])
        directory = self.fetch(output, PROVENANCE, *(f"{split}.parquet" for split in task.scored_splits))
        provenance = json.loads((directory / PROVENANCE).read_text(encoding="utf-8"))
        predictions = {split: load_predictions(directory, split, task, stages[-1]) for split in task.scored_splits}
        content = {
            "data": digest(provenance["data"]),
            "base model": digest(provenance["checkpoint"]),
            SEED_KEY: provenance["parameters"]["seed"],
        }
        return Run(
            name=self.name,
            commit=self.commit,
            parameters=parameters | content,
            code=provenance["code"],
            environment=provenance["environment"],
            task=task,
            signature=signature(directory, task, predictions),
            predictions=predictions,
            texts={split: self._texts(output, task, split, predictions[split]) for split in task.scored_splits},
        )

    def _read_lock(self, names: Sequence[str], output: Path) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what dvc.lock records: parameters with keys such as "train.lr", and the hashes of files, by path.

        Args:
            names: The stages to read.
            output: The output of the last one.

        Raises:
            UserError: dvc.lock mixes two runs, for example after `dvc repro train` alone.
        """
        parameters: dict[str, Any] = {}
        hashes: dict[str, str] = {}
        try:
            stages = self._yaml(LOCK)["stages"]
            for stage in [stages[name] for name in names if name in stages]:
                parameters |= _flatten(stage.get("params", {}).get(str(PARAMS), {}))
                for entry in [*stage.get("deps", []), *stage["outs"]]:
                    if hashes.setdefault(entry["path"], entry["md5"]) != entry["md5"]:
                        reason = f"{LOCK} has two versions of {entry['path']}, so its stages did not run together"
                        raise self._error(reason)
        except (AttributeError, KeyError, TypeError):  # DVC was killed while it wrote the file.
            raise self._error(f"{LOCK} is incomplete") from None
        if output.as_posix() not in hashes:
            raise self._error(f"{LOCK} has no entry for {output}")
        return parameters, hashes

    def _require_recorded_outputs(self, hashes: dict[str, str]) -> None:
        """Raise UserError if outputs in the workspace differ from dvc.lock."""
        from dvc.exceptions import DvcException
        from dvc.repo import Repo

        try:
            with closing(Repo()) as workspace:
                changes = workspace.data_status(with_renames=False)["uncommitted"]
        except DvcException as error:  # For example, dvc.yaml has a merge conflict.
            raise UserError(f'{WORKSPACE}: {error}. Run "dvc data status" to see why.') from None
        for state, paths in changes.items():
            for path in paths:
                if Path(path).as_posix() in hashes:
                    raise self._error(f"{Path(path).as_posix()} differs from what {LOCK} records ({state})")

    def _warn_of_edits(self, parameters: dict[str, Any]) -> None:
        current = _flatten(self._yaml(PARAMS))
        if edited := [key for key, value in parameters.items() if current.get(key) != value]:
            log.warning(
                "%s: the predictions come from the run in %s, but %s now has other values for %s",
                self.name, LOCK, PARAMS, ", ".join(edited),
            )  # fmt: skip

    def _texts(self, output: Path, task: Task, split: str, predictions: Predictions) -> list[tuple[str, ...]]:
        table = read_split(self.fetch(RAW, f"{split}.parquet"), split, "download")
        # With predict.max_samples, only the first examples have predictions.
        columns = table.slice(0, len(predictions.idx)).to_pydict()
        if columns["idx"] != predictions.idx.tolist():
            raise self._error(f"{output} and {RAW} contain different {split} {task.noun}")
        return list(zip(*(columns[name] for name in task.text_columns), strict=True))

    def fetch(self, directory: Path, *names: str) -> Path:
        """Copy files from one of DVC's directories, and return the directory of the copies."""
        copies = self.scratch / directory
        copies.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = f"/{directory.as_posix()}/{name}"
            try:
                if not self.files.isfile(path):  # The list of the files in the directory is not in the cache.
                    raise FileNotFoundError
                self.files.get_file(path, str(copies / name))
            except FileNotFoundError:
                remedy = 'Check out this revision, and run "dvc pull" if you have a remote, or "dvc repro".'
                if self.name in experiment_commits():
                    remedy = (
                        f'If you have a remote, run "dvc exp pull GIT_REMOTE {self.name}". Otherwise, run "dvc exp '
                        f'remove {self.name}", and repeat the command that made this experiment. If "dvc gc" has '
                        "deleted the results of a whole group, remove all of its runs first."
                    )
                raise UserError(f"{self.name}: {directory} is not in the DVC cache. {remedy}") from None
        return copies

    def _yaml(self, path: Path) -> Any:
        try:
            return load_yaml(self.files.read_text(f"/{path}", encoding="utf-8"))
        except FileNotFoundError:
            raise self._error(f"{path} is missing") from None
        except (ValueError, YAMLError) as error:
            raise self._error(f"{path} cannot be read: {' '.join(str(error).split())}") from None

    def _error(self, reason: str) -> UserError:
        repro = 'Run "dvc repro".'
        remedy = repro if self.commit is None else 'Check out this revision, run "dvc repro", and commit the result.'
        return UserError(f"{self.name}: {reason}. {remedy}")


def _flatten(sections: dict[str, Any]) -> dict[str, Any]:
    """Flatten {"train": {"lr": 0.1}, "train.precision": "bf16"}. DVC records both sections and single keys."""
    values: dict[str, Any] = {}
    for key, value in sections.items():
        if isinstance(value, dict) and "." not in key:
            values |= {f"{key}.{name}": entry for name, entry in value.items()}
        else:
            values[key] = value
    return values
