"""Encode texts with a base model that is not fine-tuned."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray

from pipeline.core.paths import SOURCE, read_json
from pipeline.modeling.device import Device
from pipeline.modeling.environment import environment
from pipeline.modeling.loading import load_encoder
from pipeline.modeling.scoring import predict_logits, scoring_trainer
from pipeline.modeling.tokenization import encode, load_tokenizer


class FrozenEncoder:
    """A base model that turns a text into the mean of its last hidden states over the tokens of the text."""

    def __init__(self, directory: Path, max_length: int, batch_size: int, device: Device) -> None:
        self.provenance = {"checkpoint": read_json(directory / SOURCE), "environment": environment(device)}
        self._tokenizer = load_tokenizer(directory)
        self._max_length = min(max_length, self._tokenizer.model_max_length)
        torch.manual_seed(0)  # for weights that the base model lacks
        model = load_encoder(directory)
        model.register_forward_hook(_mean_over_tokens, with_kwargs=True)  # Its result replaces the output.
        self._trainer = scoring_trainer(model, self._tokenizer, device, batch_size)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Return an array of shape (texts, hidden size)."""
        # Some tokenizers, such as GPT-2's, make no token from an empty text.
        examples = {"text": [text or "\n" for text in texts]}
        encoded = encode(examples, self._tokenizer, ["text"], self._max_length)
        return predict_logits(self._trainer, Dataset.from_dict(encoded))


def _mean_over_tokens(model: Any, args: Any, inputs: dict[str, torch.Tensor], outputs: Any) -> dict[str, torch.Tensor]:
    mask = inputs["attention_mask"].unsqueeze(-1)
    return {"logits": (outputs.last_hidden_state.float() * mask).sum(1) / mask.sum(1).clamp(min=1)}
