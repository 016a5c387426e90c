"""Rerun the committed pipeline from scratch, to check its results.

Examples:
  # Run HEAD in a temporary clone (one full run), and compare its outputs with dvc.lock:
  python -m pipeline.verify
  # The same, after setting up .venv if necessary:
  make verify

More: docs/reproducibility.md
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.cli import run
from pipeline.core.messages import UserError
from pipeline.core.output import parse_details
from pipeline.core.paths import METRICS_DIR, users_path
from pipeline.core.text import aligned
from pipeline.core.yaml12 import read_yaml
from pipeline.experiments.child_processes import DVC, dvc_environ, forwarding_signals
from pipeline.params import LOCK

_ENVIRONMENT = METRICS_DIR / "environment.json"
_MIRRORS = ("MRPC_MIRROR", "GLUE_MIRROR", "CHECKPOINT_MIRROR")
# The outputs of these stages must be the same on every CPU. The outputs of all others, including the ones that users
# add, may differ.
_SAME_ON_EVERY_CPU = ("check", "download", "pretrained", "tokenize")


class Result(NamedTuple):
    """The recorded result of a run in a checkout: what dvc.lock and metrics/environment.json say."""

    outputs: dict[tuple[str, str], str]  # the hash of each output, by stage and path
    environment: dict[str, Any]


def read_result(checkout: Path) -> Result:
    """Read the result in a checkout. Raises UserError if a file is missing or damaged."""
    for file in (LOCK, _ENVIRONMENT):
        if not (checkout / file).exists():
            raise UserError(f'HEAD has no {file} to compare with. Run "dvc repro", and commit dvc.lock and metrics/.')
    try:
        stages = read_yaml(checkout / LOCK)["stages"]
        outputs = {(stage, out["path"]): out["md5"] for stage, entry in stages.items() for out in entry.get("outs", [])}
        environment = parse_details((checkout / _ENVIRONMENT).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f'{_ENVIRONMENT} cannot be read: {error}. Run "dvc repro", and commit metrics/.') from None
    except (AttributeError, KeyError, TypeError):
        raise UserError(f'{LOCK} is incomplete. Run "dvc repro", and commit dvc.lock and metrics/.') from None
    return Result(outputs, environment)


def verify(repository: Path) -> None:
    """Run HEAD of `repository` in a temporary clone with an empty cache, and compare its result with the committed one.

    Before anything runs, the code, parameters and data in HEAD must match its dvc.lock. Data that "dvc add" tracks is
    copied from the cache of the repository. At the end, DVC prints the scores that differ.

    Raises:
        UserError: HEAD has no result, HEAD does not match its dvc.lock, the run fails, or its result differs (see
            `compare_results`).
    """
    # DVC may still be writing a file there, from its check for a newer version. That must not hide the verdict.
    with tempfile.TemporaryDirectory(prefix="verify-", ignore_cleanup_errors=True) as scratch:
        clone = Path(scratch, "clone")
        if subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)]).returncode:
            raise UserError(f"{repository} cannot be cloned. Run verify at the top of a git repository with a commit.")
        committed = read_result(clone)
        # A relative path of a mirror is relative to the user's repository, not to the clone.
        mirrors = {name: str(users_path(os.environ[name]).absolute()) for name in _MIRRORS if os.environ.get(name)}
        environ = {**dvc_environ(), **mirrors}
        _copy_data(repository, clone, environ)
        _require_recorded(clone, environ)
        command = [*DVC, "repro", "--force"]
        with forwarding_signals() as children:  # After a signal, no stage may outlive the clone.
            status = children.start(command, cwd=clone, env=environ, stdin=subprocess.DEVNULL).wait()
        if status:
            raise UserError("dvc repro failed in a fresh clone of HEAD. See its message above.")
        compare_results(committed, read_result(clone))
        sys.stdout.flush()  # before DVC prints
        subprocess.run([*DVC, "metrics", "diff"], cwd=clone, env=environ)


def _copy_data(repository: Path, clone: Path, environ: dict[str, str]) -> None:
    """Copy the data that "dvc add" tracks from the user's cache into the clone, except for data that is not there."""
    files = _run_command(["git", "ls-files", "-z", "*.dvc"], clone, environ).split("\0")[:-1]
    if files:
        # A cache and a remote have the same layout, so the user's cache can be a remote of the clone.
        cache = _run_command([*DVC, "cache", "dir"], repository, environ).strip()
        _run_command([*DVC, "remote", "add", "--local", "cache-of-the-user", cache], clone, environ)
        _run_command(
            [*DVC, "pull", "--quiet", "--allow-missing", "--remote", "cache-of-the-user", *files], clone, environ
        )


def _require_recorded(clone: Path, environ: dict[str, str]) -> None:
    """Raise UserError if the code, parameters, data or metrics in HEAD are not the ones that its dvc.lock records.

    A run would then give a different result, for a reason that has nothing to do with determinism.
    """
    stages = read_yaml(clone / LOCK)["stages"].values()
    outputs = {output["path"]: output["md5"] for lock in stages for output in lock.get("outs", [])}
    dependencies = [dependency for lock in stages for dependency in lock.get("deps", [])]
    # If only some stages were run, a later stage may have used an older version of an output.
    changes = {entry["path"] for entry in dependencies if outputs.get(entry["path"], entry["md5"]) != entry["md5"]}
    status = json.loads(_run_command([*DVC, "status", "--no-updates", "--json"], clone, environ))
    for stage, entries in status.items():
        for entry in entries:
            if isinstance(entry, str):
                changes.add(f"{entry} of stage {stage}")  # "changed command"
                continue
            for path, state in entry.get("changed deps", {}).items():
                if isinstance(state, dict):  # such as {"train.lr": "modified"}
                    changes.add(f"{', '.join(state)} in {path}")
                elif path not in outputs:
                    changes.add(path)
            # Outputs that git tracks, such as metrics, are in the clone. Cached outputs are missing there.
            for path, state in entry.get("changed outs", {}).items():
                if state not in ("not in cache", "deleted"):
                    changes.add(path)
    if changes:
        raise UserError(
            f"HEAD does not match its dvc.lock, or the DVC cache does not have its data: {', '.join(sorted(changes))}. "
            'Run "dvc repro", and commit dvc.lock, metrics/ and these files. If you have already done so, run '
            '"dvc pull" if you have a remote. Git may also have changed line endings (see "git ls-files --eol" and '
            "core.autocrlf)."
        )


def _run_command(command: Sequence[str], directory: Path, environ: dict[str, str]) -> str:
    """Return the output of a command. Raises UserError if the command fails."""
    done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise UserError(f"{' '.join(command)} failed: {' '.join(reason)}")
    return done.stdout


def compare_results(committed: Result, reproduced: Result) -> None:
    """Print the outputs of two results side by side. If some differ, also print the environments.

    The data, the base model and the tokens must be the same everywhere. The other outputs must be the same in the same
    environment.

    Raises:
        UserError: An output is missing on one side, or differs although it must be the same.
    """
    rows, different = [], []
    for stage, path in committed.outputs | reproduced.outputs:
        before, after = (result.outputs.get((stage, path), "-") for result in (committed, reproduced))
        rows.append([stage, path, before[:12], after[:12], "same" if before == after else "DIFFERS"])
        if "-" in (before, after):
            raise UserError(
                f"{path} of stage {stage} is missing on one side, so the committed dvc.lock does not belong to the "
                'committed dvc.yaml. Run "dvc repro", and commit dvc.lock and metrics/.'
            )
        if before != after:
            different.append((stage, path))
    print("\n".join(aligned([["stage", "output", "committed", "reproduced", ""], *rows], "left")))
    if not different:
        print(f"All {len(rows)} outputs match the committed ones byte for byte.")
        return
    environment = []
    for key in sorted(committed.environment | reproduced.environment):
        before, after = (str(result.environment.get(key, "not set")) for result in (committed, reproduced))
        if before != after:
            environment.append([key, before, after])
    if environment:
        print("\nThe committed result comes from a different environment:\n")
        print("\n".join(aligned([["", "committed", "reproduced"], *environment], "left")))
    for stage, path in different:
        if stage in _SAME_ON_EVERY_CPU:
            raise UserError(
                f"{path} differs from the committed dvc.lock, but it must be the same on every CPU. Install the locked "
                'packages ("rm -f .venv/ready && make setup") and verify again, or run "dvc repro" and commit the '
                "result."
            )
    if not environment:
        raise UserError(
            f"{len(different)} of {len(rows)} outputs differ from the committed dvc.lock in the same environment. "
            'Run "dvc repro" and commit the result, or find out what is not deterministic (on a GPU, set '
            "train.deterministic to true)."
        )
    print("\nThe data, the base model and the tokens are identical byte for byte. A different environment adds numbers")
    print("in a different order. The rounding differences change training about as much as a different seed does.")


def main() -> None:
    verify(Path.cwd())


if __name__ == "__main__":
    run(main)
