"""Train on a graph that does not fit into memory at once: batches of nodes, sampled neighbours, blocks in prediction.

`python examples/large_graph.py 1000000` runs it with a million nodes and ten million edges.
"""

import sys

import numpy as np

from edgemask import EdgeMaskClassifier, Graph


def network(name: str, nodes: int, seed: int) -> Graph:
    """A random graph with 10 edges per node, half of them between nodes of one class, and weak features."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=nodes)
    x = rng.normal(size=(nodes, 16)).astype(np.float32) + 0.7 * np.eye(4, 16, dtype=np.float32)[y]
    source = rng.integers(nodes, size=5 * nodes)
    same = np.argsort(y, kind="stable")  # nodes by class, so that a near position has the same class
    place = np.empty(nodes, dtype=int)
    place[same] = np.arange(nodes)
    near = same[(place[source] + rng.integers(1, nodes // 20, size=len(source))) % nodes]
    target = np.where(rng.random(len(source)) < 0.5, near, rng.integers(nodes, size=len(source)))
    return Graph(name, x, np.stack([source, target]), y, undirected=True, self_loops="drop", duplicates="merge")


nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
model = EdgeMaskClassifier("erm-sage", epochs=5, batch_size=1024, fan_out=10, inference_batch=100_000, lr=0.01)
model.fit([network("one", nodes, 1)])
print(f"{nodes:,} nodes, accuracy {model.score(network('two', nodes, 2)):.3f}")
