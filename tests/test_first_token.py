"""Limiting the last layer to the first token changes neither logits nor gradients."""

import copy
from typing import Any

import pytest
import torch
import transformers

from pipeline.modeling.first_token import first_token_only

BERT_LIKE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
CONFIGS = {
    **dict.fromkeys(("bert", "electra", "mpnet", "roberta"), BERT_LIKE),
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
}


def classifier(model_type: str, config: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    settings = transformers.AutoConfig.for_model(
        model_type, vocab_size=50, pad_token_id=1, initializer_range=0.5, **config
    )
    return transformers.AutoModelForSequenceClassification.from_config(settings).eval()


def batch() -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 50, (4, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    ids[:2, 6:], mask[:2, 6:] = 1, 0
    return {"input_ids": ids, "attention_mask": mask}


def gradients(model: Any) -> dict[str, torch.Tensor]:
    logits = model(**batch()).logits
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 1, 0])).backward()
    return {"logits": logits.detach()} | {name: weight.grad for name, weight in model.named_parameters()}


def count_positions(model: Any) -> int:
    return int(model.base_model(**batch()).last_hidden_state.shape[1])


@pytest.mark.parametrize("model_type", CONFIGS)
def test_logits_and_gradients_do_not_change(model_type: str) -> None:
    model = classifier(model_type, CONFIGS[model_type])
    limited = copy.deepcopy(model)
    first_token_only(limited)
    assert (count_positions(model), count_positions(limited)) == (9, 1)
    torch.testing.assert_close(gradients(limited), gradients(model), rtol=1e-4, atol=1e-6)


def test_an_unsupported_model_is_not_changed() -> None:
    """ALBERT applies the same layer repeatedly."""
    model = classifier("albert", BERT_LIKE | {"embedding_size": 16})
    first_token_only(model)
    assert count_positions(model) == 9
