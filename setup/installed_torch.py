"""Make .venv with the torch that this Python has, so that none is downloaded: `make setup TORCH=installed`.

torch and the CUDA libraries that its build brings are linked into the environment. Nothing else that the machine has is
seen there: all other packages are installed in their locked versions. The stages refuse another torch than that of
compute.lock, so this writes its version there. Runs before anything is installed, on the standard library alone.
"""

import re
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

# torch, and what its builds for GPUs need.
_LENT = re.compile(r"torch|(pytorch[-_])?triton.*|(nvidia|cuda)[-_].*", re.I)


def lend(environment: Path, lock: Path) -> None:
    """Make or complete the environment, link torch into it, and write its version into the lock file.

    Exits with one line if this Python has no torch, or if the environment already has its own.
    """
    lent: dict[str, Distribution] = {}
    for distribution in distributions():  # Python imports the first one of a name.
        if _LENT.fullmatch(distribution.metadata["Name"] or ""):
            lent.setdefault(distribution.metadata["Name"].lower(), distribution)
    if "torch" not in lent:
        sys.exit(f"error: TORCH=installed: {sys.executable} has no torch; leave TORCH out to download it")
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    if (packages / "torch").exists():
        sys.exit(f"error: TORCH=installed: {environment} has a torch of its own; remove the directory first")
    version = lent["torch"].version.partition("+")[0]
    # Names in site-packages: packages, namespaces that several packages share (nvidia), metadata.
    targets = {
        path.parts[0]: Path(str(distribution.locate_file(path.parts[0]))).resolve()
        for distribution in lent.values()
        for path in distribution.files or ()
        if path.parts[0] not in ("..", "/")  # scripts
    }

    # This Python's pip installs into the environment, because Debian's Python lacks ensurepip, which venv would use.
    # torch needs setuptools, which "pip freeze" leaves out of the lock files.
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)
    pip = [sys.executable, "-m", "pip", "--python", environment, "install", "--quiet"]
    if status := subprocess.run([*pip, "pip", "setuptools>=77.0.3"]).returncode:
        sys.exit(status)

    # The links are not in site-packages, where pip would install another torch through them into the machine's Python.
    links = environment / "lent"
    links.mkdir(exist_ok=True)
    for name, target in targets.items():
        (links / name).unlink(missing_ok=True)
        (links / name).symlink_to(target)
    (packages / "lent.pth").write_text(f"{links}\n", encoding="utf-8")

    text = lock.read_text(encoding="utf-8")
    locked = re.sub(r"^torch==.*$", f"torch=={version}", text, flags=re.M)
    if locked != text:
        lock.write_text(locked, encoding="utf-8")
        print(f"{lock.name}: torch is {version}, that of this machine; git shows the file as changed")


if __name__ == "__main__":
    lend(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
