"""The packages that determine results. compute.lock pins their versions, and every stage depends on this file."""

import re
from importlib.metadata import version

from pipeline.core.messages import UserError
from pipeline.core.paths import PROJECT

COMPUTE = PROJECT / "compute.lock"


def locked() -> dict[str, str]:
    """Return the locked version of each package, by its name in the form that PEP 503 defines: lowercase, with "-"."""
    pins = re.findall(r"^([\w.-]+)==(\S+)$", COMPUTE.read_text(encoding="utf-8"), re.M)
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in pins}


def installed() -> dict[str, str]:
    """Return the installed version of each locked package."""
    return {name: version(name) for name in locked()}


def require_locked() -> None:
    """Raise UserError if the installed version of a package is not the locked one, which DVC would record."""
    # torch appends the name of its build after a plus sign, but CPU and GPU builds share one lock file.
    expected, actual = locked(), installed()
    different = [name for name in expected if actual[name].partition("+")[0] != expected[name]]
    if different:
        versions = ", ".join(f"{name} {actual[name]} (locked: {expected[name]})" for name in different)
        raise UserError(
            f"{COMPUTE.name}: the installed versions differ from the locked ones: {versions}. Install the locked "
            f'versions with "rm -f .venv/ready && make setup", or write your versions to {COMPUTE.name}.'
        )
