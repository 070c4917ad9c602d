"""IS-GIB: HSIC is correct, the bottlenecks compress, and without them the method is risk minimisation."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.erm import ERM
from edgemask.methods.execution import seeded
from edgemask.methods.is_gib import ISGIB, cosine, dependence, gaussian, hsic, relation_loss
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", mask=False, k=0, clusters=0, hidden=8, dropout=0.0, lr=0.01)
NO_PENALTY = {"individual": 0.0, "structural": 0.0, "relations": 0.0}
A, B, _ = demo_family(80).values()
SOURCES = [Source(GraphTensors.of(g), torch.arange(80), None) for g in (A, B)]


def is_gib(**hyper: float) -> ISGIB:
    return ISGIB(TINY.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_hsic_is_its_mean_over_all_sets_of_four_nodes():
    a, b = draw(6, 3), draw(6, 2, seed=1)
    k, l = gaussian(a), cosine(b)  # noqa: E741
    four = [k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q]) for i, j, q, r in permutations(range(6), 4)]
    torch.testing.assert_close(hsic(k, l), torch.stack(four).mean())
    torch.testing.assert_close(dependence(k, l), hsic(k, l) / torch.sqrt(hsic(k, k) * hsic(l, l)))


def test_the_gaussian_kernel_is_that_of_a_double_loop_and_knows_no_scale():
    x = draw(6, 3)
    apart = torch.tensor([[float((a - b) @ (a - b)) for b in x] for a in x], dtype=torch.float64)
    torch.testing.assert_close(gaussian(x), torch.exp(-apart / (apart.sum() / 30)))
    torch.testing.assert_close(gaussian(100 * x), gaussian(x))


@pytest.mark.parametrize("kernel", [gaussian, cosine])
def test_the_bottleneck_is_0_on_average_for_independent_variables_and_1_for_the_same(kernel):
    values = [dependence(kernel(draw(100, 4, seed=i)), kernel(draw(100, 3, seed=1000 + i))) for i in range(40)]
    assert abs(torch.stack(values).mean()) < 0.005
    x = draw(100, 4)
    assert dependence(kernel(x), kernel(x)) == pytest.approx(1)
    assert dependence(kernel(x), kernel(x @ draw(4, 3))) > 0.3


def test_dependence_without_correlation_is_found():
    x = draw(200, 1)
    assert dependence(gaussian(x), gaussian(x.square())) > 0.2


def test_the_bottlenecks_gradient_is_that_of_finite_differences():
    x, z = draw(6, 3), draw(6, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: dependence(gaussian(x), gaussian(t)), z)
    assert torch.autograd.gradcheck(lambda t: dependence(cosine(x), cosine(t)), z)


def test_a_constant_representation_has_a_finite_bottleneck_and_gradient():
    z = torch.zeros(10, 4, requires_grad=True)
    value = dependence(gaussian(draw(10, 3).float()), gaussian(z)) + dependence(cosine(draw(10, 3).float()), cosine(z))
    value.backward()
    assert value == 0
    assert torch.isfinite(z.grad).all()


def test_the_relation_loss_is_that_of_a_double_loop():
    z, y = draw(9, 3), torch.tensor([0, 0, 1, 2, 1, 0, 2, 2, 1])
    same, other = [], []
    for i in range(9):
        for j in range(9):
            p = torch.sigmoid(z[i] @ z[j])
            if i != j:
                (same if y[i] == y[j] else other).append(-torch.log(p if y[i] == y[j] else 1 - p))
    torch.testing.assert_close(relation_loss(z, y), torch.stack(same).mean() + torch.stack(other).mean())


def test_with_all_weights_at_0_a_step_is_one_of_risk_minimisation():
    mine, theirs = is_gib(**NO_PENALTY), ERM(TINY, 64, 5, 0, CPU)
    losses = mine.update(SOURCES, 0), theirs.update(SOURCES, 0)
    assert losses[0]["loss alpha"] == pytest.approx(losses[1]["loss alpha"])
    for p, q in zip(mine.networks.parameters(), theirs.networks.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("name", ["individual", "structural"])
def test_the_bottleneck_compresses(name):
    def left(method: ISGIB) -> float:
        for epoch in range(25):
            method.update(SOURCES, epoch)
        task = method.networks["task"].eval()
        kernel = gaussian if name == "individual" else cosine
        with torch.no_grad():
            x = torch.cat([s.domain.x for s in SOURCES])
            z = torch.cat([task.embed(s.domain.x, s.domain.edges) for s in SOURCES])
            return float(dependence(kernel(x), kernel(z)))

    assert left(is_gib(**NO_PENALTY | {name: 10.0})) < 0.5 * left(is_gib(**NO_PENALTY))


def test_the_relation_term_brings_nodes_of_a_class_together():
    def gap(method: ISGIB) -> float:
        for epoch in range(25):
            method.update(SOURCES, epoch)
        task, s = method.networks["task"].eval(), SOURCES[0]
        with torch.no_grad():
            unit = F.normalize(task.embed(s.domain.x, s.domain.edges), dim=1)
        alike = s.domain.y[:, None] == s.domain.y
        return float((unit @ unit.T)[alike].mean() - (unit @ unit.T)[~alike].mean())

    assert gap(is_gib(**NO_PENALTY | {"relations": 1.0})) > gap(is_gib(**NO_PENALTY))


def test_only_training_nodes_take_part():
    hidden = A.replace(y=(A.y + (torch.arange(80) >= 40).numpy()) % 5)
    one, other = is_gib(), is_gib()
    for method, graph in ((one, A), (other, hidden)):
        with seeded(0, CPU):
            method.update([Source(GraphTensors.of(graph), torch.arange(40), None)], 0)
    for p, q in zip(one.networks.parameters(), other.networks.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_network_without_a_representation_is_refused():
    with pytest.raises(ValueError, match="layers"):
        ISGIB(TINY.replace(layers=1), 64, 5, 0, CPU)
