"""Adam without torch's compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from edgemask.nn.adam import Adam

SETTINGS = [{}, {"fused": True}, {"foreach": True}, {"amsgrad": True}]


def trained(make, steps=6, **settings):
    """Return the weights of two groups and the optimiser's state. The second group has no gradients at first."""
    stream = torch.Generator().manual_seed(0)
    first, second = (torch.randn(5, 3, generator=stream).requires_grad_() for _ in range(2))
    optimiser = make([first], 1e-2, weight_decay=1e-3, **settings)
    optimiser.add_param_group({"params": [second], "lr": 0.1, "betas": (0.5, 0.9)})
    for step in range(steps):
        optimiser.zero_grad(set_to_none=step % 2 == 0)
        x = torch.randn(7, 5, generator=stream)
        ((x @ first).square().sum() + ((x @ second).sin().sum() if step > 1 else 0)).backward()
        optimiser.step()
        if step == 3:  # as when resuming from a checkpoint
            optimiser.load_state_dict(optimiser.state_dict())
    return first, second, optimiser.state_dict()


@pytest.mark.parametrize("settings", SETTINGS)
def test_steps_equal_those_of_torch_to_the_bit(settings):
    (first, second, state), (torch_first, torch_second, torch_state) = (
        trained(make, **settings) for make in (Adam, torch.optim.Adam)
    )
    assert torch.equal(first, torch_first)
    assert torch.equal(second, torch_second)
    assert state["param_groups"] == torch_state["param_groups"]
    for i, slots in torch_state["state"].items():
        assert all(torch.equal(state["state"][i][name], value) for name, value in slots.items())


def test_hooks_are_called_and_closures_evaluated_with_gradients():
    weight, seen = torch.ones(2, requires_grad=True), []
    optimiser = Adam([weight], 0.1)
    optimiser.register_step_post_hook(lambda *_: seen.append(weight.detach().clone()))

    def closure():
        optimiser.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimiser.step(closure) == 2
    assert torch.equal(seen[0], weight.detach())
    assert (weight < 1).all()


FIT = """
import sys
from edgemask.data.synthetic import demo_family
from edgemask.methods.edgemask import Game
from edgemask.config import recipe
from edgemask.training.candidates import choose_candidates
from edgemask.training.fit import Fit
from edgemask.training.race import Race
Fit(Game, recipe("robust", epochs=1, k=3, clusters=3), [demo_family(100)["alpha"]]).run()
Race(choose_candidates(["erm-gcn"], [], epochs=2), [demo_family(300)["alpha"]]).run()
sys.exit(any(name in sys.modules for name in ("torch._dynamo", "triton")))
"""


@pytest.mark.slow
def test_a_fit_on_a_cpu_does_not_load_torchs_compiler():
    assert subprocess.run([sys.executable, "-c", FIT], timeout=100, check=False).returncode == 0
