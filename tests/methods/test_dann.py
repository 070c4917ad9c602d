"""DANN: the discriminator learns to predict the source, and the encoder learns to prevent that."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.dann import DANN, MOST_SOURCES, reverse
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01, epochs=100)
A, B, _ = demo_family(80).values()
PAIR = [Source(GraphTensors.of(g), torch.arange(80), None) for g in (A, B.replace(x=B.x + 0.5))]


def dann(weight=1.0, **changes) -> DANN:
    return DANN(TINY.replace(hyper=(("weight", weight),), **changes), 64, 5, 0, CPU)


def discriminator_loss(method, *, reversed_by=None) -> torch.Tensor:
    """Compute the discriminator's loss on the plain representations."""
    task, losses = method.networks["task"], []
    for i, s in enumerate(PAIR):
        h = task.embed(s.domain.x, s.domain.edges)
        logits = method.networks["discriminator"](h if reversed_by is None else reverse(h, reversed_by))
        losses.append(F.cross_entropy(logits[:, :2], torch.full((80,), i)))
    return (losses[0] + losses[1]) / 2


def test_values_pass_and_gradients_come_back_reversed():
    x = torch.randn(4, 3, requires_grad=True, generator=torch.Generator().manual_seed(0))
    out = reverse(x, torch.tensor(0.25))
    assert torch.equal(out, x)
    (out * torch.arange(3.0)).sum().backward()
    assert torch.equal(x.grad, -0.25 * torch.arange(3.0).expand(4, 3))


def test_the_gradient_of_the_encoder_through_the_discriminator_is_reversed_and_its_own_is_not():
    method = dann()
    networks = method.networks
    encoder, own = list(networks["task"].linears[0].parameters()), list(networks["discriminator"].parameters())
    plain = torch.autograd.grad(discriminator_loss(method), encoder + own)
    method.weight.fill_(0.3)
    loss = method.penalty(torch.zeros(2), [method.source_output(s, s.domain.edges) for s in PAIR])
    gradients = torch.autograd.grad(loss, encoder + own)
    torch.testing.assert_close(loss, discriminator_loss(method))
    torch.testing.assert_close(gradients[0], -0.3 * plain[0])
    assert plain[0].abs().sum() > 0
    for mine, theirs in zip(gradients[1:], plain[1:], strict=True):
        torch.testing.assert_close(mine, theirs)


def test_the_reversal_grows_from_0_to_the_weight():
    method = dann(0.5)
    strengths = [method.strength(epoch) for epoch in range(101)]
    assert strengths[0] == 0
    assert strengths == sorted(strengths)
    assert strengths[-1] == pytest.approx(0.5, rel=1e-3)
    assert dann(0.5, epochs=10).strength(5) == pytest.approx(strengths[50])


def test_a_discriminator_that_nobody_works_against_tells_the_sources_and_one_that_is_fought_does_not():
    idle, adversarial = dann(0.0), dann(1.0)
    for epoch in range(100):
        ends = [method.update(PAIR, epoch)["discriminator"] for method in (idle, adversarial)]
    assert ends[0] < 0.2
    assert ends[1] > 0.5  # log 2 = 0.69 is chance level


def test_one_optimiser_moves_both():
    method = dann()
    before = {k: v.clone() for k, v in method.networks.state_dict().items()}
    method.update(PAIR, 50)
    assert all(not torch.equal(v, before[k]) for k, v in method.networks.state_dict().items())


def test_too_many_sources_are_refused():
    with pytest.raises(ValueError, match=f"at most {MOST_SOURCES} sources apart, got {MOST_SOURCES + 1}"):
        dann().update(PAIR[:1] * (MOST_SOURCES + 1), 0)
