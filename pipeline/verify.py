"""Check that the committed result can be reproduced: run the committed pipeline from scratch and compare every output.

HEAD is cloned into a temporary directory and run there with an empty cache. The outputs' hashes are compared with those
of the committed dvc.lock. Data, checkpoint and tokens must be equal anywhere; everything else must be in the same
environment, as recorded in metrics/environment.json. In another one the weights differ, and the scores by a little.
"""

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Literal

from pipeline.cli import run
from pipeline.core.columns import aligned
from pipeline.core.details import parse_details
from pipeline.core.messages import UserError
from pipeline.core.paths import METRICS, users_path
from pipeline.core.yaml12 import read_yaml
from pipeline.evaluation.metrics import by_title
from pipeline.experiments.dvc_command import DVC, dvc_environ
from pipeline.experiments.running import signals_forwarded

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

    Raises UserError where there is nothing to compare with, where the run fails, and as `compare`.
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
        _require_recorded(committed)
        # A process group of its own, whose end is waited for: a stage that is stopped saves a checkpoint in the clone.
        command = [*DVC, "repro", "--force"]
        with (
            subprocess.Popen(command, cwd=here, env=environ, stdin=subprocess.DEVNULL, process_group=0) as process,
            signals_forwarded(process.pid),
        ):
            process.wait()
        if process.returncode:
            raise UserError("dvc repro fails in a fresh clone of HEAD; see its message above")
        compare(committed, here)


def _require_recorded(committed: Path) -> None:
    """Raise UserError where a file that git has is not what dvc.lock records."""
    for (_, path), recorded in _hashes(committed).items():
        file = committed / path
        if file.is_file() and hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest() != recorded:
            raise UserError(
                f'{path} in HEAD is not what its dvc.lock records; run "dvc repro", commit dvc.lock and metrics/'
            )


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
        moved[title] = 100 * (new - old) / (old if metric.kind == "error" else 1)
        rows.append([title, metric.shown(old, 2), metric.shown(new, 2), metric.shown_difference(new - old, 2)])
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
