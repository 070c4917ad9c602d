"""Graphs of networkx."""

from typing import Any


def graph(cls: Any, source: Any, name: str | None, options: dict[str, Any]) -> Any:
    raise NotImplementedError


def digraph(graph: Any) -> Any:
    raise NotImplementedError
