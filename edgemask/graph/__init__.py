"""Graphs as users give them: `Graph`, conversions from other libraries, and what several graphs must have in common."""

from __future__ import annotations

from edgemask.graph.accept import applicable, as_graph, as_graphs, is_sequence
from edgemask.graph.contract import Contract, unify
from edgemask.graph.core import MISSING, Array, Graph, collect
from edgemask.graph.structure import STRUCTURE

__all__ = [
    "MISSING",
    "STRUCTURE",
    "Array",
    "Contract",
    "Graph",
    "applicable",
    "as_graph",
    "as_graphs",
    "collect",
    "is_sequence",
    "unify",
]
