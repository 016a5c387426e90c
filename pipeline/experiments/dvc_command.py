"""DVC of this environment, whether the environment is active or not."""

import os
import sys
from pathlib import Path

DVC = (sys.executable, "-m", "dvc")


def dvc_environ() -> dict[str, str]:
    """The environment variables for DVC: the stages' `python` is the one that runs now."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
