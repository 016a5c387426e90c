"""Rerun the committed pipeline from scratch, to check its results.

Examples:
  # Run HEAD in a temporary clone (one full run), and compare its outputs with dvc.lock:
  python -m pipeline.verify

More: docs/reproducibility.md
"""

import json
import os
import signal
import tempfile
from itertools import chain
from pathlib import Path
from subprocess import CalledProcessError, check_call, check_output
from typing import Any

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError
from pipeline.core.paths import LOCK, METRICS_DIR, read_record, users_path
from pipeline.core.text import aligned
from pipeline.core.yaml12 import read_yaml
from pipeline.experiments.launch import DVC, clone_repository

_MIRRORS = ("MRPC_MIRROR", "GLUE_MIRROR", "CHECKPOINT_MIRROR")  # They may be relative to the user's repository.
_SAME_ON_EVERY_CPU = ("check", "download", "pretrained", "tokenize")  # The other stages may differ between CPUs.

Outputs = dict[tuple[str, str], str]  # the hash of each output in dvc.lock, by stage and path


def verify() -> None:
    """Run HEAD of the working directory in a temporary clone, and compare its outputs with the ones in its dvc.lock.

    Raises UserError if HEAD does not match its dvc.lock, a command fails, or an output differs that must be the same.
    """
    mirrors = {name: str(users_path(os.environ[name]).absolute()) for name in _MIRRORS if os.environ.get(name)}
    with tempfile.TemporaryDirectory(prefix="verify-", ignore_cleanup_errors=True) as scratch:
        clone = Path(scratch, "clone")
        try:
            # With the user's cache, the clone has the data that "dvc add" tracks. --force ignores the results there.
            environ = clone_repository(clone) | mirrors
            if not (clone / LOCK).exists():
                raise UserError(f'HEAD has no {LOCK} to compare with. Run "dvc repro", and commit {LOCK} and metrics/.')
            check_call([*DVC, "checkout", "--quiet", "--allow-missing"], cwd=clone, env=environ)
            outputs, environment = _read_result(clone)
            status = check_output([*DVC, "status", "--no-updates", "--json", "dvc.yaml"], cwd=clone, env=environ)
            if changes := _changes(json.loads(status), {path for _, path in outputs}):
                raise UserError(
                    f"HEAD does not match its dvc.lock, or the DVC cache does not have its data: {'; '.join(changes)}. "
                    'Run "dvc repro", and commit all changes. If you have done so, run "dvc pull".'
                )
            check_call([*DVC, "repro", "--force"], cwd=clone, env=environ)
            _compare(outputs, environment, *_read_result(clone))
            print(check_output([*DVC, "metrics", "diff"], cwd=clone, env=environ, text=True))
        except CalledProcessError as error:
            raise UserError(f"{' '.join(map(str, error.cmd))} failed. See its message above.") from None


def _read_result(checkout: Path) -> tuple[Outputs, dict[str, Any]]:
    """Return the outputs in dvc.lock, and the environment of the run."""
    stages = read_yaml(checkout / LOCK)["stages"]
    outputs = {(stage, out["path"]): out["md5"] for stage, entry in stages.items() for out in entry.get("outs", [])}
    [details] = read_record(checkout / METRICS_DIR / "train.json", tuple[dict[str, Any]])
    return outputs, details["environment"]


def _changes(status: dict[str, Any], outputs: set[str]) -> list[str]:
    """Return what differs from dvc.lock, except for outputs that the cache does not have."""
    return [
        f"stage {stage}: {path} {state}"
        for stage, entries in status.items()
        for entry in entries  # such as "changed command" or {"changed deps": {"data": "modified"}}
        for path, state in ([(entry, "")] if isinstance(entry, str) else chain(*map(dict.items, entry.values())))
        if state not in ("deleted", "not in cache") or path not in outputs
    ]


def _compare(before: Outputs, old: dict[str, Any], after: Outputs, new: dict[str, Any]) -> None:
    """Print both hashes of each output. Raises UserError if one differs that must be the same."""
    rows = [[*key, before.get(key, "-")[:12], after.get(key, "-")[:12]] for key in before | after]
    print("\n".join(aligned([["stage", "output", "committed", "reproduced"], *rows], "left")))
    different = [row for row in rows if row[2] != row[3]]
    if not different:
        print(f"All {len(rows)} outputs match the committed ones byte for byte.")
        return
    changes = [[name, f"{old.get(name)}", f"{new.get(name)}"] for name in old | new if old.get(name) != new.get(name)]
    if changes:
        print("\nThe committed result comes from a different environment, which may explain the differences:")
        print("\n".join(aligned([["", "committed", "reproduced"], *changes], "left")))
    if wrong := [path for stage, path, _, _ in different if not changes or stage in _SAME_ON_EVERY_CPU]:
        raise UserError(
            f"These outputs must be the same as in the committed dvc.lock: {', '.join(wrong)}. Install the locked "
            'packages ("rm -f .venv/ready && make setup") and verify again. On a GPU, set train.deterministic to true.'
        )


def main() -> None:
    command_parser("verify", __doc__).parse_args()
    with as_command():
        signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C also reaches DVC, which waits for its stage and fails.
        verify()


if __name__ == "__main__":
    main()
