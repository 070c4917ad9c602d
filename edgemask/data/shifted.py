"""Cora and Photo with an artificial shift: ten environments of one real graph that differ in a few feature columns.

The variant `eerm` (the default; Wu et al., ICLR 2022) generates ten classes and ten spurious columns with random,
untrained networks. The variant `flip` keeps the real labels and appends one column, a noisy indicator of the first
class. In both variants the domains are named `env0` … `env9`. A result must also state `variant`, `generator` and
`generator_seed`, because data generated with other options has other labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from edgemask.data import unpickle
from edgemask.data.archive import Field, csr_of, read_arrays
from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.forms import benchmark_file, take
from edgemask.data.store import File, Store
from edgemask.errors import GraphError, InputError
from edgemask.graph import Array, Graph
from edgemask.legal import Legal
from edgemask.protocol import Protocol
from edgemask.seeds import numpy_stream

DOMAINS = tuple(f"env{i}" for i in range(10))
WIDTH = 10  # number of generated classes, of hidden units and of spurious columns
HEADS = 2
FLIP_RATES = {"env0": 0.1, "env1": 0.3} | dict.fromkeys(DOMAINS[2:], 0.9)

_PLANETOID = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/"
_CORA = {
    part: File(f"planetoid/ind.cora.{part}", f"{_PLANETOID}ind.cora.{part}", f"sha256:{digest}", size)
    for part, size, digest in (
        ("x", 22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
        ("y", 4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
        ("tx", 148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
        ("ty", 28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
        ("allx", 257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
        ("ally", 47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
        ("graph", 59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
        ("test.index", 5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
    )
}
_PHOTO_PLAIN = File(  # the same graph saved without pickled objects; it cannot be downloaded
    "amazon/amazon_electronics_photo.npz",
    "",
    "sha256:bfd3ee29622e8394c100621ee00537d738b606ecd06d513c7ceb1cd9dc7f1ef0",
    1766825,
)
_PHOTO = File(
    "amazon/amazon_photo.npz",
    "https://raw.githubusercontent.com/EdisonLeeeee/GraphData/"
    "f8022c26b917346f2a461ffec0ec5ae24b36de68/datasets/amazon_photo.npz",
    "sha256:bdb98b54cd3125bfa69b23ba0aae84fabcb770c6727175b8f6eb1d64f3be4b2b",
    1772672,
    alternatives=(_PHOTO_PLAIN,),
)

_PHOTO_FIELDS = {
    **{f"{part}_data": Field("f", (1,)) for part in ("adj", "attr")},
    **{f"{part}_{field}": Field("iu", (1,)) for part in ("adj", "attr") for field in ("indices", "indptr", "shape")},
    "labels": Field("iu", (1,)),
}

# ---- the real graphs -----------------------------------------------------------------------------------


def read_cora(store: Store) -> Graph:
    """Return Cora as published by Planetoid, with its real labels: 2,708 nodes, 5,278 undirected edges.

    Raises:
        DataError: A file is missing, damaged or not a readable pickle.
    """
    # All eight files are verified before any of them is unpickled. x and y only repeat the first rows of allx and ally.
    paths = {part: store.get(file) for part, file in _CORA.items()}
    parts = {p: unpickle.load(paths[p]) for p in ("allx", "tx", "ally", "ty", "graph")}
    with benchmark_file(paths["test.index"]):
        nodes = np.loadtxt(paths["test.index"], dtype=np.int64, ndmin=1)  # node index of each row of tx and ty
    with benchmark_file(paths["graph"].with_name("ind.cora.*")):
        x = sp.vstack([parts["allx"], parts["tx"]], format="csr")
        y = np.concatenate([parts["ally"], parts["ty"]]).argmax(1)
        order = np.arange(len(y))
        last = order[len(parts["ally"]) :]
        if not np.array_equal(np.sort(nodes), last):
            raise GraphError(f"test.index must hold each of the nodes {len(parts['ally'])} … {len(y) - 1} once")
        order[nodes] = last
        neighbours = parts["graph"]
        ends = np.concatenate(list(neighbours.values()))
        starts = np.repeat(list(neighbours), [len(v) for v in neighbours.values()])
        edges = np.stack([starts, ends])
        return Graph("cora", x[order], edges, y[order], undirected=True, duplicates="merge", self_loops="drop")


def read_photo(store: Store) -> Graph:
    """Return Amazon Photo with its real labels and made undirected: 7,650 nodes, 119,081 undirected edges.

    The file without pickles is read if the store contains it. Otherwise the public file is read; it contains object
    arrays, which the restricted unpickler loads. Both files contain the same graph.

    Raises:
        DataError: The file is missing, damaged or not readable.
    """
    path = store.get(_PHOTO)
    with benchmark_file(path):
        if store.present_alternative(_PHOTO) == _PHOTO_PLAIN:
            with path.open("rb") as file:
                fields = read_arrays(file, _PHOTO_FIELDS, path)
            adjacency, x = (csr_of(fields, part) for part in ("adj", "attr"))
            y = take(fields, "labels")
        else:
            objects = unpickle.load_npz_objects(path)
            adjacency, x, y = (take(objects, field) for field in ("adj_matrix", "node_attr", "node_label"))
        n = x.shape[0]
        if adjacency.shape != (n, n):
            raise GraphError(f"expected an adjacency matrix of {n} × {n} nodes, got shape {adjacency.shape}")
        edges = np.stack(adjacency.nonzero())
        return Graph("photo", x, edges, y, undirected=True, duplicates="merge", self_loops="drop")


# ---- random networks, with the default initialisation of PyTorch and PyG, in float64 ----------------------


def glorot(rng: np.random.Generator, *shape: int) -> Array:
    """Draw Glorot-uniform weights of a two-dimensional shape, as in GCN and GAT (their biases are initially 0)."""
    bound = np.sqrt(6 / sum(shape))
    return rng.uniform(-bound, bound, shape)


def linear(rng: np.random.Generator, fan_in: int, fan_out: int) -> tuple[Array, Array]:
    """Draw the weight and bias of a linear map, uniform in ±1/√fan_in.

    Args:
        rng: Source of the random weights.
        fan_in: Number of inputs.
        fan_out: Number of outputs.

    Returns:
        The weight (fan_in × fan_out) and the bias.
    """
    bound = 1 / np.sqrt(fan_in)
    return rng.uniform(-bound, bound, (fan_in, fan_out)), rng.uniform(-bound, bound, fan_out)


def gcn(rng: np.random.Generator, adjacency: Any, x: Any) -> Array:
    """Compute Â ReLU(Â x W₁) W₂ with Â = D^-½ (A + I) D^-½ (Kipf and Welling, 2017).

    Args:
        rng: Source of the random weights.
        adjacency: A + I, in CSR format.
        x: N × d features.

    Returns:
        N × `WIDTH` outputs.
    """
    hat = _normalised(adjacency)
    hidden = np.maximum(hat @ (x @ glorot(rng, x.shape[1], WIDTH)), 0)
    out: Array = hat @ (hidden @ glorot(rng, WIDTH, WIDTH))
    return out


def sgc(rng: np.random.Generator, adjacency: Any, x: Any) -> Array:
    """Compute Â Â x W + b (Wu et al., 2019).

    Args:
        rng: Source of the random weights.
        adjacency: A + I, in CSR format.
        x: N × d features.

    Returns:
        N × `WIDTH` outputs.
    """
    hat, (weight, bias) = _normalised(adjacency), linear(rng, x.shape[1], WIDTH)
    out: Array = hat @ (hat @ (x @ weight)) + bias
    return out


def gat(rng: np.random.Generator, adjacency: Any, x: Any) -> Array:
    """Compute two attention layers (Veličković et al., 2018): concatenated heads, ELU, averaged heads.

    Args:
        rng: Source of the random weights.
        adjacency: A + I, in CSR format.
        x: N × d features.

    Returns:
        N × `WIDTH` outputs.
    """
    hidden = _attend(rng, adjacency, x).reshape(x.shape[0], -1)
    hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
    out: Array = _attend(rng, adjacency, hidden).mean(1)
    return out


def _attend(rng: np.random.Generator, adjacency: Any, x: Any) -> Array:
    """Compute one attention layer, N × heads × width: Σ_j softmax_j(LeakyReLU(a_src·h_j + a_dst·h_i)) h_j."""
    h = (x @ glorot(rng, x.shape[1], HEADS * WIDTH)).reshape(-1, HEADS, WIDTH)
    from_source, from_destination = ((h * glorot(rng, HEADS, WIDTH)).sum(2) for _ in range(2))
    source, starts = adjacency.indices, adjacency.indptr
    destination = np.repeat(np.arange(len(h)), np.diff(starts))
    logit = from_source[source] + from_destination[destination]
    logit = np.where(logit > 0, logit, 0.2 * logit)
    weight = np.exp(logit - np.maximum.reduceat(logit, starts[:-1])[destination])  # every node has a self-loop
    weight /= np.add.reduceat(weight, starts[:-1])[destination]
    heads = (sp.csr_array((weight[:, k], source, starts)) @ h[:, k] for k in range(HEADS))
    return np.stack(list(heads), 1)


def _normalised(adjacency: Any) -> Any:
    """Return D^-½ A D^-½ of an adjacency matrix A."""
    scale = sp.dia_array((adjacency.sum(1)[None] ** -0.5, [0]), shape=adjacency.shape)
    return (scale @ adjacency @ scale).tocsr()


GENERATORS = {"gcn": gcn, "sgc": sgc, "gat": gat}

# ---- the environments ----------------------------------------------------------------------------------


def eerm(base: Graph, domains: Sequence[str], generator: str, seed: int) -> dict[str, Graph]:
    """Generate the environments of EERM from the features and edges of a graph.

    The labels are y = argmax G₁(x) over 10 classes. Environment i appends the columns G₂(onehot y) + W onehot(i) + b.
    Nodes, edges, labels and real features are the same in all environments. The spurious columns of two environments
    differ by the same row vector for all nodes. G₁, G₂, W and b depend only on the name of `base`, the generator and
    the seed.

    Args:
        base: The real graph. Its labels are not used.
        domains: Names of the environments to generate.
        generator: Kind of the networks G₁ and G₂, a key of `GENERATORS`.
        seed: Seed of all random draws.

    Returns:
        The graphs by name.
    """
    network = GENERATORS[generator]
    stream = partial(numpy_stream, seed, base.name, "eerm", generator)
    n, (source, destination) = base.num_nodes, base.edges
    adjacency = sp.csr_array((np.ones(base.num_edges), (destination, source)), shape=(n, n))
    adjacency = (adjacency + sp.eye_array(n)).tocsr()
    y = network(stream("labels"), adjacency, base.x.astype(np.float64)).argmax(1)
    spurious = network(stream("spurious"), adjacency, np.eye(WIDTH)[y])
    weight, bias = linear(stream("environment"), len(DOMAINS), WIDTH)
    return {
        name: base.replace(
            name=name,
            x=_append(base.x, spurious + weight[DOMAINS.index(name)] + bias),
            y=y,
            classes=tuple(map(str, range(WIDTH))),
        )
        for name in domains
    }


def flip(base: Graph, domains: Sequence[str], seed: int) -> dict[str, Graph]:
    """Generate environments with the labels of a graph and one additional feature column.

    The column is [y = 0], and the bit of every node is flipped with probability 0.1 (env0), 0.3 (env1) or 0.9
    (env2 … env9, independent draws).

    Args:
        base: The real graph.
        domains: Names of the environments to generate.
        seed: Seed of all random draws.

    Returns:
        The graphs by name.
    """
    graphs = {}
    for name in domains:
        flipped = numpy_stream(seed, base.name, "flip", name).random(base.num_nodes) < FLIP_RATES[name]
        graphs[name] = base.replace(name=name, x=_append(base.x, ((base.y == 0) ^ flipped)[:, None]))
    return graphs


def _append(x: Any, columns: Array) -> Any:
    """Append dense columns to a sparse matrix."""
    return sp.hstack([x, sp.csr_array(columns.astype(np.float32))], format="csr")


# ---- the benchmarks ------------------------------------------------------------------------------------


def _read(
    name: str,
    base: Callable[[Store], Graph],
    store: Store,
    domains: Sequence[str],
    *,
    variant: str,
    generator: str,
    generator_seed: int,
) -> dict[str, Graph]:
    for option, value, legal in (
        ("variant", variant, ("eerm", "flip")),
        ("generator", generator, tuple(GENERATORS)),
    ):
        Legal(choices=legal).check(f"{name}: option {option}", value)
    if type(generator_seed) is not int:
        raise InputError(f"{name}: option generator_seed must be an integer, got {generator_seed!r}")
    if variant == "flip":
        if generator != _OPTIONS["generator"]:  # the same data must not appear under two names
            raise InputError(f"{name}: option generator applies to variant eerm only, got {generator!r} with flip")
        return flip(base(store), domains, generator_seed)
    return eerm(base(store), domains, generator, generator_seed)


_OPTIONS = {"variant": "eerm", "generator": "gcn", "generator_seed": 0}
_PROTOCOL = Protocol(
    "env0→env2-9", ("env0",), targets=DOMAINS[2:], metrics=("accuracy",), validation=("env1",), repeats=5
)
_OTHER_SEEDS = tuple(
    replace(_PROTOCOL, name=f"env0→env2-9, generator_seed {seed}", options=(("generator_seed", seed),))
    for seed in (1, 2)
)


def _benchmark(
    name: str,
    base: Callable[[Store], Graph],
    files: tuple[File, ...],
    *,
    commonest: str,
    **card: str,
) -> Benchmark:
    return Benchmark(
        name=name,
        card=Card(
            shift="eerm: 10 spurious columns, a random network of the labels plus a random vector of the "
            "environment. flip: 1 column, the indicator of the first class with bits flipped with probability "
            "0.1 / 0.3 / 0.9",
            split="train env0, validate env1, test env2 … env9; all nodes of an environment are used; the set "
            "generator_seeds has this protocol for the generator seeds 0, 1 and 2",
            metric="accuracy",
            notes="All environments have the same nodes, edges and labels. The training loss therefore includes the "
            "label of every test node, and the accuracy measures how much a model depends on the spurious columns. "
            "The data depends on `variant`, `generator` and `generator_seed`: report all three and use several "
            "seeds, because the seed alone changes the accuracy by up to 10 points. The most frequent generated "
            f"class contains {commonest} of the nodes (all generators, seeds 0 … 7): compare an accuracy with that "
            "share.",
            **card,
        ),
        domains=DOMAINS,
        protocols=(_PROTOCOL,),
        sets={"generator_seeds": (_PROTOCOL, *_OTHER_SEEDS)},
        files=lambda domain: files,
        read=partial(_read, name, base),
        options=_OPTIONS,
    )


_SHIFT_PAPER = (
    "; the shift: Wu, Zhang, Yan and Wipf, Handling Distribution Shifts on Graphs: An Invariance Perspective, ICLR 2022"
)

CORA = _benchmark(
    "cora",
    read_cora,
    tuple(_CORA.values()),
    commonest="18 to 82 %",
    title="Cora with an artificial shift",
    nodes="2,708 papers",
    edges="5,278 undirected citations",
    features="1,433 binary words + 10 spurious columns (eerm) or 1 (flip)",
    labels="10 generated classes (eerm) or the 7 real topics (flip)",
    licence="MIT for the code of the repository; not stated for the data",
    origin="GitHub kimiyoung/planetoid, data/ind.cora.*",
    citation="Yang, Cohen and Salakhutdinov, Revisiting Semi-Supervised Learning with Graph Embeddings, "
    "ICML 2016" + _SHIFT_PAPER,
)
PHOTO = _benchmark(
    "photo",
    read_photo,
    (_PHOTO,),
    commonest="53 to 99 %",
    title="Amazon Photo with an artificial shift",
    nodes="7,650 products",
    edges="119,081 undirected pairs of products that are bought together",
    features="745 binary review words + 10 spurious columns (eerm) or 1 (flip)",
    labels="10 generated classes (eerm) or the 8 real product categories (flip)",
    licence="MIT for the repository of this copy; not stated for the data",
    origin="GitHub EdisonLeeeee/GraphData, datasets/amazon_photo.npz",
    citation="Shchur, Mumme, Bojchevski and Günnemann, Pitfalls of Graph Neural Network Evaluation, 2018"
    + _SHIFT_PAPER,
)
