"""The results of a revision, read from git and from DVC's cache without a checkout. No remote is asked."""

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.details import parse_details
from pipeline.core.messages import UserError, log
from pipeline.core.parquet import read_split
from pipeline.core.paths import METRICS, PREDICTIONS, PROVENANCE, RAW
from pipeline.core.task import TASK, Task, read_task
from pipeline.core.yaml12 import load_yaml
from pipeline.evaluation.predictions import Predictions, load_predictions
from pipeline.evaluation.signature import Signature, signature
from pipeline.experiments.dvc_command import DVC
from pipeline.experiments.identity import SEED
from pipeline.params import PARAMS

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem

WORKSPACE = "workspace"
_LOCK = Path("dvc.lock")
_STAGES = ("download", "pretrained", "tokenize", "train", "predict")  # that lead to predictions


class Run(NamedTuple):
    """Predictions and their origin.

    Attributes:
        commit: None for the workspace.
        parameters: those in dvc.lock, because params.yaml may have been edited since; and hashes of the data and of the
            base model, because the same parameter may name other content.
        code: a hash of the modules that trained the model.
        environment: of the training.
        signature: of the scores.
        predictions, texts: by split, sorted by `idx`.
    """

    name: str
    commit: str | None
    parameters: dict[str, Any]
    code: dict[str, str]
    environment: dict[str, Any]
    task: Task
    signature: Signature
    predictions: dict[str, Predictions]
    texts: dict[str, list[tuple[str, ...]]]

    @property
    def seed(self) -> int:
        return int(self.parameters[SEED])


class Revision:
    """A branch, tag, commit or experiment, or the workspace; see `opened`."""

    def __init__(self, name: str, commit: str | None, files: "DVCFileSystem", scratch: Path) -> None:
        self.name, self.commit = name, commit
        self._files, self._scratch = files, scratch

    def run(self) -> Run:
        """Read the run that made the predictions.

        Raises:
            UserError: if the result is incomplete, mixes several runs, or is not in the cache.
        """
        parameters = self._parameters()
        task = read_task(self._fetch(PREDICTIONS, TASK), "predict")
        directory = self._fetch(PREDICTIONS, PROVENANCE, *(f"{split}.parquet" for split in task.scored))
        provenance = json.loads((directory / PROVENANCE).read_text(encoding="utf-8"))
        predictions = {split: load_predictions(directory, split, task).sorted_by_idx() for split in task.scored}
        hashes = {"data": _digest(provenance["data"]), "base model": _digest(provenance["checkpoint"])}
        return Run(
            name=self.name,
            commit=self.commit,
            parameters=parameters | hashes,
            code={"training code": provenance["code"]},
            environment=provenance["environment"],
            task=task,
            signature=signature(directory, task, predictions),
            predictions=predictions,
            texts={split: self._texts(task, split, predictions[split]) for split in task.scored},
        )

    def metrics(self, name: str) -> dict[str, Any]:
        """Read `metrics/name.json`, a metric or details. Raises UserError if there is no such file."""
        text = self._text(METRICS / f"{name}.json")
        try:
            content: dict[str, Any] = json.loads(text) if name == "evaluation" else parse_details(text)
        except ValueError as error:
            raise self._error(f"metrics/{name}.json is {error}") from None
        return content

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters that dvc.lock records, by keys such as "train.lr".

        Raises:
            UserError: if dvc.lock mixes two runs, for example after `dvc repro train` alone, or if the workspace has
                other outputs than dvc.lock.
        """
        stages, current = (self._yaml(_LOCK) or {}).get("stages") or {}, _by_key(self._yaml(PARAMS))
        parameters: dict[str, Any] = {}
        hashes: dict[str, str] = {}
        try:
            for stage in [stages[name] for name in _STAGES if name in stages]:
                parameters |= _by_key(stage.get("params", {}).get(str(PARAMS), {}))
                for entry in [*stage.get("deps", []), *stage["outs"]]:
                    if hashes.setdefault(entry["path"], entry["md5"]) != entry["md5"]:
                        reason = f"{_LOCK} has two versions of {entry['path']}, so its stages did not run together"
                        raise self._error(reason)
        except (AttributeError, KeyError, TypeError):  # DVC was killed while it wrote the file.
            raise self._error(f"{_LOCK} is not complete") from None
        if str(PREDICTIONS) not in hashes:
            raise self._error(f"{_LOCK} has no {PREDICTIONS}")
        for path, state in _changed_outputs().items() if self.commit is None else ():
            if path in hashes:
                raise self._error(f"{path} is not what {_LOCK} records ({state})")
        if edited := [key for key, value in parameters.items() if current.get(key) != value]:
            log.warning(
                "%s: %s has a different %s than the run in %s, which made these predictions",
                self.name, PARAMS, ", ".join(edited), _LOCK,
            )  # fmt: skip
        return parameters

    def _texts(self, task: Task, split: str, predictions: Predictions) -> list[tuple[str, ...]]:
        table = read_split(self._fetch(RAW, f"{split}.parquet"), split, "download")
        # With predict.max_samples, only the first examples have predictions.
        columns = table.slice(0, len(predictions.idx)).sort_by("idx").to_pydict()
        if columns["idx"] != predictions.idx.tolist():
            raise self._error(f"{PREDICTIONS} and {RAW} hold different {split} {task.noun}")
        return list(zip(*(columns[name] for name in task.text_columns), strict=True))

    def _fetch(self, directory: Path, *names: str) -> Path:
        """Copy files of one of DVC's directories, and return the directory of the copies."""
        copies = self._scratch / directory
        copies.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = f"/{directory}/{name}"
            try:
                if not self._files.isfile(path):  # The list of the directory's files is not in the cache.
                    raise FileNotFoundError
                self._files.get_file(path, str(copies / name))
            except FileNotFoundError:
                raise UserError(
                    f'{self.name}: {directory} is not in the cache; check it out and run "dvc pull", or "dvc repro"'
                ) from None
        return copies

    def _yaml(self, path: Path) -> Any:
        try:
            return load_yaml(self._text(path))
        except ValueError as error:
            raise self._error(f"{path} cannot be read: {error}") from None

    def _text(self, path: Path) -> str:
        try:
            text: str = self._files.read_text(f"/{path}", encoding="utf-8")
        except FileNotFoundError:
            raise self._error(f"{path} is missing") from None
        return text

    def _error(self, reason: str) -> UserError:
        remedy = 'run "dvc repro"' if self.commit is None else 'it needs a committed result: "dvc repro", "git commit"'
        return UserError(f"{self.name}: {reason}; {remedy}")


def _by_key(sections: dict[str, Any]) -> dict[str, Any]:
    """Flatten {"train": {"lr": 0.1}, "train.precision": "bf16"}, as DVC records sections and single keys."""
    values: dict[str, Any] = {}
    for key, value in sections.items():
        if isinstance(value, dict) and "." not in key:
            values |= {f"{key}.{name}": entry for name, entry in value.items()}
        else:
            values[key] = value
    return values


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def _changed_outputs() -> dict[str, str]:
    """Return the state, such as "modified", of each output in the workspace that dvc.lock does not record."""
    done = subprocess.run([*DVC, "data", "status", "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise UserError(f"{WORKSPACE}: dvc data status fails; see its message above")
    states = {}
    for state, changes in json.loads(done.stdout).get("uncommitted", {}).items():
        for change in changes:
            for path in change.values() if isinstance(change, dict) else [change]:  # A renamed output has two paths.
                states[str(Path(path))] = state
    return states


@contextmanager
def opened(name: str, reference: str | None = None) -> Iterator[Revision]:
    """Open a revision by its name, or by `reference` if git has another name for it.

    Raises:
        UserError: if neither git nor DVC knows it, or if there is no repository.
    """
    from dvc.api import DVCFileSystem
    from dvc.repo import Repo

    _require_repository()
    commit = None if name == WORKSPACE else _commit(reference or name)
    if commit is None and name != WORKSPACE:
        raise UserError(
            f'"{name}" is not a branch, tag, commit, experiment or seed group; see "git branch" and "dvc exp list -A"'
        )
    with closing(Repo()) as workspace:
        cache = workspace.cache.local_cache_dir  # A commit may name another one, or a path that starts elsewhere.
    # Without a remote, it does not wait for files that are missing from the cache.
    config = {"core": {"remote": ""}, "cache": {"dir": cache}}
    with closing(DVCFileSystem(rev=commit, config=config)) as files, tempfile.TemporaryDirectory() as scratch:
        yield Revision(name, commit, files, Path(scratch))


def _commit(name: str) -> str | None:
    """Return the commit of a name that git knows, or of the newest experiment with this name; None if there is none."""
    for reference in (name, experiment_names().get(name)):
        commit = _git("rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}") if reference else None
        if commit and re.fullmatch("[0-9a-f]{40,64}", commit.strip()):  # not so for "^main"
            return commit.strip()
    return None


# DVC keeps experiments in refs/exps/<first 2 digits of the commit that it started from>/<the other 38>/<name>. They are
# read from git, because "dvc exp list" gives neither full hashes next to the names nor the order of creation.
EXPERIMENTS = "refs/exps/[0-9a-f][0-9a-f]/*/*"


def experiment_names() -> dict[str, str]:
    """Return the git reference of each experiment by its name; with several of one name, that of the newest."""
    _require_repository()
    references = _git("for-each-ref", "--sort=creatordate", "--format=%(refname)", EXPERIMENTS) or ""
    return {reference.rpartition("/")[2]: reference for reference in references.splitlines()}


def experiments(group: str) -> dict[int, str]:
    """Return the references of the experiments named `group-<seed>`, by seed."""
    matches = {re.fullmatch(rf"{re.escape(group)}-(\d+)", name): ref for name, ref in experiment_names().items()}
    return dict(sorted((int(match[1]), reference) for match, reference in matches.items() if match))


def _git(*arguments: str) -> str | None:
    """Return what a git command prints, None if it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return None if done.returncode else done.stdout


def _require_repository() -> None:
    """Raise UserError unless the working directory is the top of a git repository with DVC."""
    done = subprocess.run(["git", "rev-parse", "--show-prefix"], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"git: {done.stderr.splitlines()[0]}; run in the directory that holds dvc.yaml")
    if not Path(".dvc").is_dir():
        raise UserError("there is no .dvc here; run in the directory that holds dvc.yaml")
    if prefix := done.stdout.strip():
        raise UserError(f"dvc.yaml must be at the top of a git repository, and is in {prefix}; give it one of its own")


def runs(name: str) -> list[Run]:
    """Read the run of a revision, or the runs of a seed group in the order of the seeds.

    Raises:
        UserError: if there is none, or if a result is incomplete.
    """
    group = {} if name == WORKSPACE or _commit(name) else experiments(name)
    references = {f"{name}-{seed}": reference for seed, reference in group.items()} or {name: name}
    results = []
    for revision_name, reference in references.items():
        with opened(revision_name, reference) as revision:
            results.append(revision.run())
    return results
