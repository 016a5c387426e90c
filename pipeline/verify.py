"""Check that the committed result can be had again: run the committed pipeline from nothing and compare every output.

HEAD is cloned into a temporary directory and run there with an empty cache. The outputs' hashes are compared with those
of the committed dvc.lock. Where they differ, so may the machine: metrics/environment.json says what the bits depend on.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from pipeline.stage import METRICS, UserError, run, users_path

_ENVIRONMENT = METRICS / "environment.json"
_EVALUATION = METRICS / "evaluation.json"
_MIRRORS = ("MRPC_MIRROR", "CHECKPOINT_MIRROR")


def verify(repository: Path) -> None:
    """Run HEAD of `repository` in a temporary clone, and compare what comes out with what is committed.

    Raises UserError where there is nothing to compare with, where the run fails, and as `compare` does.
    """
    with tempfile.TemporaryDirectory(prefix="verify-") as scratch:
        committed, here = Path(scratch, "committed"), Path(scratch, "here")
        for clone in (committed, here):
            if subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)]).returncode:
                raise UserError(f"{repository} cannot be cloned; verify runs in a git repository with a commit")
        for file in ("dvc.lock", _ENVIRONMENT, _EVALUATION):
            if not (committed / file).exists():
                raise UserError(f'HEAD has no {file} to compare with; run "dvc repro", commit dvc.lock and metrics/')
        # Relative mirrors count from the user's repository, not from the clone.
        mirrors = {name: str(users_path(os.environ[name]).absolute()) for name in _MIRRORS if os.environ.get(name)}
        environ = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"} | mirrors
        if subprocess.run(["dvc", "repro", "--force"], cwd=here, env=environ).returncode:
            raise UserError("dvc repro fails in a fresh clone of HEAD; its message stands above")
        compare(committed, here)


def compare(committed: Path, here: Path) -> None:
    """Print a table of the outputs of two checkouts' dvc.lock files, stage by stage, and what explains a difference.

    Raises UserError where an output differs although the environment does not.
    """
    expected, found = _hashes(committed), _hashes(here)
    different = [out for out in found if found[out] != expected.get(out)]
    width = max(len(path) for _, path in found)
    print(f"{'stage':<10}  {'output':<{width}}  {'committed':<12}  {'here':<12}")
    for (stage, path), digest in found.items():
        verdict = "DIFFERS" if (stage, path) in different else "same"
        print(f"{stage:<10}  {path:<{width}}  {expected.get((stage, path), '-'):<12.12}  {digest:.12}  {verdict}")
    if not different:
        print(f"All {len(found)} outputs are the committed ones, byte for byte.")
        return
    environments = _changes(committed / _ENVIRONMENT, here / _ENVIRONMENT)
    if not environments:
        raise UserError(
            f"{len(different)} of {len(found)} outputs differ from the committed dvc.lock in the same environment; "
            "commit what a new dvc repro gives, or find what is not repeatable"
        )
    print("The environment differs too, and the bits depend on it:")
    for entry, (old, new) in environments.items():
        print(f"  {entry}: {old} when committed, {new} here")
    print("So far have the metrics moved:")
    for entry, (old, new) in _changes(committed / _EVALUATION, here / _EVALUATION).items():
        print(f"  {entry}: {old} -> {new}")


def _hashes(clone: Path) -> dict[tuple[str, str], str]:
    """The hash of each output in dvc.lock, by stage and path."""
    stages = yaml.safe_load((clone / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    return {(stage, out["path"]): out["md5"] for stage, lock in stages.items() for out in lock["outs"]}


def _changes(committed: Path, here: Path) -> dict[str, tuple[Any, Any]]:
    """The entries of two JSON files that differ, by their dotted names."""
    old, new = (_flat(json.loads(path.read_text(encoding="utf-8"))) for path in (committed, here))
    return {key: (old.get(key), new.get(key)) for key in old | new if old.get(key) != new.get(key)}


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def main() -> None:
    verify(Path.cwd())


if __name__ == "__main__":
    run(main)
