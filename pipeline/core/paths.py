"""Where things are: the artefacts that flow from stage to stage, and the names of the splits."""

import os
from pathlib import Path

from pipeline.core.messages import UserError

# The artefacts that flow from stage to stage, relative to the directory that holds dvc.yaml.
CHECKED = Path("data/params_checked")
RAW = Path("data/raw")
TOKENIZED = Path("data/tokenized")
PREDICTIONS = Path("data/predictions")
PRETRAINED = Path("models/pretrained")
CLASSIFIER = Path("models/classifier")
METRICS = Path("metrics")
CHECKPOINTS = Path("models/.checkpoints")


SPLITS = ("train", "validation", "test")
SCORED = SPLITS[1:]
SOURCE = "source.json"  # in a directory of data or of a checkpoint: where it is from, and its hashes
SWAPPED = "_swapped"  # behind a split's name: the same pairs with their sentences changed round


def require(path: Path, producer: str) -> Path:
    """Return `path`, the output of the stage `producer`, or raise UserError where it has not been made yet."""
    if not path.exists():
        raise UserError(f'{path} is missing; run "dvc repro {producer}"')
    return path


def users_path(text: str | Path) -> Path:
    """A path as the user gave it; a relative one counts from the user's repository.

    DVC runs queued and temporary experiments in a directory of its own, and tells by DVC_ROOT where they come from.
    """
    return Path(os.environ.get("DVC_ROOT", ""), Path(text).expanduser())
