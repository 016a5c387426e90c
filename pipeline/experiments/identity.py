"""A name derived from everything that can change the predictions of a run.

Finished runs are found again by this name, and are never confused with others.
"""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.core.paths import LOCK, PARAMS, users_path
from pipeline.core.stage import CODE
from pipeline.core.yaml12 import read_yaml
from pipeline.params import Params, load_params
from pipeline.sources.fetch import file_sha256
from pipeline.sources.files import is_hidden

SEED_KEY = "train.seed"
FOLD_KEY = "data.split.fold"
_PIPELINE = Path("dvc.yaml")
_OUTPUTS = ("outs", "metrics", "plots")  # the keys for the outputs of a stage in dvc.yaml


def identity(overrides: list[str], varied_key: str = SEED_KEY) -> str:
    """Hash everything that can change the predictions of a run, except for the key that the runs of a group vary.

    The hash covers the parameters, the code, the locked packages, the user's own data and corrections, a local base
    model, and the environment of this machine.

    Args:
        overrides: Parameters as for `dvc exp run -S`.
        varied_key: SEED_KEY or FOLD_KEY.

    Raises:
        UserError: DVC or `load_params` rejects an override.
    """
    from pipeline.modeling.device import usable_device
    from pipeline.modeling.environment import environment

    params = load_overridden_params(overrides, varied_key).model_dump()
    surroundings = environment(usable_device(params["train"]["precision"]))
    if varied_key == SEED_KEY:
        del params["train"]["seed"]
    else:
        del params["data"]["split"]["fold"]
    del params["evaluate"], params["data"]["name"]  # They cannot change a prediction.
    params["runtime"] = params["runtime"]["launcher"]  # The other keys cannot change a result.
    digest = hashlib.sha256(json.dumps([params, surroundings], sort_keys=True).encode())
    files = _code(with_linear_model=varied_key == FOLD_KEY)
    base_model = _visible_files(users_path(params["model"]["checkpoint"]))  # none if the model is on the Hub
    if base_model:  # DVC trains on its copy of these files until the stage pretrained runs again.
        digest.update(_recorded_base_model_hash().encode())
    files += base_model
    if params["data"]["task"] == "custom":
        files += _visible_files(Path(params["data"]["directory"]))
    files.append(Path(params["data"]["corrections"]))
    for file in files:
        digest.update(f"{file} {file_sha256(file)}\n".encode())
    return digest.hexdigest()[:8]


def load_overridden_params(overrides: list[str], varied_key: str = SEED_KEY) -> Params:
    """Return params.yaml with the overrides of a run, which must not set the key that differs between the runs.

    Raises:
        UserError: DVC or `load_params` rejects an override.
    """
    from dvc.utils.hydra import apply_overrides  # Private to DVC: no public function applies -S without a run.

    load_params()  # An error in the file itself must not be blamed on an override.
    settings = " ".join(overrides)
    if any(override.lstrip("+").startswith(f"{varied_key}=") for override in overrides):
        raise UserError(f"{settings}: {varied_key} is chosen for each run. Remove it.")
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, PARAMS)
        shutil.copyfile(PARAMS, copy)
        try:
            apply_overrides(copy, [as_dvc_override(override) for override in overrides])
        except Exception as error:  # DVC raises its own errors, and the errors of its parser and its writer.
            options = " ".join(f"-S {override}" for override in overrides)
            reason = str(error.__cause__ or error).splitlines()[0].rstrip(".").replace("++", "")
            raise UserError(
                f"{options}: {reason}. Use key=value with a key of {PARAMS}. To try several values, run the command "
                "once for each of them, or use python -m pipeline.search. Put a text with commas or brackets in double "
                "quotes: 'key=\"a, b\"'."
            ) from None
        try:
            return load_params(copy)
        except UserError as error:
            raise UserError(str(error).replace(f"{copy}", f"{PARAMS} with {settings}")) from None


def as_dvc_override(override: str) -> str:
    """Return an override that also adds a new key, such as train.training_args.NAME. `load_params` checks the keys."""
    return f"++{override.lstrip('+')}"


def _code(*, with_linear_model: bool) -> list[Path]:
    """List dvc.yaml, and the dependencies of its stages that no stage writes: the code and the locked packages.

    The stages check, evaluate and report are left out because they cannot change the predictions of a model, and
    params.yaml because it contains the seed. The stage baseline only counts for folds, whose results have its scores.
    """
    stages = read_yaml(_PIPELINE)["stages"]
    outputs = [entry for stage in stages.values() for key in _OUTPUTS for entry in stage.get(key, [])]
    written = {Path(entry if isinstance(entry, str) else next(iter(entry))) for entry in outputs}
    names = stages.keys() - {"check", "evaluate", "report", *([] if with_linear_model else ["baseline"])}
    dependencies = {Path(path) for name in names for path in stages[name].get("deps", [])}
    files = {_PIPELINE}
    for path in dependencies - {PARAMS}:
        if written.isdisjoint([path, *path.parents]):
            files |= {file for file in path.rglob("*") if file.suffix in CODE}
            files |= {path} if path.is_file() else set()
    return sorted(files)


def _recorded_base_model_hash() -> str:
    """Return the hash of the base model that dvc.lock records, or nothing if it records none."""
    lock = (read_yaml(LOCK) if LOCK.exists() else None) or {}
    stage = (lock.get("stages") or {}).get("pretrained") or {}  # Incomplete if DVC was killed while it wrote the file.
    return "".join(output.get("md5", "") for output in stage.get("outs") or [])


def _visible_files(directory: Path) -> list[Path]:
    """List the files in a directory, except for hidden ones, such as those in .git, and the files of DVC."""
    files = [file for file in directory.rglob("*") if file.is_file() and file.suffix != ".dvc"]
    return sorted(file for file in files if not any(map(is_hidden, file.relative_to(directory).parts)))
