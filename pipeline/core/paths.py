"""Paths of the files and directories that stages write, and functions for reading them in later stages."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from pipeline.core.messages import UserError, one_line

_T = TypeVar("_T")

PROJECT = Path(__file__).parents[2]  # the directory that holds the package `pipeline`, dvc.yaml and the lock files

# Relative to the directory that holds dvc.yaml.
PARAMS = Path("params.yaml")
LOCK = Path("dvc.lock")  # where DVC records the parameters and the files of each stage that has run
CHECKED = Path("data/params_checked")
RAW = Path("data/raw")
TOKENIZED = Path("data/tokenized")
PREDICTIONS = Path("data/predictions")
BASELINES = Path("data/baseline")  # the predictions of simple models, in the directories `linear` and `frozen`
PRETRAINED = Path("models/pretrained")
CLASSIFIER = Path("models/classifier")
METRICS_DIR = Path("metrics")
BASE_MODELS = Path("models/base")  # local base models, which the stage pretrained depends on

TOKENIZATION = "tokenization.json"  # in data/tokenized: how the texts were tokenized
SETTINGS = "inference.json"  # in models/classifier: how to use the model
PROVENANCE = "provenance.json"  # in models/classifier and next to predictions: what the model is made from
SOURCE = "source.json"  # in a directory of data or of a base model: its origin and checksums


def require(path: Path) -> Path:
    """Return `path`, an output of a stage. Raises UserError if it does not exist."""
    if not path.exists():
        raise UserError(f'{path} is missing. Run "dvc repro".')
    return path


def read_output(path: Path, read: Callable[[Path], _T]) -> _T:
    """Read `path`, an output of a stage. Raises UserError if it is missing or damaged."""
    try:
        return read(require(path))
    except (OSError, ValueError) as error:
        raise UserError(f'{path} cannot be read: {one_line(error)}. Run "dvc repro", which restores it.') from None


def read_record(path: Path, record_type: type[_T]) -> _T:
    """Read a JSON object as a value of a type, such as a dataclass. Raises UserError if it is missing or damaged."""
    return read_output(path, lambda file: TypeAdapter(record_type).validate_json(file.read_bytes()))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, an output of a stage. Raises UserError if it is missing or damaged."""
    return read_record(path, dict[str, Any])


def users_path(text: str | Path) -> Path:
    """Resolve a path from the user, who may write it relative to the repository.

    Experiments run elsewhere. DVC sets DVC_ROOT to the repository, and commands such as `seeds` set USERS_REPOSITORY.
    """
    return Path(os.environ.get("USERS_REPOSITORY", os.environ.get("DVC_ROOT", "")), Path(text).expanduser())
