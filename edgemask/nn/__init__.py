"""Neural networks: backbones, the MaskNet, propagation, graph tensors, and kernels.

The networks are plain `torch.nn.Module`s with the signature `network(x, edge_index, edge_weight=None, mask=None)`:

>>> import torch
>>> from edgemask.nn import GCN
>>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
>>> GCN(inputs=3, hidden=16, classes=2)(x, edge_index, mask=torch.tensor([1.0, 1.0, 0.5, 0.0])).shape
torch.Size([4, 2])

Public names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgemask.nn.budget import budget_mask
    from edgemask.nn.egc import EGC
    from edgemask.nn.gat import MaskedGAT as GAT
    from edgemask.nn.gcn import GCN
    from edgemask.nn.gcn_sum import GCNSum
    from edgemask.nn.gin import GIN
    from edgemask.nn.gpr import GPR
    from edgemask.nn.masknet import MaskNet
    from edgemask.nn.mix import Mix
    from edgemask.nn.mlp import MLP
    from edgemask.nn.propagation import propagate
    from edgemask.nn.sage import SAGE
    from edgemask.nn.sgc import SGC
    from edgemask.nn.tensors import Edges, SparseMatrix

_PATHS = {
    "EGC": "egc.EGC",
    "GAT": "gat.MaskedGAT",
    "GCN": "gcn.GCN",
    "GIN": "gin.GIN",
    "GPR": "gpr.GPR",
    "MLP": "mlp.MLP",
    "SAGE": "sage.SAGE",
    "SGC": "sgc.SGC",
    "Edges": "tensors.Edges",
    "GCNSum": "gcn_sum.GCNSum",
    "MaskNet": "masknet.MaskNet",
    "Mix": "mix.Mix",
    "SparseMatrix": "tensors.SparseMatrix",
    "budget_mask": "budget.budget_mask",
    "propagate": "propagation.propagate",
}

__all__ = [
    "EGC",
    "GAT",
    "GCN",
    "GIN",
    "GPR",
    "MLP",
    "SAGE",
    "SGC",
    "Edges",
    "GCNSum",
    "MaskNet",
    "Mix",
    "SparseMatrix",
    "budget_mask",
    "propagate",
]


def __getattr__(name: str) -> Any:
    if name not in _PATHS:
        raise AttributeError(f"module 'edgemask.nn' has no attribute {name!r}")
    module, _, attribute = _PATHS[name].rpartition(".")
    value = getattr(import_module(f"edgemask.nn.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
