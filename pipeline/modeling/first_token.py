"""Spare the last layer of an encoder the work that its head never reads.

The heads of the models below classify by the final state of the first token. Beyond the last attention each token goes
its own way, so that of the last layer's feed-forward network, two thirds of a layer's matrix products, all rows but the
first are computed for nothing, in training and in prediction. Logits and gradients are the same but for rounding.
"""

from typing import Any

# Where attention ends: the module whose inputs have one row for each token, and are mixed no more.
_AFTER_LAST_ATTENTION = {
    "bert": "encoder.layer.{last}.attention.output",
    "camembert": "encoder.layer.{last}.attention.output",
    "distilbert": "transformer.layer.{last}.sa_layer_norm",
    "electra": "encoder.layer.{last}.attention.output",
    "mpnet": "encoder.layer.{last}.attention.LayerNorm",
    "roberta": "encoder.layer.{last}.attention.output",
    "xlm-roberta": "encoder.layer.{last}.attention.output",
}


def first_token_only(model: Any) -> None:
    """Let the last layer of a sequence classifier end with the first token, where its head is known to read no other.

    The model's last hidden state then has shape (batch, 1, hidden size).
    """
    if path := _AFTER_LAST_ATTENTION.get(model.config.model_type):
        module = model.base_model.get_submodule(path.format(last=model.config.num_hidden_layers - 1))
        module.register_forward_pre_hook(_first_token)


def _first_token(module: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(of_tokens[:, :1] for of_tokens in states)
