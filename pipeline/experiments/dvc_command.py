"""Run the DVC of this Python environment, even if the environment is not activated."""

import os
import sys
from pathlib import Path

DVC = (sys.executable, "-m", "dvc")


def dvc_environ() -> dict[str, str]:
    """Return the environment variables for DVC, which make the stages run the current Python as `python`."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
