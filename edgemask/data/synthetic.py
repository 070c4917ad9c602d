"""Synthetic families of domains that satisfy the paper's assumption.

All domains of a `Family` share P(X) and P(Y|X). Each domain has its own P(A), described by a `Wiring`.

Both endpoints of an edge are drawn with probabilities proportional to the nodes' degree weights (a degree-corrected
block model). The cost grows with the number of edges; the sorts that find duplicates add a logarithmic factor.
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
from edgemask.errors import InputError, InputTypeError
from edgemask.graph import Graph
from edgemask.legal import Legal
from edgemask.protocol import leave_one_out
from edgemask.seeds import numpy_stream

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

LATENT = 16  # latent coordinates; dense features are noisy copies of them, so that near nodes are similar
AMBIENT = 0.1  # standard deviation of the noise that each dense feature adds
UNIT = 256  # degree weights are integer multiples of 1/UNIT, so that block boundaries are exact
ROUNDS = 100  # maximal rounds of redrawing self-loops and duplicate edges
CHUNK = 1 << 16  # rows of dense features generated at a time


@dataclass(frozen=True)
class Wiring:
    """P(A) of one domain, which has `degree` × nodes / 2 undirected edges.

    Args:
        degree: Mean degree.
        homophily: Share of the label-dependent edges (all but the spurious ones) that join two nodes of the same class.
            The others join nodes of two classes.
        degree_law: `"poisson"`, or `"power"` for P(degree = k) ~ k^-`exponent`, cut off at √(nodes × degree).
        exponent: Exponent of the power law.
        communities: Number of communities in each class.
        community_strength: Share of the edges within a class that stay within one community. It has no effect if there
            is one community.
        spurious: Share of edges that follow a rule of this domain only. The domain assigns its nodes to hidden groups
            at random, and spurious edges join two nodes of the same group, so they carry no information about the
            label.
        groups: Number of hidden groups.
        spurious_label: Share of the spurious edges that join neighbouring classes on the domain's own random ring of
            classes instead. These edges predict the label in this domain and mislead in others.
        nodes: Number of nodes of this domain. The family's number by default.

    Raises:
        InputError: A value is not legal.
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
        legal = {
            "degree": Legal(0, 1e6),
            "homophily": Legal(0, 1),
            "degree_law": Legal(choices=("poisson", "power")),
            "exponent": Legal(2.05, 10),  # the mean is infinite for exponents up to 2
            "communities": Legal(1, 10**6, whole=True),
            "community_strength": Legal(0, 1),
            "spurious": Legal(0, 1),
            "groups": Legal(1, 10**6, whole=True),
            "spurious_label": Legal(0, 1),
            "nodes": Legal(2, 10**9, whole=True, optional=True),
        }
        for name, values in legal.items():
            values.check(f"wiring: {name}", getattr(self, name))


@dataclass(frozen=True)
class Family:
    """P(X) and P(Y|X), which all domains share. They are given by the class prior and P(X|Y).

    Args:
        nodes: Number of nodes of a domain, unless its wiring has its own.
        features: Number of feature columns, at least the number of classes.
        classes: Number of classes.
        signal: Distance of two class means. With `kind="words"`, `signal`² is about the symmetric KL divergence of two
            classes, as it is for Gaussians at the distance `signal`.
        kind: `"dense"` for a Gaussian mixture with unit noise around the class means in `LATENT` coordinates, which
            the feature columns copy with a little noise. `"words"` for sparse counts: each node draws about `words`
            words from its class's distribution over the `features` words.
        words: Mean number of words of a node with `kind="words"`.
        prior: Probability of each class. Uniform by default.
        seed: Seed of all random draws.

    Raises:
        InputError: A value is not legal.
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
        Legal(2, 10**4, whole=True).check("family: classes", self.classes)
        legal = {
            "nodes": Legal(2, 10**9, whole=True),
            "features": Legal(self.classes, 10**7, whole=True),
            "signal": Legal(0, 100),
            "kind": Legal(choices=("dense", "words")),
            "words": Legal(1, 10**5, whole=True),
            "seed": Legal(0, 2**63 - 1, whole=True),
        }
        for name, values in legal.items():
            values.check(f"family: {name}", getattr(self, name))
        if not isinstance(self.prior, tuple | list):
            raise InputTypeError(f"family: prior must be a tuple of probabilities, got {self.prior!r}")
        if self.prior:
            for p in self.prior:
                Legal(0, 1).check("family: prior", p)
            if len(self.prior) != self.classes or abs(sum(self.prior) - 1) > 1e-6:
                raise InputError(f"family: prior must be {self.classes} probabilities that sum to 1, got {self.prior}")


@dataclass(frozen=True)
class Hidden:
    """Hidden variables that determine the edges of a domain.

    Args:
        y: Class of each node.
        weight: Degree weight of each node, in units of 1/UNIT.
        community: Community of each node within its class.
        group: Spurious group of each node.
        successor: Successor of each class on the spurious ring.
    """

    y: Ints
    weight: Ints
    community: Ints
    group: Ints
    successor: Ints


def make(family: Family, wirings: Mapping[str, Wiring]) -> dict[str, Graph]:
    """Generate the domains of a family.

    Each domain has random streams of its own, derived from its name. Adding a domain does not change the others.

    Args:
        family: The shared distribution of features and labels.
        wirings: The wiring of each domain by the domain's name.

    Returns:
        The graphs by name.

    Raises:
        InputError: A domain is too small for its edges.

    >>> make(Family(nodes=100, features=8), {"a": Wiring(degree=6)})
    {'a': Graph('a', 100 nodes, 600 edges, 8 dense features, 5 classes, 100 labelled)}
    """
    return {name: domain(family, wiring, name) for name, wiring in wirings.items()}


def domain(family: Family, wiring: Wiring, name: str) -> Graph:
    """Generate one domain: draw nodes from the family's distribution and join them as the wiring says.

    Args:
        family: The distribution of features and labels.
        wiring: The distribution of edges.
        name: Name of the domain. The random streams are derived from it.

    Raises:
        InputError: The domain is too small for its edges.
    """
    variables = hidden(family, wiring, name)
    draw_features = _dense if family.kind == "dense" else _words
    return Graph(
        name=name,
        x=draw_features(family, variables.y, numpy_stream(family.seed, "features", name)),
        edges=_wire(wiring, variables, name, numpy_stream(family.seed, "wiring", name)),
        y=variables.y,
        classes=tuple(str(c) for c in range(family.classes)),
        undirected=True,
    )


def hidden(family: Family, wiring: Wiring, name: str) -> Hidden:
    """Draw the hidden variables that `domain` uses for the same arguments.

    Args:
        family: The distribution of features and labels.
        wiring: The distribution of edges.
        name: Name of the domain.

    Returns:
        The variables of each node.

    Raises:
        InputError: The mean degree is larger than the number of nodes allows.
    """
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
        # The structural cut-off: two hubs with larger weights would need more than one edge between them.
        highest = mean * np.sqrt(n / max(wiring.degree, 1))
        weight = (UNIT * np.minimum(pareto, highest)).astype(np.int64)
    return Hidden(y, weight, community, group, np.roll(ring, -1)[np.argsort(ring)])


# ---- wiring --------------------------------------------------------------------------------------------


class _Lottery:
    """A sampler of nodes with probabilities proportional to their weights.

    Each node owns as many consecutive integers (tickets) as its weight, and the nodes of a block are contiguous. A draw
    inside or outside a block is therefore a draw from a range of tickets.

    Args:
        weight: Number of tickets of each node.
        block: Block of each node.
        blocks: Number of blocks.

    Attributes:
        order: Nodes sorted by block.
        block: Block of each node in that order.
        ends: For each node in that order, the ticket after its last one.
        ranges: First ticket of each block, and the ticket after its last one (2 × blocks).
    """

    def __init__(self, weight: Ints, block: Ints, blocks: int):
        self.order = np.argsort(block, kind="stable")
        self.block = block[self.order]
        self.ends = np.cumsum(weight[self.order])
        bounds = np.concatenate([[0], self.ends])[np.searchsorted(self.block, np.arange(blocks + 1))]
        self.ranges = np.stack([bounds[:-1], bounds[1:]])

    def pairs(self, rng: np.random.Generator, count: int, outer: Ints, hole: Ints) -> tuple[Ints, Ints]:
        """Draw up to `count` pairs of nodes.

        A source of block b is drawn from all nodes, and its partner from the tickets `outer[:, b]` without those of
        `hole[:, b]`. A source without a possible partner is omitted.
        """
        width = hole[1] - hole[0]
        available = outer[1] - outer[0] - width
        source = np.searchsorted(self.ends, rng.integers(self.ends[-1], size=count), side="right")
        source = source[available[self.block[source]] > 0]
        b = self.block[source]
        ticket = outer[0, b] + rng.integers(available[b])
        ticket += width[b] * (ticket >= hole[0, b])
        return self.order[source], self.order[np.searchsorted(self.ends, ticket, side="right")]


def _wire(wiring: Wiring, variables: Hidden, name: str, rng: np.random.Generator) -> Ints:
    """Draw 2 × M distinct undirected edges without self-loops, each in one direction, with M = nodes × degree / 2."""
    n, k, classes = len(variables.y), wiring.communities, len(variables.successor)
    by_class = _Lottery(variables.weight, variables.y * k + variables.community, classes * k)
    by_group = _Lottery(variables.weight, variables.group, wiring.groups)
    community = by_class.ranges
    class_ = np.stack([community[0, ::k], community[1, k - 1 :: k]])
    successor, class_ = class_[:, variables.successor].repeat(k, axis=1), class_.repeat(k, axis=1)
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
            keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique hashes, which is fifty times slower here
        if wanted - len(keys) > 0.01 * count:
            raise InputError(
                f"domain {name!r}: {count} edges {kind} are needed, but only {count - wanted + len(keys)} fit; "
                "lower the degree or the share of these edges, or raise the number of nodes"
            )
        wanted = len(keys)
    return np.stack([keys // n, keys % n])


# ---- features ------------------------------------------------------------------------------------------


def _dense(family: Family, y: Ints, rng: np.random.Generator) -> Floats:
    """Draw N × d features: z ~ N(signal/√2 · e_y, I), and column j = ± z_k(j) / √(copies of k) + AMBIENT · noise.

    Each column copies one latent coordinate. A full rotation would need a matrix product, whose last bits depend on
    the number of threads.
    """
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
    """Draw N × d CSR counts: 1 + Poisson(words - 1) words per node, from P(w | c) ~ exp(tilt_cw) / (10 + rank w)."""
    n, d = len(y), family.features
    law = numpy_stream(family.seed, "law")  # shared by all domains
    tilt = law.standard_normal((family.classes, d)) * family.signal / np.sqrt(2 * family.words)
    p = np.exp(tilt) / (10 + law.permutation(d))
    cumulative = np.cumsum(p, axis=1)
    cumulative /= cumulative[:, -1:]
    cumulative += np.arange(family.classes)[:, None]  # class c uses the interval [c, c + 1) of one concatenated table
    lengths = 1 + rng.poisson(family.words - 1, n)
    draw = rng.random(int(lengths.sum()), dtype=np.float32) + np.repeat(y, lengths)  # exact in float64
    words = (np.searchsorted(cumulative.ravel(), draw, side="right") % d).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    counts = sp.csr_array((np.ones(len(words), dtype=np.float32), words, indptr), shape=(n, d))
    counts.sum_duplicates()
    return counts


# ---- the predefined family -----------------------------------------------------------------------------

WIRINGS: Mapping[str, Wiring] = {
    "alpha": Wiring(degree=8, homophily=0.85, spurious=0.5, spurious_label=0.95),
    "beta": Wiring(degree=6, homophily=0.9, degree_law="power", spurious=0.5, spurious_label=0.95),
    "gamma": Wiring(degree=10, homophily=0.8, communities=4, spurious=0.5, spurious_label=0.95),
}


def demo_family(nodes: int = 1500, seed: int = 0) -> dict[str, Graph]:
    """Generate the predefined domains "alpha", "beta" and "gamma".

    The structure is informative in each domain, but the ring of classes that predicts part of the label differs between
    the domains. A GCN trained on two domains therefore loses accuracy on the third.

    Args:
        nodes: Number of nodes of each domain.
        seed: Seed of all random draws.

    Returns:
        The graphs by name.
    """
    return make(Family(nodes=nodes, seed=seed), WIRINGS)


def _read(store: Store, domains: Sequence[str], **options: Any) -> dict[str, Graph]:
    return make(Family(**options), {name: WIRINGS[name] for name in domains})


SYNTHETIC = Benchmark(
    name="synthetic",
    card=Card(
        title="Synthetic domains: one distribution of features and labels, three wirings",
        nodes="1,500 in each domain by default (option `nodes`)",
        edges="undirected; mean degree 8 / 6 / 10 in alpha / beta / gamma",
        features="64 dense columns, a Gaussian mixture with one component per class (options `features`, `signal`), "
        "or sparse counts of about `words` words (kind='words')",
        labels="5 classes, equally likely (option `classes`)",
        shift="P(X) and P(Y|X) are exactly the same; degree distribution, homophily and spurious edges differ",
        split="leave one domain out",
        metric="micro-F1 and macro-F1 over all nodes of the target",
        licence="generated; MIT, like the code",
        origin="generated by this package",
        citation="none; a degree-corrected block model (Karrer and Newman, 2011) with class-dependent features",
        notes="The data depends on the option `seed`: compare methods on the same seeds, and use several seeds.",
    ),
    domains=tuple(WIRINGS),
    protocols=leave_one_out(tuple(WIRINGS), ("micro_f1", "macro_f1")),
    files=lambda domain: (),
    read=_read,
    options={f.name: f.default for f in fields(Family) if f.name != "prior"},
)
