"""An Adam optimiser that does not import torch's compiler, and takes its usual steps with few calls of torch.

`torch.optim.Adam` imports the compiler on its first call. That takes 140 MiB of memory and also loads Triton.
"""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch
from torch import Tensor

# The methods without the wrappers with which torch excludes them from its compiler.
_add_param_group, _zero_grad = unwrap(torch.optim.Optimizer.add_param_group), unwrap(torch.optim.Optimizer.zero_grad)
_step = unwrap(torch.optim.Adam.step)
_state_dict, _load_state_dict = unwrap(torch.optim.Optimizer.state_dict), unwrap(torch.optim.Optimizer.load_state_dict)

# Settings with which torch takes plain steps on the CPU, one parameter after another.
PLAIN = ("amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay")


class Adam(torch.optim.Adam):
    """Adam whose steps are the same as those of `torch.optim.Adam`, to the bit."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters."""
        _add_param_group(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters."""
        if not set_to_none:
            _zero_grad(self, set_to_none)
            return
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimiser."""
        state: dict[str, Any] = _state_dict(self)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        _load_state_dict(self, state_dict)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the parameters once."""
        if closure is not None or not all(self._is_plain(group) for group in self.param_groups):
            return _step(self, closure)
        for group in self.param_groups:
            self._step_of(group)
        return None

    def _is_plain(self, group: dict[str, Any]) -> bool:
        """Return whether a group has plain settings, and all of its parameters plain numbers and gradients."""
        numbers = isinstance(group["lr"], float) and all(isinstance(beta, float) for beta in group["betas"])
        return (
            numbers
            and not any(group[name] for name in PLAIN)
            and all(p.device.type == "cpu" and not p.is_complex() for p in group["params"])
            and not any(p.grad is not None and p.grad.is_sparse for p in group["params"])
        )

    def _step_of(self, group: dict[str, Any]) -> None:
        """Update the parameters of a group, all of them in each call of torch.

        On the CPU these calls do for every tensor what the call for a single tensor does.
        """
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        slots = [self._slots(p) for p in params]
        grads, steps = [p.grad for p in params], [s["step"] for s in slots]
        means, squares = [s["exp_avg"] for s in slots], [s["exp_avg_sq"] for s in slots]
        (beta1, beta2), lr = group["betas"], group["lr"]
        torch._foreach_add_(steps, 1)
        if group["weight_decay"]:
            grads = list(torch._foreach_add(grads, params, alpha=group["weight_decay"]))
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        counts = [step.item() for step in steps]
        scale = torch._foreach_sqrt(squares)
        torch._foreach_div_(scale, [(1 - beta2**count) ** 0.5 for count in counts])
        torch._foreach_add_(scale, group["eps"])
        torch._foreach_addcdiv_(params, means, scale, [-(lr / (1 - beta1**count)) for count in counts])

    def _slots(self, p: Tensor) -> dict[str, Tensor]:
        """Return the state of a parameter, which is 0 before its first step."""
        slots: dict[str, Tensor] = self.state[p]
        if not slots:
            slots["step"] = torch.tensor(0.0)
            for name in ("exp_avg", "exp_avg_sq"):
                slots[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return slots
