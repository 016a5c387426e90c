"""Load a fine-tuned model and score texts with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from pipeline.core.paths import SETTINGS
from pipeline.core.task import ProblemType
from pipeline.modeling.device import precision_of_scores, set_up_device
from pipeline.modeling.failures import require_finite_logits
from pipeline.modeling.loading import load_fine_tuned_model, load_tokenizer, reading_model
from pipeline.modeling.scoring import predict_logits, scoring_trainer
from pipeline.modeling.settings import read_settings
from pipeline.modeling.tokenization import encode, length_range
from pipeline.params import Precision


class Classifier:
    """A fine-tuned model, loaded from a directory that the stage train wrote.

    It gives the same logits as the stage predict, up to rounding in the chosen precision.

    Attributes:
        settings: How to use the model, for example its text columns and its maximum length.
        problem_type: The same as in `Task`.
        labels: The names of the outputs, in their order. A regression has a single output with a meaningless name.
    """

    def __init__(self, directory: Path, batch_size: int, precision: Literal["auto", Precision] | None = None) -> None:
        """Load the model.

        Args:
            batch_size: Examples per forward pass.
            precision: None means the precision in which the model's scores were measured, if this machine supports it.

        Raises:
            UserError: The model cannot be loaded, or the device does not support the precision.
        """
        self._directory = directory
        with reading_model(directory):
            self.settings = settings = read_settings(directory)
            self._device = set_up_device(precision or precision_of_scores(settings.precision), None, "--precision")
            self._tokenizer = load_tokenizer(directory)
            model: Any = load_fine_tuned_model(directory, self._device.type)
            names = model.config.id2label
            self.problem_type: ProblemType = model.config.problem_type
            self.labels = [str(names[number]) for number in range(len(names))]
            shortest, longest = length_range(directory, self._tokenizer, len(settings.text_columns))
            if not shortest <= settings.max_length <= longest:
                raise ValueError(
                    f"{SETTINGS}: max_length must be between {shortest} and {longest}, got {settings.max_length}"
                )
        self._trainer = scoring_trainer(model, self._tokenizer, self._device, batch_size)

    def score(self, texts: Sequence[Sequence[str]]) -> tuple[NDArray[np.float64], int]:
        """Score new examples.

        Args:
            texts: One sequence per text column, with the text of each example.

        Returns:
            Logits of shape (examples, outputs), and the number of examples that were truncated to `max_length`.

        Raises:
            UserError: Memory runs out, or a logit is NaN or infinite.
        """
        settings = self.settings
        columns: dict[str, Any] = dict(zip(settings.text_columns, texts, strict=True))
        encoded = encode(columns, self._tokenizer, settings.text_columns, settings.max_length, settings.padding)
        logits = predict_logits(self._trainer, Dataset.from_dict(encoded))
        require_finite_logits(self._directory, logits, self._device.precision)
        return logits.astype(np.float64), sum(encoded["truncated"])
