"""The edge-wise operators on a GPU, in Triton.

Most kernels run one program per node, or per node and head, which reads the node's edges from `indptr`. Positions
outside `indptr` are never read as edges, so arrays may be padded. There are no atomic operations: one program computes
each sum in a fixed order, and the same inputs give the same results to the bit.
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
