"""How to use a trained model. Train writes it beside the weights, which then need neither params.yaml nor the data."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import get_args

from pipeline.core.messages import UserError
from pipeline.core.output import write_json
from pipeline.core.paths import SETTINGS
from pipeline.core.task import ProblemType
from pipeline.params import Precision


@dataclass(frozen=True, kw_only=True)
class InferenceSettings:
    """What to give the model, and what it answers.

    task, problem_type, text_columns, labels: as in `Task`. max_length, padding: as in `tokenize` of params.yaml.
    precision: in which the scores were measured; what `auto` was on the machine that trained.
    """

    task: str
    problem_type: ProblemType
    text_columns: list[str]
    labels: list[str]
    max_length: int
    padding: str
    precision: Precision

    def write(self, directory: Path) -> None:
        write_json(directory / SETTINGS, asdict(self))


def read_settings(directory: Path) -> InferenceSettings:
    """The settings of a trained model. Raises UserError if it is not one of this pipeline's, or is incomplete."""
    path = directory / SETTINGS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        has = "is not there" if not directory.is_dir() else f"has no {SETTINGS}"
        raise UserError(
            f'{directory} {has}; run "dvc repro", or name a directory that stage train has written'
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}); train the model again") from None
    names = [field.name for field in fields(InferenceSettings)]
    if not isinstance(content, dict) or set(content) != set(names):
        entries = ", ".join(content) if isinstance(content, dict) else json.dumps(content)
        raise UserError(f"{path} must have the entries {', '.join(names)}, got {entries}; train the model again")
    settings = InferenceSettings(**content)
    if wrong := _wrong_entry(settings):
        raise UserError(f"{path} has {wrong} as {json.dumps(getattr(settings, wrong))}; train the model again")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        if not (directory / name).is_file():
            raise UserError(f'{directory} has no {name}; copy the directory again, or run "dvc repro --force train"')
    return settings


def _wrong_entry(settings: InferenceSettings) -> str | None:
    """The name of the first entry that no trained model has."""
    regression = settings.problem_type == "regression"
    right = {
        "task": isinstance(settings.task, str),
        "problem_type": settings.problem_type in get_args(ProblemType),
        "text_columns": _are_names(settings.text_columns) and len(settings.text_columns) in (1, 2),
        "labels": _are_names(settings.labels) and bool(settings.labels) != regression,
        "max_length": type(settings.max_length) is int and settings.max_length > 0,
        "padding": settings.padding in ("dynamic", "max_length"),
        "precision": settings.precision in get_args(Precision),
    }
    return next((name for name in right if not right[name]), None)


def _are_names(names: object) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
