"""The packages that determine results. Lock files pin their versions, and the stages depend on these files.

compute.lock pins the packages that compute, and every stage depends on it. requirements.lock pins all other packages.
`report` depends on it because it draws charts with some of them, and `check` because it checks them.
"""

import re
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.core.paths import PROJECT

COMPUTE = PROJECT / "compute.lock"
REQUIREMENTS = PROJECT / "requirements.lock"
REPORT_PACKAGES = ("altair", "jinja2", "vl-convert-python")  # in REQUIREMENTS


def locked(lock: Path = COMPUTE) -> dict[str, str]:
    """Return the locked version of each package, by its name in the form that PEP 503 defines: lowercase, with "-"."""
    pins = re.findall(r"^([\w.-]+)==(\S+)$", lock.read_text(encoding="utf-8"), re.M)
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in pins}


def installed() -> dict[str, str]:
    """Return the installed version of each package in compute.lock, or "none" if the package is missing."""
    return {name: _version(name) for name in locked()}


def require_locked(lock: Path = COMPUTE, names: Collection[str] = ()) -> None:
    """Raise UserError if the installed version of a package is not the locked version.

    DVC only sees the lock file, so it would record results of other versions as results of the locked versions.

    Args:
        names: The packages to check. If it is empty, all packages in the lock file are checked.
    """
    expected = locked(lock)
    actual = {name: _version(name) for name in names or expected}
    # torch appends the name of its build after a plus sign, but CPU and GPU builds share one lock file.
    different = [name for name in actual if actual[name].partition("+")[0] != expected[name]]
    if different:
        versions = ", ".join(f"{name} {actual[name]} (locked: {expected[name]})" for name in different)
        raise UserError(
            f"{lock.name}: the installed versions differ from the locked ones: {versions}. Install the locked versions "
            f'with "rm -f .venv/ready && make setup", or write your versions to {lock.name}, which reruns the stages '
            "that depend on it."
        )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
