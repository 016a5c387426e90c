"""Load a fine-tuned model and score texts with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from pipeline.core.messages import UserError
from pipeline.core.paths import SETTINGS
from pipeline.core.task import ProblemType
from pipeline.modeling.device import precision_of_scores, set_up_device
from pipeline.modeling.failures import require_finite_logits
from pipeline.modeling.loading import load_fine_tuned_model, load_tokenizer
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

    def __init__(
        self,
        directory: Path,
        batch_size: int,
        precision: Literal["auto", Precision] | None = None,
        num_threads: int | None = None,
    ) -> None:
        """Load the model.

        Args:
            batch_size: Examples per forward pass.
            precision: None means the precision in which the model's scores were measured, if this machine supports it.
            num_threads: The number of CPU threads. None means torch's default.

        Raises:
            UserError: The model cannot be loaded, or the device does not support the precision.
        """
        self._directory = directory
        self.settings = read_settings(directory)
        self._device = set_up_device(precision or precision_of_scores(self.settings.precision), num_threads)
        self._tokenizer = load_tokenizer(directory)
        model: Any = load_fine_tuned_model(directory, self._device.type)
        self.problem_type: ProblemType = model.config.problem_type
        self.labels = [str(name) for _, name in sorted(model.config.id2label.items())]
        smallest, largest = length_range(directory, self._tokenizer, len(self.settings.text_columns))
        if not smallest <= self.settings.max_length <= largest:
            raise UserError(
                f"{directory}/{SETTINGS}: max_length must be between {smallest} and {largest}, got "
                f"{self.settings.max_length}."
            )
        self._trainer = scoring_trainer(model, self._tokenizer, self._device, batch_size)

    def logits(self, examples: Dataset) -> NDArray[np.float64]:
        """Score tokenized examples once, with any number of processes.

        Returns:
            Logits of shape (examples, outputs), in the order of the examples.

        Raises:
            UserError: Memory runs out, or a logit is NaN or infinite.
        """
        logits = predict_logits(self._trainer, examples)
        require_finite_logits(self._directory, logits, self._device.precision)
        return logits.astype(np.float64)

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
        encoded = encode(columns, self._tokenizer, settings.text_columns, settings.max_length, "dynamic")
        return self.logits(Dataset.from_dict(encoded)), sum(encoded["truncated"])
