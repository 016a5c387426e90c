"""What determines a result, as a name: so that what has been run is found again, and nothing else is taken for it."""

import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.core.paths import users_path
from pipeline.core.yaml12 import read_yaml
from pipeline.params import PARAMS, Params, load_params

SEED = "train.seed"
_PIPELINE, _LOCK = Path("dvc.yaml"), Path("dvc.lock")
_CODE = {".py", ".jinja", ".js"}  # of a sub-package's files, those that are DVC's: see .dvcignore


def identity(overrides: list[str]) -> str:
    """A digest of all that may determine the results except the seed.

    That is the parameters, dvc.yaml, the code and the lock file that it names, the user's own data, a checkpoint of
    their own, and the environment of this machine.
    overrides: as for `dvc exp run -S`. Raises UserError for one that DVC or `load_params` refuses.
    """
    from pipeline.modeling.device import usable_device
    from pipeline.modeling.environment import environment

    params = overridden(overrides).model_dump()
    surroundings = environment(usable_device(params["train"]["precision"]))
    del params["train"]["seed"]
    params["runtime"] = params["runtime"]["launcher"]  # the other keys cannot change a result
    digest = hashlib.sha256(json.dumps([params, surroundings], sort_keys=True).encode())
    if users_path(params["model"]["checkpoint"]).is_dir():  # whose files may change under the same name
        digest.update(_pretrained().encode())
    for file in _code() + (_own_data(Path(params["data"]["directory"])) if params["data"]["task"] == "own" else []):
        state = file.stat()
        digest.update(f"{file} {_sha256(file, state.st_size, state.st_mtime_ns)}\n".encode())
    return digest.hexdigest()[:8]


@functools.cache
def _sha256(file: Path, size: int, modified: int) -> str:
    """Hash a file once per process: a search asks for the identity of hundreds of trials, and data may be large.

    The size and the time of the last change are there for the cache, so that an edited file is hashed again.
    """
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def overridden(overrides: list[str]) -> Params:
    """params.yaml with the overrides of a run. Raises UserError as `identity`."""
    from dvc.utils.hydra import apply_overrides  # private to DVC; no public way applies -S without a run

    load_params()
    if not os.access(PARAMS, os.W_OK):
        raise UserError(
            f"{PARAMS} is read-only, and DVC writes the parameters of each run into it; make it writable, for example "
            f'with "chmod u+w {PARAMS}"'
        )
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, PARAMS)
        shutil.copyfile(PARAMS, copy)
        for override in overrides:
            if re.match(rf"\+*{re.escape(SEED)}=", override):
                raise UserError(f"-S {override}: {SEED} is chosen for each run; leave it out")
            try:
                apply_overrides(copy, [override])
            except Exception as error:  # DVC's, and those of its parser and writer, which it lets through
                reason = str(error.__cause__ or error).splitlines()[0]
                raise UserError(
                    f"-S {override}: {reason.rstrip('.')}; use key=value, with a key of {PARAMS}; put quotes around "
                    "unusual text, and a plus before what is new, as +train.extra.NAME=value"
                ) from None
        try:
            return load_params(copy)
        except UserError as error:
            raise UserError(str(error).replace(f"{copy}", f"{PARAMS} with {' '.join(overrides)}")) from None


def _code() -> list[Path]:
    """dvc.yaml and the dependencies of its stages that no stage writes: code, and the lock file of the packages.

    It leaves out check and report, which change no result, and params.yaml, which holds the seed.
    """
    stages = read_yaml(_PIPELINE)["stages"]
    outs = [out for stage in stages.values() for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
    written = {Path(out if isinstance(out, str) else next(iter(out))) for out in outs}
    deps = {Path(dep) for name in stages.keys() - {"check", "report"} for dep in stages[name]["deps"]} - {PARAMS}
    sources = [dep for dep in deps if written.isdisjoint([dep, *dep.parents])]
    files = {file for dep in sources if dep.is_dir() for file in dep.rglob("*") if file.suffix in _CODE}
    return [_PIPELINE, *sorted(files | {dep for dep in sources if dep.is_file()})]


def _pretrained() -> str:
    """The hash of the checkpoint that DVC has, and takes until the stage is forced to read it again."""
    lock = read_yaml(_LOCK) if _LOCK.exists() else None
    recorded = ((lock or {}).get("stages") or {}).get("pretrained") or {}  # less of it: DVC was killed as it wrote it
    return "".join(out.get("md5", "") for out in recorded.get("outs") or [])


def _own_data(directory: Path) -> list[Path]:
    """The files of `data.directory`, but git's and DVC's own."""
    files = (file for file in directory.rglob("*") if file.is_file())
    return sorted(file for file in files if not file.name.startswith(".") and file.suffix != ".dvc")
