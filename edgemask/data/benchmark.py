"""The description of a benchmark: its data card, files, domains and evaluation protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from edgemask.data.store import File, Store
from edgemask.errors import InputError
from edgemask.graph import Graph, collect
from edgemask.legal import did_you_mean
from edgemask.protocol import Protocol


@dataclass(frozen=True)
class Card:
    """The data card of a benchmark: one text per topic, shown by `edgemask data info NAME`."""

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
    """A benchmark.

    Args:
        name: Name of the benchmark.
        card: Its data card.
        domains: Names of its domains.
        protocols: Its evaluation protocols. `edgemask bench` runs these.
        files: Function that returns the files of a domain.
        read: Function that reads domains: `read(store, domains, **options)` returns the graphs by name.
        options: Options of `read` with their defaults. Records hold their values.
        later_options: Options that were added when the benchmark already had records, with their defaults. Records hold
            only values that differ from the default, so old records stay valid.
        sets: Further sets of protocols by name.
    """

    name: str
    card: Card
    domains: tuple[str, ...]
    protocols: tuple[Protocol, ...]
    files: Callable[[str], tuple[File, ...]]
    read: Callable[..., dict[str, Graph]]
    options: Mapping[str, Any] = field(default_factory=dict)
    later_options: Mapping[str, Any] = field(default_factory=dict)
    sets: Mapping[str, tuple[Protocol, ...]] = field(default_factory=dict)

    def load(
        self, domains: Sequence[str] | None = None, *, store: Store | None = None, **options: Any
    ) -> dict[str, Graph]:
        """Load domains after verifying their files.

        Args:
            domains: Names of the domains. All domains by default.
            store: The data store. A `Store` with the default data root if not given.
            **options: Options of this benchmark by name.

        Returns:
            The graphs by name, in the given order.

        Raises:
            InputError: A domain or an option is unknown, or an option has a value that is not legal.
            DataError: A file is altered, or it is missing and cannot be downloaded.
        """
        self.check_options(options)
        wanted = tuple(self.domains if domains is None else domains)
        for name in wanted:
            if name not in self.domains:
                near = did_you_mean(name, self.domains)
                raise InputError(f"{self.name}: no domain {name!r} (domains: {', '.join(self.domains)}){near}")
        graphs = self.read(store or Store(), wanted, **{**self.every_option, **options})
        collect([graphs[name] for name in wanted])
        return {name: graphs[name] for name in wanted}

    @property
    def every_option(self) -> dict[str, Any]:
        """All options with their defaults."""
        return {**self.options, **self.later_options}

    def check_options(self, options: Iterable[str]) -> None:
        """Check that names are options of this benchmark.

        Raises:
            InputError: A name is not an option.
        """
        for option in options:
            if option not in self.every_option:
                known = ", ".join(self.every_option) or "none"
                near = did_you_mean(option, self.every_option)
                raise InputError(f"{self.name}: no option {option!r} (options: {known}){near}")

    def available(self, store: Store) -> tuple[str, ...]:
        """Return the domains whose files are all present in the store. The files are not verified."""
        return tuple(d for d in self.domains if all(store.has(f) for f in self.files(d)))

    def protocol(self, name: str) -> Protocol:
        """Return a protocol by name.

        Raises:
            InputError: The benchmark has no protocol of this name.
        """
        every = [*self.protocols, *chain.from_iterable(self.sets.values())]
        for protocol in every:
            if protocol.name == name:
                return protocol
        known = ", ".join([*(p.name for p in every), *(f"the set {name}" for name in self.sets)])
        near = did_you_mean(name, [*(p.name for p in every), *self.sets])
        raise InputError(f"{self.name}: no protocol {name!r} (protocols: {known}){near}")

    def select_protocols(self, names: Sequence[str]) -> tuple[Protocol, ...]:
        """Return the protocols of the given names of protocols and sets; the usual protocols if no name is given.

        Raises:
            InputError: The benchmark has no protocol and no set of a name.
        """
        if not names:
            return self.protocols
        return tuple(chain.from_iterable(self.sets[n] if n in self.sets else (self.protocol(n),) for n in names))

    def options_under(self, protocol: Protocol, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with which a protocol's domains are loaded: the given ones, the protocol's, the defaults.

        Of the later options, only those that differ from their default are in the result.

        Raises:
            InputError: A given option contradicts one that the protocol fixes.
        """
        fixed = dict(protocol.options)
        for name, value in given.items():
            if name in fixed and value != fixed[name]:
                raise InputError(f"protocol {protocol.name!r} fixes {name} = {fixed[name]!r}, got {value!r}")
        changed = {k: v for k, v in {**fixed, **given}.items() if k in self.options or v != self.later_options.get(k)}
        return {**self.options, **changed}
