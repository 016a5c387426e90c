"""The packages that determine results, each with its version in a lock file that the stages depend on.

`compute.lock` pins those that compute; every stage but `pretrained` depends on it. `requirements.lock` pins the rest;
`report` depends on it too, since it draws with some of them.
"""

import re
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipeline.core.messages import UserError

_ROOT = Path(__file__).parents[2]
COMPUTE = _ROOT / "compute.lock"
REQUIREMENTS = _ROOT / "requirements.lock"
REPORT_PACKAGES = ("altair", "Jinja2", "vl-convert-python")  # those of REQUIREMENTS that make the report


def locked(lock: Path = COMPUTE) -> dict[str, str]:
    """Locked version of each package."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", lock.read_text(encoding="utf-8"), re.M))


def installed() -> dict[str, str]:
    """Installed version of each package of compute.lock, "none" if it is missing."""
    return {name: _version(name) for name in locked()}


def require_locked(lock: Path = COMPUTE, names: Collection[str] = ()) -> None:
    """Raise UserError if the installed version of a package is not the locked one.

    DVC records the lock file only, so a result of other packages would be recorded as one of these.

    Args:
        names: the packages to check; all packages of the lock file if there are none.
    """
    expected = locked(lock)
    actual = {name: _version(name) for name in names or expected}
    # torch appends its build after a plus sign; CPU and GPU builds share one lock.
    different = [name for name in actual if actual[name].partition("+")[0] != expected[name]]
    if different:
        versions = ", ".join(f"{name} {actual[name]} (locked: {expected[name]})" for name in different)
        raise UserError(
            f"{lock.name}: installed is {versions}; install the locked versions with "
            f'"rm -f .venv/ready && make setup", or write yours into {lock.name}: the stages that depend on it '
            "then run again"
        )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
