"""The edge-wise operators on a GPU, in Triton: one program per node (and head), driven by where its edges begin.

Only positions inside `indptr` are read as edges, so arrays may be longer than what they hold (padding). No atomics:
every sum is taken by one program in a fixed order, and the same inputs give the same bits.
"""

from edgemask.nn.kernels.gpu.aggregate import aggregate, gcn_weights, product
from edgemask.nn.kernels.gpu.attention import attend
from edgemask.nn.kernels.gpu.budget import budget_root
from edgemask.nn.kernels.gpu.edge_mlp import edge_mlp
from edgemask.nn.kernels.gpu.nodes import activate, head_logits, head_mean

__all__ = [
    "activate",
    "aggregate",
    "attend",
    "budget_root",
    "edge_mlp",
    "gcn_weights",
    "head_logits",
    "head_mean",
    "product",
]
