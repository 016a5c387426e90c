"""Check that the committed result can be reproduced: run the committed pipeline from scratch and compare every output.

HEAD is cloned into a temporary directory and run there with an empty cache. Before that, the code, parameters and data
in HEAD must be those that its dvc.lock records. Data that were added with "dvc add" come from the cache of your
repository. The outputs' hashes are compared with those of the committed dvc.lock. Data, checkpoint and tokens must be
equal anywhere; everything else must be in the same environment, as recorded in metrics/environment.json. In another one
the weights differ, and the scores by a little.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pipeline.cli import run
from pipeline.core.details import parse_details
from pipeline.core.messages import UserError
from pipeline.core.paths import METRICS, users_path
from pipeline.core.text import aligned
from pipeline.core.yaml12 import read_yaml
from pipeline.evaluation.metrics import by_title
from pipeline.experiments.child_processes import forwarding_signals
from pipeline.experiments.dvc_command import DVC, dvc_environ

_ENVIRONMENT = METRICS / "environment.json"
_EVALUATION = METRICS / "evaluation.json"
_MIRRORS = ("MRPC_MIRROR", "GLUE_MIRROR", "CHECKPOINT_MIRROR")
_DEPEND_ON_ENVIRONMENT = ("train", "predict", "evaluate", "report")  # stages whose outputs differ between CPUs
# Points by which a score may differ in another environment. Another CPU rounds in another order, which changes training
# as much as another seed does. Over five seeds of the committed model, accuracy on validation has a standard deviation
# of 0.9 points: two of them differ by 1.3 on average, and by more than 3 in one case of fifty.
TOLERANCE = 3.0


def verify(repository: Path) -> None:
    """Run HEAD of `repository` in a temporary clone, and compare its outputs with the committed ones.

    Raises UserError if there is nothing to compare with, if HEAD is not what its dvc.lock records, if data
    are missing, if the run fails, and as `compare`.
    """
    # A file that DVC's own look for a newer version still writes there must not hide the verdict.
    with tempfile.TemporaryDirectory(prefix="verify-", ignore_cleanup_errors=True) as scratch:
        committed, here = Path(scratch, "committed"), Path(scratch, "here")
        for clone in (committed, here):
            if subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)]).returncode:
                raise UserError(
                    f"{repository} cannot be cloned; verify runs at the top of a git repository with a commit"
                )
        for file in ("dvc.lock", _ENVIRONMENT, _EVALUATION):
            if not (committed / file).exists():
                raise UserError(f'HEAD has no {file} to compare with; run "dvc repro", commit dvc.lock and metrics/')
        # Relative mirrors count from the user's repository, not from the clone.
        mirrors = {name: str(users_path(os.environ[name]).absolute()) for name in _MIRRORS if os.environ.get(name)}
        environ = {name: value for name, value in dvc_environ().items() if name != "DVC_ROOT"} | mirrors
        _copy_data(repository, here, environ)
        _require_recorded(repository, here, environ)
        # Its end is waited for, because an interrupted stage saves a checkpoint in the clone.
        command = [*DVC, "repro", "--force"]
        with forwarding_signals() as children:
            status = children.start(command, cwd=here, env=environ, stdin=subprocess.DEVNULL).wait()
        if status:
            raise UserError("dvc repro fails in a fresh clone of HEAD; see its message above")
        compare(committed, here)


def _copy_data(repository: Path, clone: Path, environ: dict[str, str]) -> None:
    """Copy the data that "dvc add" tracks, and that a stage depends on, from the user's cache into the clone.

    Raises UserError if the cache does not have them.
    """
    stages = read_yaml(clone / "dvc.lock")["stages"].values()
    deps = {Path(dep["path"]) for stage in stages for dep in stage.get("deps", [])}
    tracked = _output(["git", "ls-files", "-z", "*.dvc"], clone, environ).split("\0")
    data = [Path(file).with_suffix("") for file in tracked if file]
    needed = [path for path in data if any(path in (dep, *dep.parents) or dep in path.parents for dep in deps)]
    if not needed:
        return
    # A cache is laid out as a remote, so the user's one can serve as a remote of the clone.
    cache = _output([*DVC, "cache", "dir"], repository, environ).strip()
    _output([*DVC, "remote", "add", "--local", "cache-of-the-user", cache], clone, environ)
    for path in needed:
        pull = [*DVC, "pull", "--quiet", "--remote", "cache-of-the-user", f"{path}.dvc"]
        if subprocess.run(pull, cwd=clone, env=environ, capture_output=True).returncode:
            raise UserError(
                f"{path} is not in the DVC cache of this repository in the version that HEAD records; run "
                f'"dvc pull {path}" if you have a remote, or "dvc add {path}" and commit {path}.dvc'
            )


def _require_recorded(repository: Path, clone: Path, environ: dict[str, str]) -> None:
    """Raise UserError if the code, parameters, data or metrics of HEAD are not the ones that its dvc.lock records.

    A run would then give different results, for a reason that has nothing to do with determinism.
    """
    outs = {path: digest for (_, path), digest in _hashes(clone).items()}
    changed: dict[str, set[str]] = {}  # the stages that a change concerns
    for stage, lock in read_yaml(clone / "dvc.lock")["stages"].items():
        for dep in lock.get("deps", []):
            if dep["path"] in outs and outs[dep["path"]] != dep["md5"]:  # a run of some stages was committed
                changed.setdefault(dep["path"], set()).add(stage)
    for stage, changes in json.loads(_output([*DVC, "status", "--no-updates", "--json"], clone, environ)).items():
        for change in changes:
            if isinstance(change, str):
                changed.setdefault("the command", set()).add(stage)
                continue
            for path, state in [entry for paths in change.values() for entry in paths.items()]:
                # The clone does not have the cached outputs of the stages.
                if state == "not in cache" or (state == "deleted" and path in outs):
                    continue
                name = f"{', '.join(state)} in {path}" if isinstance(state, dict) else path  # {"train.lr": "modified"}
                changed.setdefault(name, set()).add(stage)
    if not changed:
        return
    if file := _file_with_other_line_endings(repository, clone, list(changed), environ):
        raise UserError(
            f"{file} has other line endings in git than in your working directory, so a clone does not have the bytes "
            f'that the run used; run "git config core.autocrlf false && git add --renormalize {file}" and commit it'
        )
    named = "; ".join(f"{name} (stage {', '.join(sorted(stages))})" for name, stages in changed.items())
    raise UserError(
        f'HEAD is not what its dvc.lock records: {named}; run "dvc repro" and commit dvc.lock, metrics/ and these files'
    )


def _file_with_other_line_endings(repository: Path, clone: Path, paths: list[str], environ: dict[str, str]) -> str:
    """A file among `paths` that git has converted to LF, or nothing."""
    command = ["git", "ls-files", "--eol", "--", *paths]
    here, there = (
        subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True).stdout.splitlines()
        for directory in (repository, clone)
    )
    converted = [line for line in here if line.startswith("i/lf") and "w/crlf" in line and line not in there]
    return converted[0].partition("\t")[2] if converted else ""


def _output(command: Sequence[str], directory: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise UserError(f"{' '.join(command)} failed: {' '.join(reason)}")
    return done.stdout


def compare(committed: Path, here: Path) -> None:
    """Print the outputs in the dvc.lock of two checkouts; where some differ, also the environments and the scores.

    Raises UserError where an output is missing on one side, where one differs though it should not depend on the
    environment or the environment is the same, and where a score differs by more than TOLERANCE.
    """
    expected, found = _hashes(committed), _hashes(here)
    rows = []
    for stage, path in expected | found:
        old, new = (side.get((stage, path), "-") for side in (expected, found))
        rows.append([stage, path, old[:12], new[:12], "same" if old == new else "DIFFERS"])
    _print_table(["stage", "output", "committed", "here", ""], rows, "left")
    for side, without in (("the committed dvc.lock", found.keys() - expected), ("this run", expected.keys() - found)):
        for stage, path in sorted(without):
            raise UserError(
                f"{side} has no {path} of stage {stage}; dvc.lock is not that of the committed dvc.yaml: "
                'run "dvc repro" and commit dvc.lock and metrics/'
            )
    different = [out for out in found if found[out] != expected[out]]
    if not different:
        print(f"All {len(found)} outputs are the committed ones, byte for byte.")
        return
    of_committed, of_here = (_environment(side) for side in (committed, here))
    changed = [key for key in sorted(of_committed | of_here) if of_committed.get(key) != of_here.get(key)]
    if changed:
        print("\nThe committed result is from another environment than this one:\n")
        titled = [
            [_TITLES.get(key, key), *(str(of.get(key, "not set")) for of in (of_committed, of_here))] for key in changed
        ]
        _print_table(["", "committed", "here"], titled, "left")
    for stage, path in different:
        if stage not in _DEPEND_ON_ENVIRONMENT:
            raise UserError(
                f"{path} differs from the committed dvc.lock, and it must be the same on every CPU; install the locked "
                'packages ("rm -f .venv/ready && make setup") and verify again, or "dvc repro" and commit the result'
            )
    if not changed:
        raise UserError(
            f"{len(different)} of {len(found)} outputs differ from the committed dvc.lock in the same environment; "
            "commit the result of a new dvc repro, or find what is not deterministic"
        )
    print(_WHY)
    _compare_scores(_read(committed / _EVALUATION), _read(here / _EVALUATION))


_TITLES = {"cpu": "CPU", "instruction_set": "instruction set", "threads": "CPU threads"}
_WHY = f"""
Data, checkpoint and tokens are byte for byte the committed ones. What names its environment, as the model's
provenance.json and the report, differs. The weights may: most other environments round sums in another order, and over
many steps training then drifts about as far as with another seed.
So the scores, in percent, may differ by {TOLERANCE:g} points:
"""


def _compare_scores(committed: dict[str, Any], here: dict[str, Any]) -> None:
    """Print the scores side by side. Raises UserError where one differs by more than the tolerance."""
    moved = {}
    rows = []
    of_here = by_title(here)
    for title, (metric, old) in by_title(committed).items():
        new = of_here[title][1]
        # An error has no scale of its own: its change is a share of it.
        moved[title] = 100 * (new - old) / (old if metric.scale == "error" else 1)
        rows.append([title, metric.format(old, 2), metric.format(new, 2), metric.format_difference(new - old, 2)])
    _print_table(["", "committed", "here", "difference"], rows, "right")
    score = max(moved, key=lambda score: abs(moved[score]))
    if abs(moved[score]) > TOLERANCE:
        raise UserError(
            f"{score} is {moved[score]:+.2f} points from the committed one, and another environment explains "
            f'{TOLERANCE:g}; verify where the result was made, or run "dvc repro" and commit the result'
        )
    print(f"\nThe committed result is reproduced: no score differs by more than {TOLERANCE:g} points.")


def _print_table(header: list[str], rows: list[list[str]], side: Literal["left", "right"]) -> None:
    print("\n".join(aligned([header, *rows], side)))


def _hashes(clone: Path) -> dict[tuple[str, str], str]:
    """The hash of each output in dvc.lock, by stage and path."""
    stages = read_yaml(clone / "dvc.lock")["stages"]
    return {(stage, out["path"]): out["md5"] for stage, lock in stages.items() for out in lock["outs"]}


def _environment(clone: Path) -> dict[str, Any]:
    try:
        return parse_details((clone / _ENVIRONMENT).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f'{_ENVIRONMENT} is {error}; run "dvc repro" and commit metrics/') from None


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def main() -> None:
    verify(Path.cwd())


if __name__ == "__main__":
    run(main)
