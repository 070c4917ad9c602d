"""Synthetic families of domains with the paper's assumption built in: P(X) and P(Y|X) are shared by all
domains of a `Family`, P(A) is each domain's own `Wiring`.

Every edge is drawn endpoint by endpoint in proportion to the nodes' degree weights (a degree-corrected block
model), so the cost grows with the number of edges (the sorts that find duplicates add their logarithm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.store import Store
from edgemask.errors import InputError
from edgemask.graph import Graph
from edgemask.protocol import leave_one_out
from edgemask.seeds import numpy_stream

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

LATENT = 16  # dense features are noisy copies of this few coordinates, so that near means alike
AMBIENT = 0.1  # standard deviation of what each dense feature adds of its own
UNIT = 256  # degree weights are whole multiples of 1/UNIT: block boundaries are then exact
ROUNDS = 100  # of redrawing what fell on itself or on an edge already there
CHUNK = 1 << 16  # rows of dense features made at a time


@dataclass(frozen=True)
class Wiring:
    """One domain's P(A), for a graph of `degree` × nodes / 2 undirected edges.

    `degree`              mean degree.
    `homophily`           share of the label-wired edges (all but the spurious) that join two nodes of one
                          class; the others join two classes.
    `degree_law`          "poisson", or "power": P(degree = k) ~ k^-`exponent`, cut at √(nodes × degree).
    `communities`         communities inside each class, and `community_strength`, the share of the edges
                          inside a class that stay in one community (1 when there is but one).
    `spurious`            share of edges wired by a rule of this domain alone. The domain deals its nodes to
                          `groups` hidden groups at random, and spurious edges join two nodes of one group:
                          they say nothing of the label. But of them, a share of
    `spurious_label`      joins classes that are neighbours on the domain's own random ring of classes: these
                          do tell the label, in this domain, and mislead in the next.
    `nodes`               the domain's own size; the family's when None.
    """

    degree: float = 10.0
    homophily: float = 0.8
    degree_law: Literal["poisson", "power"] = "poisson"
    exponent: float = 2.5
    communities: int = 1
    community_strength: float = 0.8
    spurious: float = 0.0
    groups: int = 10
    spurious_label: float = 0.0
    nodes: int | None = None

    def __post_init__(self) -> None:
        _within("wiring", "degree", self.degree, 0, 1e6, "number")
        for share in ("homophily", "community_strength", "spurious", "spurious_label"):
            _within("wiring", share, getattr(self, share), 0, 1, "number")
        _one_of("wiring", "degree_law", self.degree_law, ("poisson", "power"))
        _within("wiring", "exponent", self.exponent, 2.05, 10, "number")  # at 2 and below there is no mean degree
        _within("wiring", "communities", self.communities, 1, 10**6, "whole number")
        _within("wiring", "groups", self.groups, 1, 10**6, "whole number")
        if self.nodes is not None:
            _within("wiring", "nodes", self.nodes, 2, 10**9, "whole number")


@dataclass(frozen=True)
class Family:
    """What all domains share: P(X) and P(Y|X), through the class prior and P(X|Y).

    `kind="dense"`   a Gaussian mixture: unit noise around class means that lie `signal` apart, in `LATENT`
                     coordinates that the `features` columns copy, with a little noise of their own.
    `kind="words"`   sparse counts: each node draws about `words` words from its class's distribution over the
                     `features` words; `signal`² is then about the symmetric KL divergence of two classes, as
                     it is for Gaussians that lie `signal` apart.
    `prior`          probability of each class; uniform when empty.
    """

    nodes: int = 1500
    features: int = 64
    classes: int = 5
    signal: float = 1.6
    kind: Literal["dense", "words"] = "dense"
    words: int = 30
    prior: tuple[float, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        _within("family", "classes", self.classes, 2, 10**4, "whole number")
        _within("family", "nodes", self.nodes, 2, 10**9, "whole number")
        _within("family", "features", self.features, self.classes, 10**7, "whole number")
        _within("family", "signal", self.signal, 0, 100, "number")
        _one_of("family", "kind", self.kind, ("dense", "words"))
        _within("family", "words", self.words, 1, 10**5, "whole number")
        _within("family", "seed", self.seed, 0, 2**63 - 1, "whole number")
        if self.prior:
            for p in self.prior:
                _within("family", "prior", p, 0, 1, "number")
            if len(self.prior) != self.classes or abs(sum(self.prior) - 1) > 1e-6:
                raise InputError(f"family: prior must be {self.classes} probabilities that sum to 1, got {self.prior}")


@dataclass(frozen=True)
class Hidden:
    """What a domain was wired by: per node its class, degree weight, community in the class and spurious group;
    per class its successor on the spurious ring."""

    y: Ints
    weight: Ints
    community: Ints
    group: Ints
    successor: Ints


def make(family: Family, wirings: Mapping[str, Wiring]) -> dict[str, Graph]:
    """The domains of a family by name. Each is drawn from streams of its own name: adding one changes none."""
    return {name: domain(family, wiring, name) for name, wiring in wirings.items()}


def domain(family: Family, wiring: Wiring, name: str) -> Graph:
    """One domain: its own nodes from the family's law, joined by its own wiring."""
    secret = hidden(family, wiring, name)
    features = _dense if family.kind == "dense" else _words
    return Graph(
        name=name,
        x=features(family, secret.y, numpy_stream(family.seed, "features", name)),
        edges=_wire(wiring, secret, name, numpy_stream(family.seed, "wiring", name)),
        y=secret.y,
        classes=tuple(str(c) for c in range(family.classes)),
        undirected=True,
    )


def hidden(family: Family, wiring: Wiring, name: str) -> Hidden:
    """What `domain` wires the domain of this name by: the same arrays, drawn from the same streams."""
    n, prior = wiring.nodes or family.nodes, family.prior or np.full(family.classes, 1 / family.classes)
    if wiring.degree > n - 1:
        raise InputError(f"domain {name!r}: degree must be at most nodes - 1 = {n - 1}, got {wiring.degree}")
    y = numpy_stream(family.seed, "labels", name).choice(family.classes, n, p=prior)
    community = numpy_stream(family.seed, "community", name).integers(wiring.communities, size=n)
    group = numpy_stream(family.seed, "group", name).integers(wiring.groups, size=n)
    ring = numpy_stream(family.seed, "ring", name).permutation(family.classes)
    weight = np.full(n, UNIT)
    if wiring.degree_law == "power":
        pareto = 1 + numpy_stream(family.seed, "degree", name).pareto(wiring.exponent - 1, n)
        mean = (wiring.exponent - 1) / (wiring.exponent - 2)
        # the structural cut-off: above it two hubs would need more than one edge between them
        highest = mean * np.sqrt(n / max(wiring.degree, 1))
        weight = (UNIT * np.minimum(pareto, highest)).astype(np.int64)
    return Hidden(y, weight, community, group, np.roll(ring, -1)[np.argsort(ring)])


# ---- wiring --------------------------------------------------------------------------------------------


class _Lottery:
    """Nodes drawn in proportion to their weight. They lie block after block on one line of whole-numbered
    tickets, so a draw inside a block, or outside it, is a draw from a range of tickets."""

    def __init__(self, weight: Ints, block: Ints, blocks: int):
        self.order = np.argsort(block, kind="stable")
        self.block = block[self.order]
        self.ends = np.cumsum(weight[self.order])
        line = np.concatenate([[0], self.ends])[np.searchsorted(self.block, np.arange(blocks + 1))]
        self.ranges = np.stack([line[:-1], line[1:]])  # the tickets of each block, first and past the last

    def pairs(self, rng: np.random.Generator, count: int, outer: Ints, hole: Ints) -> tuple[Ints, Ints]:
        """`count` sources by weight, each with a partner by weight from `outer[:, b]` less `hole[:, b]`, where
        b is the source's block. A source that has no such partner is left out."""
        width = hole[1] - hole[0]
        room = outer[1] - outer[0] - width
        source = np.searchsorted(self.ends, rng.integers(self.ends[-1], size=count), side="right")
        source = source[room[self.block[source]] > 0]
        b = self.block[source]
        ticket = outer[0, b] + rng.integers(room[b])
        ticket += width[b] * (ticket >= hole[0, b])
        return self.order[source], self.order[np.searchsorted(self.ends, ticket, side="right")]


def _wire(wiring: Wiring, secret: Hidden, name: str, rng: np.random.Generator) -> Ints:
    """2 × M distinct undirected edges without self-loops, each given once, M = nodes × degree / 2."""
    n, k, classes = len(secret.y), wiring.communities, len(secret.successor)
    by_class = _Lottery(secret.weight, secret.y * k + secret.community, classes * k)
    by_group = _Lottery(secret.weight, secret.group, wiring.groups)
    community = by_class.ranges
    class_ = np.stack([community[0, ::k], community[1, k - 1 :: k]])
    successor, class_ = class_[:, secret.successor].repeat(k, axis=1), class_.repeat(k, axis=1)
    everyone = np.stack([np.zeros_like(class_[0]), np.full_like(class_[0], by_class.ends[-1])])

    total = round(n * wiring.degree / 2)
    spurious = round(wiring.spurious * total)
    ringed = round(wiring.spurious_label * spurious)
    inside = round(wiring.homophily * (total - spurious))
    local = round(wiring.community_strength * inside) if k > 1 else inside
    kinds = (
        ("inside a community", local, by_class, community, 0 * community),
        ("between communities of a class", inside - local, by_class, class_, community),
        ("between classes", total - spurious - inside, by_class, everyone, class_),
        ("between spurious classes", ringed, by_class, successor, 0 * successor),
        ("inside a spurious group", spurious - ringed, by_group, by_group.ranges, 0 * by_group.ranges),
    )
    keys, wanted = np.empty(0, dtype=np.int64), 0
    for kind, count, lottery, outer, hole in kinds:
        wanted += count
        for _ in range(ROUNDS):
            if len(keys) == wanted:
                break
            u, v = lottery.pairs(rng, wanted - len(keys), outer, hole)
            key = np.minimum(u, v) * n + np.maximum(u, v)
            keys = np.sort(np.concatenate([keys, key[u != v]]))
            keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique hashes: fifty times slower here
        if wanted - len(keys) > 0.01 * count:
            raise InputError(
                f"domain {name!r}: {count} edges {kind} were asked, room was found for "
                f"{count - wanted + len(keys)}; lower the degree or that share, or raise the nodes"
            )
        wanted = len(keys)
    return np.stack([keys // n, keys % n])


# ---- features ------------------------------------------------------------------------------------------


def _dense(family: Family, y: Ints, rng: np.random.Generator) -> Floats:
    """N × d: latent z ~ N(signal/√2 · e_y, I), and column j = ± z_k(j) / √(copies of k) + AMBIENT · noise.

    Each column copies one coordinate: a full rotation would need a matrix product, whose last bits depend on
    the number of threads."""
    n, d = len(y), family.features
    latent = min(d, max(LATENT, family.classes))
    law = numpy_stream(family.seed, "law")  # shared by all domains
    copied = law.permutation(d) % latent
    loading = (law.choice([-1.0, 1.0], d) / np.sqrt(np.bincount(copied)[copied])).astype(np.float32)
    x = np.empty((n, d), dtype=np.float32)
    for start in range(0, n, CHUNK):
        rows = x[start : start + CHUNK]
        rng.standard_normal(dtype=np.float32, out=rows)
        rows *= np.float32(AMBIENT)
        z = rng.standard_normal((len(rows), latent), dtype=np.float32)
        z[np.arange(len(rows)), y[start : start + CHUNK]] += np.float32(family.signal / np.sqrt(2))
        rows += z[:, copied] * loading
    return x


def _words(family: Family, y: Ints, rng: np.random.Generator) -> Any:
    """N × d CSR counts: 1 + Poisson(words - 1) words a node, from P(w | c) ~ exp(tilt_cw) / (10 + rank w)."""
    n, d = len(y), family.features
    law = numpy_stream(family.seed, "law")  # shared by all domains
    tilt = law.standard_normal((family.classes, d)) * family.signal / np.sqrt(2 * family.words)
    p = np.exp(tilt) / (10 + law.permutation(d))
    ladder = np.cumsum(p, axis=1)
    ladder /= ladder[:, -1:]
    ladder += np.arange(family.classes)[:, None]  # class c draws from [c, c + 1) of one long ladder
    lengths = 1 + rng.poisson(family.words - 1, n)
    draw = rng.random(int(lengths.sum()), dtype=np.float32) + np.repeat(y, lengths)  # exact in float64
    words = (np.searchsorted(ladder.ravel(), draw, side="right") % d).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    counts = sp.csr_array((np.ones(len(words), dtype=np.float32), words, indptr), shape=(n, d))
    counts.sum_duplicates()
    return counts


# ---- checks --------------------------------------------------------------------------------------------


def _within(
    owner: str, option: str, value: Any, low: float, high: float, kind: Literal["number", "whole number"]
) -> None:
    legal = isinstance(value, int if kind == "whole number" else int | float) and not isinstance(value, bool)
    if not legal or not low <= value <= high:
        raise InputError(f"{owner}: {option} must be a {kind} from {low:g} to {high:g}, got {value!r}")


def _one_of(owner: str, option: str, value: object, legal: Sequence[str]) -> None:
    if value not in legal:
        raise InputError(f"{owner}: {option} must be one of {', '.join(legal)}, got {value!r}")


# ---- the stock family ----------------------------------------------------------------------------------

WIRINGS: Mapping[str, Wiring] = {
    "alpha": Wiring(degree=8, homophily=0.85, spurious=0.5, spurious_label=0.95),
    "beta": Wiring(degree=6, homophily=0.9, degree_law="power", spurious=0.5, spurious_label=0.95),
    "gamma": Wiring(degree=10, homophily=0.8, communities=4, spurious=0.5, spurious_label=0.95),
}


def demo_family(nodes: int = 1500, seed: int = 0) -> dict[str, Graph]:
    """The stock domains "alpha", "beta" and "gamma". Structure helps on each of them, but the ring of classes
    that tells part of the label is another one in each, so a GCN trained on two loses on the third."""
    return make(Family(nodes=nodes, seed=seed), WIRINGS)


def _read(store: Store, domains: Sequence[str], **options: Any) -> dict[str, Graph]:
    return make(Family(**options), {name: WIRINGS[name] for name in domains})


SYNTHETIC = Benchmark(
    name="synthetic",
    card=Card(
        title="Synthetic domains: one law of features and labels, three wirings",
        nodes="1,500 in each domain; any number (option `nodes`)",
        edges="undirected; mean degree 8 / 6 / 10 in alpha / beta / gamma",
        features="64 dense columns, a Gaussian mixture by class (options `features`, `signal`), or sparse counts "
        "of about `words` words (kind='words')",
        labels="5 classes, equally likely (option `classes`)",
        shift="P(X) and P(Y|X) are shared exactly; degree law, homophily and the spurious wiring differ",
        split="leave one domain out",
        metric="micro-F1 and macro-F1 over all nodes of the target",
        licence="generated; MIT as the code",
        origin="generated by this package",
        citation="none; a degree-corrected block model (Karrer and Newman, 2011) with class-dependent features",
        notes="The data depend on the option `seed`: compare methods on the same seed, over several of them.",
    ),
    domains=tuple(WIRINGS),
    protocols=leave_one_out(tuple(WIRINGS), ("micro_f1", "macro_f1")),
    files=lambda domain: (),
    read=_read,
    options={f.name: f.default for f in fields(Family) if f.name != "prior"},
)
