"""How to use a trained model. Train writes it beside the weights, which then need neither params.yaml nor the data."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

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
    """The settings of a trained model. Raises UserError where it is none of this pipeline's."""
    path = directory / SETTINGS
    try:
        return InferenceSettings(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        has = "is not there" if not directory.is_dir() else f"has no {SETTINGS}"
        raise UserError(
            f'{directory} {has}; run "dvc repro", or name a directory that stage train has written'
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}); train the model again") from None
