"""Graphs as two tables of pandas: nodes and edges."""

from typing import Any


def graph(cls: Any, nodes: Any, edges: Any, name: str, options: dict[str, Any]) -> Any:
    raise NotImplementedError


def frames(graph: Any) -> Any:
    raise NotImplementedError
