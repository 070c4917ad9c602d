"""An Adam optimiser that does not import torch's compiler.

`torch.optim.Adam` imports the compiler on its first call. That takes 140 MiB of memory and also loads Triton.
"""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch

# The methods without the wrappers with which torch excludes them from its compiler.
_add_param_group, _zero_grad = unwrap(torch.optim.Optimizer.add_param_group), unwrap(torch.optim.Optimizer.zero_grad)
_step = unwrap(torch.optim.Adam.step)


class Adam(torch.optim.Adam):
    """Adam whose steps are the same as those of `torch.optim.Adam`, to the bit."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters."""
        _add_param_group(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters."""
        _zero_grad(self, set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the parameters once."""
        return _step(self, closure)
