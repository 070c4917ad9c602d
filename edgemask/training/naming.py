"""Names and order of graphs that depend on their content only, so that results do not depend on what users choose."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

from edgemask.errors import EdgemaskError
from edgemask.graph import Graph

# Dense features with at most this share of non-zero entries are stored as a sparse matrix for training.
SPARSE = 0.05


class Canonical:
    """Source and validation graphs, sorted by content and renamed.

    Random numbers derive from the names of the graphs and are used in their order. Dense features that are nearly all
    zero, such as counts of words, become sparse: training is then faster and needs less memory.

    Args:
        sources: Graphs to train on.
        validation: Graphs used only for selection.

    Attributes:
        sources: The sources in canonical order, named `source-0`, `source-1`, …
        validation: The validation graphs in canonical order, named `validation-0`, `validation-1`, …
        given: The user's names by canonical name.
    """

    def __init__(self, sources: Sequence[Graph], validation: Sequence[Graph] = ()):
        self.given: dict[str, str] = {}
        self.sources = self._renamed(sources, "source")
        self.validation = self._renamed(validation, "validation")

    def _renamed(self, graphs: Sequence[Graph], kind: str) -> tuple[Graph, ...]:
        ordered = sorted(map(_compact, graphs), key=lambda g: g.hash)
        names = [f"{kind}-{i}" for i in range(len(ordered))]
        self.given |= {name: g.name for name, g in zip(names, ordered, strict=True)}
        return tuple(g.replace(name=name) for name, g in zip(names, ordered, strict=True))

    def text(self, text: str) -> str:
        """Return a text that ends with the name of a graph, with the user's name instead."""
        head, space, last = text.rpartition(" ")
        return f"{head}{space}{self.given[last]}" if last in self.given else text

    def history(self, history: Sequence[dict[str, float]]) -> list[dict[str, float]]:
        """Return a training history with the user's names of the graphs."""
        return [{self.text(key): value for key, value in record.items()} for record in history]

    def message(self, message: object) -> str:
        """Return a message with the user's names of the graphs."""
        names = "|".join(rf"\b{name}\b" for name in self.given)
        return re.sub(names, lambda found: self.given[found[0]], str(message))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the user's names of the graphs in the warnings and errors of the block."""
        with warnings.catch_warnings():
            show = warnings.showwarning

            def renamed(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
                own = category.__module__ == EdgemaskError.__module__
                show(category(self.message(message)) if own else message, category, *place, **more)

            warnings.showwarning = renamed
            try:
                yield
            except EdgemaskError as error:
                if self.message(error) == str(error):
                    raise
                raise type(error)(self.message(error)) from error


def _compact(graph: Graph) -> Graph:
    """Return a graph whose features are sparse if nearly all of them are zero."""
    if graph.is_sparse or np.count_nonzero(graph.x) > SPARSE * graph.x.size:
        return graph
    return graph.replace(x=sp.csr_array(graph.x))
