"""Save how to use a fine-tuned model next to its weights, so that it works without params.yaml."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from pipeline.core.messages import UserError
from pipeline.core.output import write_json
from pipeline.core.paths import SETTINGS, read_output
from pipeline.params import Precision


class InferenceSettings(BaseModel):
    """How to tokenize texts for a fine-tuned model, and in which precision to run it.

    Attributes:
        text_columns: The same as in `Task`.
        max_length: The same as in the section `tokenize` of params.yaml.
        precision: The precision in which the scores were measured. If train.precision is `auto`, this is the precision
            that `auto` meant on the machine that trained the model.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    text_columns: Annotated[list[str], Field(min_length=1, max_length=2)]
    max_length: PositiveInt
    precision: Precision

    def write(self, directory: Path) -> None:
        write_json(directory / SETTINGS, self.model_dump())


def read_settings(directory: Path) -> InferenceSettings:
    """Read the settings of a fine-tuned model.

    Raises:
        UserError: The directory does not contain a model that this pipeline trained, or some of its files are missing.
    """
    path = directory / SETTINGS
    if not path.is_file():
        problem = f"has no {SETTINGS}" if directory.is_dir() else "does not exist"
        raise UserError(f'{directory} {problem}. Run "dvc repro", or choose a directory that the stage train wrote.')
    settings = read_output(path, "train", lambda path: InferenceSettings.model_validate_json(path.read_bytes()))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        if not (directory / name).is_file():
            raise UserError(f'{directory} has no {name}. Copy the directory again, or run "dvc repro --force train".')
    return settings
