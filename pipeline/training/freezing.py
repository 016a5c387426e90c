"""Keep the lower layers of a base model as they are."""

from typing import Any

import torch

from pipeline.core.messages import UserError, log


def freeze_layers(model: Any, n: int) -> None:
    """Freeze the lowest `n` encoder layers and what they depend on, such as the embeddings, without dropout there."""
    encoder = model.base_model.encoder if model.config.is_encoder_decoder else model.base_model
    lists = [module for module in encoder.modules() if isinstance(module, torch.nn.ModuleList)]
    layers: Any = next((layers for layers in lists if len(layers) == model.config.num_hidden_layers), [])
    if n > len(layers):  # ALBERT has no list, because its layers share their weights.
        raise UserError(f"params.yaml: train.freeze_layers must be at most {len(layers)} for this model, got {n}.")

    def stop_dropout(encoder: torch.nn.Module, inputs: Any) -> None:
        encoder.eval()
        for layer in layers[n:]:
            layer.train(model.training)

    # After this pass, every weight that the output of the frozen layers depends on has a gradient, which may be zero.
    states = encoder(input_ids=torch.zeros((1, 8), dtype=torch.long), output_hidden_states=True).hidden_states
    states[n].sum().backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.requires_grad, parameter.grad = False, None
    layers[:n].requires_grad_(False)  # also weights that only other inputs reach, such as Longformer's global attention
    encoder.register_forward_pre_hook(stop_dropout)
    counts = [f"{model.num_parameters(only_trainable=trained):,}" for trained in (True, False)]
    log.info("freezing %d of %d layers: %s of %s parameters are trained", n, len(layers), *counts)
