"""The packages that decide results, locked in `compute.lock`: a dependency of every stage that computes with them."""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipeline.core.messages import UserError

LOCK = Path(__file__).parents[2] / "compute.lock"


def locked() -> dict[str, str]:
    """The locked versions, by package."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", LOCK.read_text(encoding="utf-8"), re.M))


def installed() -> dict[str, str]:
    """The versions of the same packages that are installed here, "none" where one is not."""
    return {name: _version(name) for name in locked()}


def require_locked() -> None:
    """Raise UserError where a package is installed in another version than the locked one.

    DVC records the lock, not what is installed: a result of other packages would pass for one of these.
    """
    found = installed()
    # torch's version has its build behind a plus sign: the CPU's and the GPU's have one lock.
    other = {name: of for name, of in locked().items() if found[name].partition("+")[0] != of}
    if other:
        named = ", ".join(f"{name} {found[name]} (locked: {of})" for name, of in other.items())
        raise UserError(
            f'{LOCK.name}: installed is {named}; install what is locked with "make setup", or write into '
            f"{LOCK.name} what you have: the stages that compute with it then run again"
        )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
