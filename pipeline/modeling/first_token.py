"""Skip the work in the last layer of an encoder that its head never reads.

The heads of the models below classify by the final state of the first token. After the last attention, tokens do not
affect each other, so the last feed-forward network, with two thirds of a layer's matrix products, needs to compute
only the first token. Logits and gradients are the same up to rounding.
"""

from typing import Any

# The module after the last attention: its inputs have a row for each token, and rows are not mixed afterwards.
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
    """Cut the last layer of a sequence classifier to the first token, if its head is known to read only this one.

    The model's last hidden state then has shape (batch, 1, hidden size).
    """
    if path := _AFTER_LAST_ATTENTION.get(model.config.model_type):
        module = model.base_model.get_submodule(path.format(last=model.config.num_hidden_layers - 1))
        module.register_forward_pre_hook(_first_token)


def _first_token(module: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(state[:, :1] for state in states)
