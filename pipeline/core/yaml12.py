"""YAML 1.2, the version that DVC reads and writes; to YAML 1.1, and so to PyYAML, 3e-05 is text and no is false."""

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError


def load_yaml(text: str) -> Any:
    """Read a document. Raises ValueError with the reason, in one line, also for a key that is given twice."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        reason = f"{error.problem}{line}"
    except Exception as error:  # whatever a scalar of a wrong tag, or ten thousand brackets, may raise
        reason = str(error)
    raise ValueError(" ".join(reason.split()))
