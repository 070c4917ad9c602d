"""What a benchmark is: a data card, the files it needs, its domains, and the protocols it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgemask.data.store import File, Store
from edgemask.errors import InputError
from edgemask.graph import Graph, collect
from edgemask.protocol import Protocol


@dataclass(frozen=True)
class Card:
    """The data card: what a reader must know before trusting a number on this data."""

    title: str
    nodes: str
    edges: str
    features: str
    labels: str
    shift: str
    split: str
    metric: str
    licence: str
    origin: str
    citation: str
    notes: str = ""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. `read` makes the asked domains from the store's files; `options` are its own knobs
    with their defaults, and anything else is refused."""

    name: str
    card: Card
    domains: tuple[str, ...]
    protocols: tuple[Protocol, ...]
    files: Callable[[str], tuple[File, ...]]
    read: Callable[..., dict[str, Graph]]
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(
        self, domains: Sequence[str] | None = None, *, store: Store | None = None, **options: Any
    ) -> dict[str, Graph]:
        """Load domains by name (all by default), verified, in the order asked.

        A file that is missing or altered raises `DataError`, which says what and where.
        """
        self.check_options(options)
        wanted = tuple(self.domains if domains is None else domains)
        for name in wanted:
            if name not in self.domains:
                raise InputError(f"{self.name}: no domain {name!r} (domains: {', '.join(self.domains)})")
        graphs = self.read(store or Store(), wanted, **{**self.options, **options})
        collect([graphs[name] for name in wanted])
        return {name: graphs[name] for name in wanted}

    def check_options(self, options: Iterable[str]) -> None:
        """Raise an `InputError` if a name is not an option of this benchmark."""
        for option in options:
            if option not in self.options:
                known = ", ".join(self.options) or "none"
                raise InputError(f"{self.name}: no option {option!r} (options: {known})")

    def available(self, store: Store) -> tuple[str, ...]:
        """The domains whose files are all in the store (presence only; loading verifies)."""
        return tuple(d for d in self.domains if all(store.has(f) for f in self.files(d)))

    def protocol(self, name: str) -> Protocol:
        for protocol in self.protocols:
            if protocol.name == name:
                return protocol
        known = ", ".join(p.name for p in self.protocols)
        raise InputError(f"{self.name}: no protocol {name!r} (protocols: {known})")
