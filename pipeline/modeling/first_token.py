"""Skip the computations in an encoder's last layer whose results the classification head never reads.

The heads of the models below only read the last hidden state of the first token. After the last attention, tokens do
not affect each other anymore. So the last feed-forward network, which has two thirds of a layer's matrix products, only
needs to process the first token. Logits and gradients stay the same up to rounding.
"""

from typing import Any

# The module after the last attention. Its inputs have one row per token, and rows are not mixed after it.
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
    """Limit the last layer of a sequence classifier to the first token, if its head is known to read no other token."""
    if path := _AFTER_LAST_ATTENTION.get(model.config.model_type):
        module = model.base_model.get_submodule(path.format(last=model.config.num_hidden_layers - 1))
        module.register_forward_pre_hook(lambda _, states: tuple(state[:, :1] for state in states))
