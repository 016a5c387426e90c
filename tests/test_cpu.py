"""The optimizations of PyTorch for CPUs."""

import pytest
import torch
from torch.nn.functional import dropout

from pipeline.modeling.cpu import fast_dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_fast_dropout_drops_a_fraction_p_scales_the_rest_and_masks_the_gradient(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    ones = torch.ones(1001, 999, dtype=dtype, requires_grad=True)
    with fast_dropout():
        dropped = dropout(ones, p)
    dropped.sum().backward()
    kept = torch.tensor(1 / (1 - p), dtype=dtype).item()
    assert dropped.unique().tolist() == pytest.approx([0, kept])
    assert (dropped == 0).double().mean().item() == pytest.approx(p, abs=0.002)  # four standard deviations
    assert ones.grad is not None and torch.equal(ones.grad, dropped.detach())


def test_fast_dropout_masks_are_uniform_and_independent() -> None:
    torch.manual_seed(1)
    with fast_dropout():
        masks = torch.stack([dropout(torch.ones(8, 3), 0.5) for _ in range(4000)]).flatten(1) / 2
    assert masks.mean(0) == pytest.approx(0.5, abs=0.04)
    correlations = torch.corrcoef(masks.T) - torch.eye(24)
    assert correlations.abs().max().item() < 0.07


def test_fast_dropout_follows_the_seed_and_ends_with_its_context() -> None:
    def draw() -> torch.Tensor:
        torch.manual_seed(7)
        return dropout(torch.ones(64, 64), 0.1)

    before = draw()
    with fast_dropout():
        first, second = draw(), draw()
    assert torch.equal(first, second)
    assert not torch.equal(first, before)
    assert torch.equal(draw(), before)


def test_fast_dropout_handles_probabilities_0_and_1_and_odd_shapes() -> None:
    with fast_dropout():
        assert torch.ones(9).bernoulli_(0.0).sum() == 0
        assert torch.zeros(9).bernoulli_(1.0).sum() == 9
        assert torch.ones(0).bernoulli_(0.3).shape == (0,)
        assert set(torch.full((7, 5), 3.0).T.bernoulli_(0.5).unique().tolist()) == {0.0, 1.0}
