"""What a stage depends on according to dvc.yaml: its keys of params.yaml, and its code."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError
from pipeline.core.paths import PARAMS, PROJECT
from pipeline.core.yaml12 import read_yaml

CODE = {".py", ".jinja", ".css", ".csv"}  # the types of files in a sub-package that DVC tracks, see .dvcignore


@contextmanager
def unchanged(stage: str) -> Iterator[None]:
    """Raise UserError if a parameter or the code of a stage changes while the block runs. DVC reads both at the end."""
    before = stage_inputs(stage)
    yield
    after = stage_inputs(stage)
    if changed := [name for name in before | after if before.get(name) != after.get(name)]:
        raise UserError(
            f"{changed[0]} was changed while the stage {stage} ran, and DVC would record the change for the old "
            'result. Run "dvc repro" again.'
        )


def code_digest(stage: str) -> str:
    """Hash the code that a stage depends on."""
    dependencies = read_yaml(PROJECT / "dvc.yaml")["stages"][stage]["deps"]
    paths = [PROJECT / path for path in dependencies if path.startswith("pipeline/")]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.iterdir()))]
    return digest([file for file in files if file.suffix in CODE])


def digest(paths: list[Path]) -> str:
    """Hash files and the files in directories, except for what notebooks and macOS leave there."""
    result = hashlib.sha256()
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and not file.match("cache-*.arrow") and file.name != ".DS_Store":
                with file.open("rb") as content:
                    result.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return result.hexdigest()[:16]


def stage_inputs(stage: str) -> dict[str, Any]:
    """Return the value of each parameter of a stage, and the hash of its code."""
    sections = read_yaml(PROJECT / "dvc.yaml")["stages"][stage].get("params", [])
    parameters = {
        f"{PARAMS}: {key}": value
        for key, value in leaves(read_yaml(PARAMS))
        if any(key == section or key.startswith(f"{section}.") for section in sections)
    }
    return {**parameters, "The code in pipeline/": code_digest(stage)}


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in a tree of mappings with its dotted key."""
    if not isinstance(tree, dict):
        yield prefix, tree
        return
    for key, value in tree.items():
        yield from leaves(value, f"{prefix}.{key}".lstrip("."))
