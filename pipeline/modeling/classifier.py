"""Load a fine-tuned model and score texts with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from pipeline.core.dataset_files import read_column
from pipeline.core.paths import SETTINGS, read_record
from pipeline.core.task import ProblemType
from pipeline.modeling.device import precision_of_scores, set_up_device
from pipeline.modeling.loading import load_fine_tuned_model
from pipeline.modeling.scoring import predict_logits, scoring_trainer
from pipeline.modeling.tokenization import encode, load_tokenizer
from pipeline.modeling.windows import mean_over_windows
from pipeline.params import Precision, PrecisionSetting


class InferenceSettings(NamedTuple):
    """How to use a fine-tuned model without params.yaml. The scores were measured in `precision`."""

    text_columns: list[str]
    max_length: int
    precision: Precision
    stride: int | None = None


def read_settings(directory: Path) -> InferenceSettings:
    """Read the settings of a model that the stage train wrote. Raises UserError if they are missing or damaged."""
    return read_record(directory / SETTINGS, InferenceSettings)


class Classifier:
    """A fine-tuned model, loaded from a directory that the stage train wrote.

    Args:
        batch_size: Examples per forward pass.
        precision: None means the precision in which the model's scores were measured, if this machine supports it.
        num_threads: The number of CPU threads. None means torch's default.

    Attributes:
        labels: The names of the outputs, in their order. A regression has a single output with a meaningless name.
    """

    def __init__(
        self,
        directory: Path,
        batch_size: int,
        precision: PrecisionSetting | None = None,
        num_threads: int | None = None,
    ) -> None:
        self.settings = read_settings(directory)
        device = set_up_device(precision or precision_of_scores(self.settings.precision), num_threads)
        self._tokenizer = load_tokenizer(directory)
        model: Any = load_fine_tuned_model(directory, device.type)
        self.problem_type: ProblemType = model.config.problem_type
        self.labels = [str(name) for _, name in sorted(model.config.id2label.items())]
        self._trainer = scoring_trainer(model, self._tokenizer, device, batch_size)

    def logits(self, examples: Dataset) -> NDArray[np.float64]:
        """Score tokenized examples. Returns logits of shape (texts, outputs), in the order of the texts."""
        return mean_over_windows(predict_logits(self._trainer, examples), read_column(examples, "idx"))

    def tokenize(self, texts: Sequence[Sequence[str]]) -> Dataset:
        """Tokenize new examples, one sequence per text column, with a column that says which are `truncated`."""
        settings = self.settings
        columns: dict[str, Any] = {"idx": range(len(texts[0]))} | dict(zip(settings.text_columns, texts, strict=True))
        encoded = encode(columns, self._tokenizer, settings.text_columns, settings.max_length, settings.stride)
        return Dataset.from_dict(encoded)
