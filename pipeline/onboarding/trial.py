"""Run the stage download in a temporary directory, to see what it would do."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.core.paths import PROJECT


def run_download(directory: Path) -> list[str]:
    """Run the stage as DVC does, in a directory that has a params.yaml, and return the lines of its log.

    Raises:
        UserError: The stage ended with this error.
    """
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.download"], cwd=directory, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "TQDM_DISABLE": "1"}, encoding="utf-8", errors="replace", check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    if done.returncode == 0:
        return lines
    last = lines[-1] if lines else ""
    if not last.startswith("error: "):
        raise RuntimeError(f"the stage download failed with status {done.returncode}:\n{done.stderr}")
    raise UserError(last.removeprefix("error: "))
