"""What a revision of the project holds, read through DVC: nothing is checked out, and no remote is asked."""

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.messages import UserError, log
from pipeline.core.paths import METRICS, PREDICTIONS, RAW, SCORED
from pipeline.evaluation.predictions import Predictions, load_predictions
from pipeline.experiments.provenance import provenance
from pipeline.params import PARAMS

if TYPE_CHECKING:
    from dvc.repo import Repo

WORKSPACE = "workspace"
_LOCK = Path("dvc.lock")
_PIPELINE = Path("dvc.yaml")
_ENVIRONMENT = METRICS / "environment.json"


class NoSuchRevision(UserError):
    """Neither git nor DVC knows the name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'"{name}" is no branch, tag, commit, experiment or group of seeds; see "git branch" and "dvc exp list -A"'
        )


class Run(NamedTuple):
    """A result: what it was made with and where, and by split its predictions and sentence pairs, sorted by `idx`."""

    name: str
    commit: str | None  # None: the workspace
    parameters: dict[str, Any]  # as dvc.lock records them: params.yaml may have been edited since
    code: dict[str, str]  # hashes of the files that no stage makes: modules, the list of packages
    environment: dict[str, Any]
    predictions: dict[str, Predictions]
    sentences: dict[str, list[tuple[str, str]]]


class Revision:
    """A branch, tag, commit or experiment, or the workspace, while it is open; see `opened`."""

    def __init__(self, name: str, commit: str | None, repo: "Repo") -> None:
        from dvc.api import DVCFileSystem

        self.name, self.commit = name, commit
        self._repo, self._files = repo, DVCFileSystem(repo)

    def run(self) -> Run:
        """The run that made the predictions.

        Raises UserError where the revision holds no whole result or one of several runs, and where the cache lacks it.
        """
        from dvc.utils.serialize import parse_yaml  # YAML 1.2; PyYAML takes 3e-05 for text

        pipeline, lock, params = (parse_yaml(self._text(path), path) for path in (_PIPELINE, _LOCK, PARAMS))
        # DVC leaves stages that dvc.yaml no longer has in dvc.lock.
        stages = {name: entries for name, entries in lock["stages"].items() if name in pipeline["stages"]}
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
        # What one parameter names may have changed: the training pairs where the scored ones agree, a local checkpoint.
        parameters = made.parameters | made.sources
        return Run(self.name, self.commit, parameters, made.code, self.metrics("environment"), *self._pairs())

    def _require_recorded(self, outs: dict[str, str]) -> None:
        """Raises UserError where the environment, or in the workspace any output, is not what dvc.lock records."""
        states = {}
        if self.name == WORKSPACE:
            uncommitted = self._repo.data_status(with_renames=False)["uncommitted"]
            states = {str(Path(path)): state for state, paths in uncommitted.items() for path in paths}
        environment = self._text(_ENVIRONMENT).encode()  # git's, not DVC's
        if hashlib.md5(environment, usedforsecurity=False).hexdigest()[:8] != outs.get(str(_ENVIRONMENT)):
            states[str(_ENVIRONMENT)] = "modified"
        for path in states.keys() & outs.keys():
            raise UserError(f"{self.name}: {path} is not what {_LOCK} records ({states[path]}); {self._rerun()}")

    def metrics(self, name: str) -> dict[str, Any]:
        """The content of `metrics/name.json`. Raises UserError where the revision has none."""
        content: dict[str, Any] = json.loads(self._text(METRICS / f"{name}.json"))
        return content

    def _pairs(self) -> tuple[dict[str, Predictions], dict[str, list[tuple[str, str]]]]:
        """The predictions and the sentence pairs of each scored split, sorted by `idx`."""
        from pipeline.core.tables import read_split

        with self._directory(PREDICTIONS) as directory:
            predictions = {split: load_predictions(directory, split).sorted_by_idx() for split in SCORED}
        with self._directory(RAW) as directory:
            raw = {split: read_split(directory, split, "download").with_format("arrow")[:] for split in SCORED}
        sentences = {}
        for split, table in raw.items():
            pairs = table.sort_by("idx").to_pydict()
            if pairs["idx"] != predictions[split].idx.tolist():
                raise UserError(f"{self.name}: {PREDICTIONS} and {RAW} hold different {split} pairs; {self._rerun()}")
            sentences[split] = list(zip(pairs["sentence1"], pairs["sentence2"], strict=True))
        return predictions, sentences

    @contextmanager
    def _directory(self, directory: Path) -> Iterator[Path]:
        """Yield a directory with the scored splits of `directory` as the revision has them."""
        from dvc_data.index import DataIndexDirError

        if self.name == WORKSPACE:  # what lies there, and not what DVC could restore
            yield directory
            return
        if not self._files.exists(f"/{directory}"):
            raise UserError(f"{self.name} has no {directory}; {self._rerun()}")
        with tempfile.TemporaryDirectory() as scratch:
            try:
                for split in SCORED:
                    self._files.get_file(f"/{directory}/{split}.parquet", f"{scratch}/{split}.parquet")
            except (DataIndexDirError, FileNotFoundError):
                raise UserError(
                    f'{self.name}: {directory} is not in the cache; check it out and run "dvc pull", or run it again'
                ) from None
            yield Path(scratch)

    def _text(self, path: Path) -> str:
        try:
            return str(self._files.read_text(f"/{path}"))
        except FileNotFoundError:
            raise UserError(f"{self.name} has no {path}; {self._rerun()}") from None

    def _rerun(self) -> str:
        return 'run "dvc repro"' if self.name == WORKSPACE else 'it needs a committed result: "dvc repro", "git commit"'


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


@contextmanager
def opened(name: str, reference: str | None = None) -> Iterator[Revision]:
    """Open a revision by its name; `reference` is git's name for it, where that is another.

    Raises NoSuchRevision, and UserError where there is no repository.
    """
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo
    from dvc.scm import RevError, SCMError

    if not name:
        raise NoSuchRevision(name)  # Repo would take the workspace
    try:
        repo = Repo(
            rev=None if name == WORKSPACE else reference or name,
            config={"core": {"remote": ""}},  # what is not in the cache is not waited for
        )
    except RevError:
        raise NoSuchRevision(name) from None
    except (NotDvcRepoError, SCMError) as error:
        raise UserError(f"{error}; run in the directory that holds dvc.yaml") from None
    with repo:
        yield Revision(name, None if name == WORKSPACE else repo.get_rev(), repo)


def experiments(group: str) -> dict[int, str]:
    """The references of the experiments named `group-<seed>`, by seed, whatever commit they are based on."""
    listed = subprocess.run(
        ["git", "for-each-ref", "--sort=creatordate", "--format=%(refname)", "refs/exps/*/*/*"],
        stdout=subprocess.PIPE, text=True,
    ).stdout.splitlines()  # fmt: skip
    matches = (re.fullmatch(rf"refs/exps/\w\w/\w{{38}}/{re.escape(group)}-(\d+)", reference) for reference in listed)
    return dict(sorted({int(match[1]): match[0] for match in matches if match}.items()))  # of equal seeds, the newest


def runs(name: str) -> list[Run]:
    """The runs that a name stands for: one, or a group's experiments `name-<seed>`, in the order of their seeds.

    Raises UserError where there is none, and where one is not a whole result.
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
