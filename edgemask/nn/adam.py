"""Adam without torch's compiler, which the stock optimiser imports on its first call: 140 MiB, and Triton among it."""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch

# What torch wraps so that its compiler leaves it alone, as it was before.
_add_param_group, _zero_grad = unwrap(torch.optim.Optimizer.add_param_group), unwrap(torch.optim.Optimizer.zero_grad)
_step = unwrap(torch.optim.Adam.step)


class Adam(torch.optim.Adam):
    """The same steps."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _add_param_group(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        _zero_grad(self, set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return _step(self, closure)
