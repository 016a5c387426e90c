"""The packages that determine results. `compute.lock` pins them; every stage that computes depends on it."""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipeline.core.messages import UserError

LOCK = Path(__file__).parents[2] / "compute.lock"


def locked() -> dict[str, str]:
    """Locked version of each package."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", LOCK.read_text(encoding="utf-8"), re.M))


def installed() -> dict[str, str]:
    """Installed version of each of these packages, "none" where it is missing."""
    return {name: _version(name) for name in locked()}


def require_locked() -> None:
    """Raise UserError where the installed version of a package is not the locked one.

    DVC records the lock file only, so a result of other packages would be recorded as one of these.
    """
    found = installed()
    # torch appends its build after a plus sign; CPU and GPU builds share one lock.
    other = {name: of for name, of in locked().items() if found[name].partition("+")[0] != of}
    if other:
        named = ", ".join(f"{name} {found[name]} (locked: {of})" for name, of in other.items())
        raise UserError(
            f'{LOCK.name}: installed is {named}; install the locked versions with "rm -f .venv/ready && make setup", '
            f"or write yours into {LOCK.name}: the stages that depend on it then run again"
        )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
