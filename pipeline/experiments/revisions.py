"""What a revision of the project holds, from git and from DVC's cache: no checkout, and no remote is asked."""

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
from pipeline.core.paths import METRICS, PREDICTIONS, PROVENANCE, RAW
from pipeline.core.task import TASK, Task, read_task
from pipeline.core.yaml12 import load_yaml
from pipeline.evaluation.predictions import Predictions, load_predictions
from pipeline.evaluation.signature import Signature, signature
from pipeline.experiments.dvc_command import DVC
from pipeline.experiments.provenance import provenance
from pipeline.params import PARAMS

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem

WORKSPACE = "workspace"
_LOCK = Path("dvc.lock")
_PIPELINE = Path("dvc.yaml")
_ENVIRONMENT = METRICS / "environment.json"


class NoSuchRevision(UserError):
    """A name that neither git nor DVC knows."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'"{name}" is no branch, tag, commit, experiment or group of seeds; see "git branch" and "dvc exp list -A"'
        )


class Run(NamedTuple):
    """A result: what it was made with and where, its task, and by split its predictions and texts, sorted by `idx`.

    signature: of its scores.
    """

    name: str
    commit: str | None  # None: the workspace
    parameters: dict[str, Any]  # as dvc.lock records them: params.yaml may have been edited since
    code: dict[str, str]  # hashes of the files that no stage writes: modules, the lock file of the packages
    environment: dict[str, Any]
    task: Task
    signature: Signature
    predictions: dict[str, Predictions]
    texts: dict[str, list[tuple[str, ...]]]


class Revision:
    """A branch, tag, commit or experiment, or the workspace, while it is open; see `opened`."""

    def __init__(self, name: str, commit: str | None, files: "DVCFileSystem") -> None:
        self.name, self.commit = name, commit
        self._files = files

    def run(self) -> Run:
        """The run that made the predictions.

        Raises UserError where the result is incomplete, of several runs, or not in the cache.
        """
        pipeline, lock, params = map(self._yaml, (_PIPELINE, _LOCK, PARAMS))
        # DVC leaves stages that dvc.yaml no longer has in dvc.lock.
        recorded = ((lock or {}).get("stages") or {}).items()
        stages = {name: entries for name, entries in recorded if name in pipeline["stages"]}
        try:
            made = provenance(PREDICTIONS, stages)
        except UserError as error:
            raise UserError(f"{self.name}: {error}; {self._rerun()}") from None
        self._require_recorded(made.outs)
        if edited := [key for key, value in made.parameters.items() if _at(params, key) != value]:
            log.warning(
                "%s: %s has another %s than the run in %s, whose predictions these are",
                self.name, PARAMS, ", ".join(edited), _LOCK,
            )  # fmt: skip
        # The same parameter may name other content: other training pairs, another local checkpoint.
        parameters = made.parameters | made.sources
        return Run(self.name, self.commit, parameters, made.code, self.details("environment"), *self._scored())

    def _require_recorded(self, outs: dict[str, str]) -> None:
        """Raise UserError where the environment, or in the workspace any output, is not what dvc.lock records."""
        states = _uncommitted() if self.name == WORKSPACE else {}
        environment = self._text(_ENVIRONMENT).encode()  # git's, not DVC's
        if hashlib.md5(environment, usedforsecurity=False).hexdigest()[:8] != outs.get(str(_ENVIRONMENT)):
            states[str(_ENVIRONMENT)] = "modified"
        for path in states.keys() & outs.keys():
            raise UserError(f"{self.name}: {path} is not what {_LOCK} records ({states[path]}); {self._rerun()}")

    def evaluation(self) -> dict[str, Any]:
        """The content of `metrics/evaluation.json`. Raises UserError where the revision has none."""
        content: dict[str, Any] = json.loads(self._text(METRICS / "evaluation.json"))
        return content

    def details(self, name: str) -> dict[str, Any]:
        """The details in `metrics/name.json`. Raises UserError where the revision has none."""
        try:
            return parse_details(self._text(METRICS / f"{name}.json"))
        except ValueError as error:
            raise UserError(f"{self.name}: metrics/{name}.json is {error}; {self._rerun()}") from None

    def _scored(self) -> tuple[Task, Signature, dict[str, Predictions], dict[str, list[tuple[str, ...]]]]:
        """The task, the signature, and the predictions and the texts of each scored split, sorted by `idx`."""
        from pipeline.core.tables import read_split

        with self._directory(PREDICTIONS, [TASK]) as directory:
            task = read_task(directory, "predict")
        splits = [f"{split}.parquet" for split in task.scored]
        with self._directory(PREDICTIONS, [PROVENANCE, *splits]) as directory:
            predictions = {split: load_predictions(directory, split, task).sorted_by_idx() for split in task.scored}
            signed = signature(directory, task, predictions)
        with self._directory(RAW, splits) as directory:
            raw = {split: read_split(directory, split, "download") for split in task.scored}
        texts = {}
        for split, table in raw.items():
            # The first rows, where predict.max_samples is set.
            rows = table.slice(0, len(predictions[split].idx)).sort_by("idx").to_pydict()
            if rows["idx"] != predictions[split].idx.tolist():
                raise UserError(f"{self.name}: {PREDICTIONS} and {RAW} hold different {split} rows; {self._rerun()}")
            texts[split] = list(zip(*(rows[column] for column in task.text_columns), strict=True))
        return task, signed, predictions, texts

    @contextmanager
    def _directory(self, directory: Path, names: list[str]) -> Iterator[Path]:
        """Yield a directory with some files of `directory` as the revision has them."""
        if self.name == WORKSPACE:  # what lies there, and not what DVC could restore
            yield directory
            return
        if not self._files.exists(f"/{directory}"):
            raise UserError(f"{self.name} has no {directory}; {self._rerun()}")
        with tempfile.TemporaryDirectory() as scratch:
            for name in names:
                self._fetch(directory, name, Path(scratch))
            yield Path(scratch)

    def _fetch(self, directory: Path, name: str, target: Path) -> None:
        """Copy a file of one of DVC's directories from the cache to another. Raises UserError where it is not there."""
        path = f"/{directory}/{name}"
        try:
            if not self._files.isfile(path):  # the cache lacks the list of the directory's files
                raise FileNotFoundError
            self._files.get_file(path, str(target / name))
        except FileNotFoundError:
            raise UserError(
                f'{self.name}: {directory} is not in the cache; check it out and run "dvc pull", or run it again'
            ) from None

    def _yaml(self, path: Path) -> Any:
        try:
            return load_yaml(self._text(path))
        except ValueError as error:
            raise UserError(f"{self.name}: {path} cannot be read: {error}; {self._rerun()}") from None

    def _text(self, path: Path) -> str:
        if self.commit is None:
            text = path.read_text(encoding="utf-8") if path.exists() else None
        else:
            text = _git("show", f"{self.commit}:./{path}")
        if text is None:
            raise UserError(f"{self.name} has no {path}; {self._rerun()}")
        return text

    def _rerun(self) -> str:
        return 'run "dvc repro"' if self.name == WORKSPACE else 'it needs a committed result: "dvc repro", "git commit"'


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _uncommitted() -> dict[str, str]:
    """The outputs in the workspace that are not what dvc.lock records, each with its state, such as "modified"."""
    command = [*DVC, "data", "status", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise UserError(f"{WORKSPACE}: dvc data status fails; see its message above")
    states = {}
    for state, changes in json.loads(done.stdout).get("uncommitted", {}).items():
        for change in changes:
            for path in change.values() if isinstance(change, dict) else [change]:  # a renamed output: both its paths
                states[str(Path(path))] = state
    return states


@contextmanager
def opened(name: str, reference: str | None = None) -> Iterator[Revision]:
    """Open a revision by its name; `reference` is git's name for it, where that is another.

    Raises NoSuchRevision, and UserError where there is no repository.
    """
    from dvc.api import DVCFileSystem
    from dvc.repo import Repo

    _require_repository()
    commit = None if name == WORKSPACE else _commit(reference or name)
    with closing(Repo()) as workspace:
        cache = workspace.cache.local_cache_dir  # a commit may name another, or a path that starts elsewhere
    # No remote: what is not in the cache is not waited for.
    with closing(DVCFileSystem(rev=commit, config={"core": {"remote": ""}, "cache": {"dir": cache}})) as files:
        yield Revision(name, commit, files)


def _commit(name: str) -> str:
    """The commit that a name of git's or of an experiment stands for; of experiments of one name, the newest."""
    for reference in (name, experiment_names().get(name)):
        found = _git("rev-parse", "--verify", "--quiet", reference) if reference else None
        commit = _git("rev-parse", "--verify", "--quiet", f"{found.strip()}^{{commit}}") if found else None
        if commit and re.fullmatch("[0-9a-f]{40,64}", commit.strip()):  # not so of "^main"
            return commit.strip()
    raise NoSuchRevision(name)


def _experiments() -> Iterator[tuple[str, str]]:
    """Name and git reference of each experiment, whatever commit it is based on; oldest first."""
    _require_repository()
    listed = _git("for-each-ref", "--sort=creatordate", "--format=%(refname)", EXPERIMENTS) or ""
    for reference in listed.splitlines():
        yield reference.rpartition("/")[2], reference


# Where DVC keeps experiments: refs/exps/<first 2 digits of the commit it is based on>/<the other 38>/<name>. Read from
# git, since "dvc exp list" gives no full hashes beside the names, and not the order in which they were made.
EXPERIMENTS = "refs/exps/[0-9a-f][0-9a-f]/*/*"


def _git(*arguments: str) -> str | None:
    """What a git command prints, None where it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return None if done.returncode else done.stdout


def _require_repository() -> None:
    """Raise UserError where git or DVC has no repository in the working directory, or git's starts further up."""
    done = subprocess.run(["git", "rev-parse", "--show-prefix"], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"git: {done.stderr.splitlines()[0]}; run in the directory that holds dvc.yaml")
    if not Path(".dvc").is_dir():
        raise UserError("there is no .dvc here; run in the directory that holds dvc.yaml")
    if prefix := done.stdout.strip():
        raise UserError(f"dvc.yaml must be at the top of a git repository, and is in {prefix}; give it one of its own")


def experiments(group: str) -> dict[int, str]:
    """The references of the experiments named `group-<seed>`, by seed; of those of one seed, the newest."""
    matches = ((re.fullmatch(rf"{re.escape(group)}-(\d+)", name), reference) for name, reference in _experiments())
    return dict(sorted({int(match[1]): reference for match, reference in matches if match}.items()))


def experiment_names() -> dict[str, str]:
    """The references of all experiments by name; of those of one name, the newest."""
    return dict(_experiments())


def is_of_head(name: str) -> bool:
    """Whether an experiment is based on the commit that is checked out."""
    base = "".join(experiment_names()[name].split("/")[2:4])
    return base == (_git("rev-parse", "HEAD") or "").strip()


def runs(name: str) -> list[Run]:
    """The runs that a name stands for: one, or a group's experiments `name-<seed>` by seed.

    Raises UserError where there is none, and where a result is incomplete.
    """
    try:
        with opened(name) as revision:
            return [revision.run()]
    except NoSuchRevision:
        group = experiments(name)
        if not group:
            raise
    found = []
    for seed, reference in group.items():
        with opened(f"{name}-{seed}", reference) as revision:
            found.append(revision.run())
    return found
