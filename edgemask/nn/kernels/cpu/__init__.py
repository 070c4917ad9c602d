"""The operators on the CPU: multi-threaded loops over edges or nodes, forward and backward.

One thread computes each sum, in the order of the edges. There are no atomic operations, and the results are the same to
the bit for any number of threads.
"""

from edgemask.nn.kernels.cpu.aggregate import aggregate, gcn_weights, product
from edgemask.nn.kernels.cpu.attention import attend
from edgemask.nn.kernels.cpu.edge_mlp import edge_mlp
from edgemask.nn.kernels.cpu.nodes import activate, head_logits, head_mean

__all__ = ["activate", "aggregate", "attend", "edge_mlp", "gcn_weights", "head_logits", "head_mean", "product"]
