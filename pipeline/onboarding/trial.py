"""Run stages in a temporary directory, to see what they would do."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline.core.messages import UserError

_ROOT = Path(__file__).parents[2]


def run_stage(name: str, directory: Path, **variables: str) -> list[str]:
    """Run a stage as DVC does, in a directory that has a params.yaml, and return the lines of its log.

    Args:
        variables: Additional environment variables.

    Raises:
        UserError: The stage ended with this error.
    """
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", f"pipeline.{name}"], cwd=directory, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "TQDM_DISABLE": "1", **variables}, encoding="utf-8", errors="replace",
        check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    if done.returncode == 0:
        return lines
    last = lines[-1] if lines else ""
    if not last.startswith("error: "):
        raise RuntimeError(f"the stage {name} failed with status {done.returncode}:\n{done.stderr}")
    raise UserError(last.removeprefix("error: "))
