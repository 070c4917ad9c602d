"""edgemask: graph domain generalisation.

>>> from edgemask import EdgeMaskClassifier, benchmark
>>> graphs = benchmark("synthetic").load()
>>> model = EdgeMaskClassifier().fit([graphs["alpha"], graphs["beta"]])
>>> labels = model.predict(graphs["gamma"])
"""

from edgemask._version import __version__
from edgemask.data import BENCHMARKS, DataError, Store, benchmark, read_graph, write_graph
from edgemask.estimator import EdgeMaskClassifier
from edgemask.graph import Graph, GraphError, collect
from edgemask.protocol import Protocol, leave_one_out
from edgemask.recipe import RECIPES, Recipe, recipe

__all__ = [
    "BENCHMARKS",
    "RECIPES",
    "DataError",
    "EdgeMaskClassifier",
    "Graph",
    "GraphError",
    "Protocol",
    "Recipe",
    "Store",
    "__version__",
    "benchmark",
    "collect",
    "leave_one_out",
    "read_graph",
    "recipe",
    "write_graph",
]
