"""Make .venv with the torch of this Python instead of downloading it: `make setup TORCH=installed`.

torch and the CUDA libraries that came with it are linked into the environment. The other packages of this Python are
not visible there, because the locked versions are installed instead. The stages only accept the torch version in
compute.lock, so this script writes the version of the linked torch into it. Because it runs before anything is
installed, it only needs the standard library.
"""

import re
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

# torch, and the packages that its builds for GPUs need.
_LENT = re.compile(r"torch|(pytorch[-_])?triton.*|(nvidia|cuda)[-_].*", re.I)


def lend(environment: Path, lock: Path) -> None:
    """Make or complete the environment, link torch into it, and write its version into the lock file.

    The script exits with an error if this Python has no torch, or if the environment already has a torch of its own.
    """
    lent: dict[str, Distribution] = {}
    for distribution in distributions():  # If a name occurs twice, Python imports the first one.
        if _LENT.fullmatch(distribution.metadata["Name"] or ""):
            lent.setdefault(distribution.metadata["Name"].lower(), distribution)
    if "torch" not in lent:
        sys.exit(f"error: TORCH=installed: {sys.executable} has no torch. Leave TORCH out to download it.")
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    if (packages / "torch").exists():
        sys.exit(f"error: TORCH=installed: {environment} already has its own torch. Remove the directory first.")
    version = lent["torch"].version.partition("+")[0]
    # The names in site-packages: packages, metadata, and namespaces that several packages share (nvidia).
    targets = {
        path.parts[0]: Path(str(distribution.locate_file(path.parts[0]))).resolve()
        for distribution in lent.values()
        for path in distribution.files or ()
        if path.parts[0] not in ("..", "/")  # These are scripts.
    }

    # The pip of this Python installs pip into the environment, because venv would need ensurepip, which is missing from
    # Debian's Python. torch needs setuptools, which is not in the lock files because "pip freeze" omits it.
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)
    pip = [sys.executable, "-m", "pip", "--python", environment, "install", "--quiet"]
    if status := subprocess.run([*pip, "pip", "setuptools>=77.0.3"]).returncode:
        sys.exit(status)

    # If the links were in site-packages, pip would follow them and install another torch into the machine's Python.
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
        print(f"{lock.name}: torch is now {version}, the version on this machine. Git shows the file as changed.")


if __name__ == "__main__":
    lend(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
